"""Quotas: the bucket equals a plain reference and bounds what an obedient client sends; Kafka's order."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.broker.access import (
    ANY,
    Content,
    Identities,
    Quota,
    Quotas,
    Rate,
    check_quota,
    places,
)
from treecast.middleware.model.quota_bucket import BURST_SECONDS, LONGEST, QuotaBucket

# Steps of (time since the last one, amount), in numbers that floats hold exactly
STEPS = st.lists(st.tuples(st.integers(0, 64), st.integers(0, 1 << 20)), max_size=40)


def waits_by_history(rate: int, steps: list[tuple[int, int]]) -> list[float]:
    """The reference: the debt is the largest excess over what any time until now has brought.

    A bucket that was full at time `s` has since lost all that was taken and got `rate` a second.
    """
    found, times, now = [], [], Fraction(0)
    taken: list[int] = []
    for passed, amount in steps:
        now += Fraction(passed, 16)
        times.append(now)
        taken.append(amount)
        levels = [rate * BURST_SECONDS + rate * now - sum(taken)]
        levels += [
            rate * BURST_SECONDS + rate * (now - began) - sum(taken[at:]) for at, began in enumerate(times)
        ]
        found.append(float(min(max(-min(levels) / rate, 0), LONGEST)))
    return found


@given(st.sampled_from([1, 64, 1 << 16]), STEPS)
def test_the_bucket_equals_the_reference(rate: int, steps: list[tuple[int, int]]) -> None:
    bucket, now, found = QuotaBucket(float(rate), 0.0), 0.0, []
    for passed, amount in steps:
        now += passed / 16
        found.append(bucket.take(float(amount), now))
    assert found == pytest.approx(waits_by_history(rate, steps))


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=60))
def test_a_client_that_waits_keeps_to_the_rate(amounts: list[int]) -> None:
    """However it cuts what it sends, it gets the burst, the rate, and the last amount above them."""
    rate, now, sent = 1_000.0, 0.0, 0
    bucket = QuotaBucket(rate, now)
    for amount in amounts:
        assert sent <= rate * BURST_SECONDS + rate * now + 1e-6
        sent += amount
        now += bucket.take(amount, now)


def test_time_that_goes_backwards_gives_nothing() -> None:
    bucket = QuotaBucket(10.0, 100.0)
    assert bucket.take(10, 100.0) == 0.0
    assert bucket.take(5, 50.0) == 0.5


def rate_of(quotas: Quotas, user: str, client_id: str) -> float:
    """Returns the rate that counts: a second's worth passes at once, and as much again waits for a second."""
    for number in range(1, 10):
        fresh = Quotas([Quota(*place, rates) for place, rates in quotas._rates.items()])
        if fresh.spending(user, client_id, 0.0).sent(2 * number, 0.0) == pytest.approx(1.0):
            return number
    return 0


def test_kafkas_order() -> None:
    """Each quota in turn decides when those before it are gone."""
    order = places("alice", "app")
    quotas = [Quota(*place, {Rate.PRODUCE: float(number)}) for number, place in enumerate(order, 1)]
    for first in range(len(order)):
        assert rate_of(Quotas(reversed(quotas[first:])), "alice", "app") == first + 1
    assert rate_of(Quotas(quotas), "bob", "x") == order.index((ANY, ANY)) + 1
    assert rate_of(Quotas([quotas[0]]), "bob", "app") == 0


def test_buckets_are_shared_by_those_that_a_quota_is_for() -> None:
    quotas = Quotas([Quota("alice", "", {Rate.PRODUCE: 10.0}), Quota(ANY, "", {Rate.PRODUCE: 10.0})])
    assert quotas.spending("alice", "a", 0.0).sent(10, 0.0) == 0.0
    assert quotas.spending("alice", "b", 0.0).sent(10, 0.0) == 1.0, "all of the user's connections"
    assert quotas.spending("bob", "a", 0.0).sent(10, 0.0) == 0.0, "a default is for each user by itself"
    assert quotas.spending("bob", "b", 0.0).request(10, 0.0) == 1.0


def test_a_change_makes_new_buckets() -> None:
    identities = Identities(Content(quotas=(Quota("alice", "", {Rate.REQUESTS: 1.0}),)))
    version = identities.quotas.version
    assert identities.quotas.any
    identities.replace(Content())
    assert not identities.quotas.any
    assert identities.quotas.version > version


def test_new_connections_of_an_address() -> None:
    """Each address has a bucket; what is turned away costs nothing; `*` is for those without their own."""
    named = Quota("", "", {Rate.CONNECTIONS: 2.0}, "10.0.0.7")
    others = Quota("", "", {Rate.CONNECTIONS: 0.5}, ANY)
    quotas = Quotas([named, others])
    assert not quotas.any, "no client's bytes are counted"
    assert [quotas.may_connect("10.0.0.7", 0.0) for _ in range(4)] == [True, True, False, False]
    assert [quotas.may_connect("10.0.0.8", 0.0) for _ in range(2)] == [True, False]
    assert quotas.may_connect("10.0.0.9", 0.0)
    assert quotas.may_connect("10.0.0.7", 0.5)
    assert not quotas.may_connect("10.0.0.8", 1.0)
    assert quotas.may_connect("10.0.0.8", 2.0)
    quotas.replace([])
    assert all(quotas.may_connect("10.0.0.8", 2.0) for _ in range(100))


@pytest.mark.parametrize(
    ("quota", "said"),
    [
        (Quota("", "", {Rate.PRODUCE: 1.0}), "it names"),
        (Quota("alice", "", {Rate.PRODUCE: 1.0}, "10.0.0.7"), "it names"),
        (Quota("alice", "", {}), "each above 0"),
        (Quota("alice", "", {Rate.PRODUCE: 0.0}), "each above 0"),
        (Quota("alice", "", {Rate.PRODUCE: float("inf")}), "each above 0"),
        (Quota("alice", "", {Rate.CONNECTIONS: 1.0}), "produce-bytes, fetch-bytes, requests"),
        (Quota("", "", {Rate.PRODUCE: 1.0}, "10.0.0.7"), "give connections"),
    ],
)
def test_wrong_quotas(quota: Quota, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_quota(quota)
