"""Tallies of what a host has sent: intervals add up to totals, whatever is sampled, restarted or repeated."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from treecast.middleware.model.tally import Growth, Header, Moved, Standing, Tally

HEADERS = [Header(6, 1, 1, (3,), 1), Header(4, 2, 0, (), 2)]
HOSTS = st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True).map(lambda one: tuple(sorted(one)))
BURST = st.tuples(HOSTS, st.integers(1, 50), st.integers(0, 9000), st.sampled_from(HEADERS))
INTERVALS = st.lists(st.lists(BURST, max_size=30), max_size=6)


@given(INTERVALS)
def test_intervals_add_up_to_what_was_sent(
    intervals: list[list[tuple[tuple[int, ...], int, int, Header]]],
) -> None:
    tally = Tally(1000)
    wanted: dict[tuple[tuple[int, ...], Header], int] = {}
    found: dict[tuple[tuple[int, ...], Header], int] = {}
    packets = size = 0
    for bursts in intervals:
        for hosts, count, octets, header in bursts:
            tally.add(hosts, count, octets, header)
            wanted[hosts, header] = wanted.get((hosts, header), 0) + count
        taken = tally.take()
        assert taken.sampled == 1.0
        packets, size = packets + taken.packets, size + taken.size
        for hosts, one in taken.sets:
            found[hosts, one.header] = found.get((hosts, one.header), 0) + one.packets
    assert found == wanted
    assert packets == sum(wanted.values())
    assert size == sum(octets for bursts in intervals for _, _, octets, _ in bursts)
    assert tally.take().packets == 0


@given(st.lists(BURST, max_size=200), st.integers(1, 8))
def test_of_too_many_sets_a_share_is_counted_in_full(
    bursts: list[tuple[tuple[int, ...], int, int, Header]], most: int
) -> None:
    tally, everything = Tally(most), Tally(10_000)
    for burst in bursts:
        tally.add(*burst)
        everything.add(*burst)
    taken, whole = tally.take(), everything.take()
    assert len(taken.sets) <= most
    assert (taken.packets, taken.size) == (whole.packets, whole.size)
    complete = {(hosts, one.header.version): one.packets for hosts, one in whole.sets}
    assert all(complete[hosts, one.header.version] == one.packets for hosts, one in taken.sets)
    assert (taken.sampled == 1.0) == (len(complete) <= most)


def test_the_share_tells_how_many_there_were() -> None:
    """The estimate from a sample is near the truth: the hash does not prefer some sets."""
    tally, sets = Tally(256), 20_000
    for number in range(sets):
        tally.add((number % 200, 200 + number // 200), 3, 300, HEADERS[0])
    taken = tally.take()
    assert 0 < len(taken.sets) <= 256
    assert sum(one.packets for _, one in taken.sets) / taken.sampled == pytest.approx(3 * sets, rel=0.3)
    assert taken.packets == 3 * sets


STEP = st.dictionaries(
    st.tuples(st.sampled_from("tu"), st.sampled_from("ab")), st.integers(0, 100), max_size=4
)


@given(st.lists(STEP, min_size=1, max_size=8))
def test_growth_adds_up_to_the_accounts(steps: list[dict[tuple[str, str], int]]) -> None:
    """Accounts that only grow: from the first look on, deltas sum up to what they have grown by."""
    growth, now = Growth(), dict.fromkeys([(s, r) for s in "tu" for r in "ab"], 7)
    first = dict(now)
    assert growth.take((pair, Standing(count)) for pair, count in now.items()) == Moved()
    summed = dict.fromkeys(now, 0)
    for step in steps:
        for pair, more in step.items():
            now[pair] += more
        for pair, one in growth.take((pair, Standing(count)) for pair, count in now.items()).pairs:
            summed[pair] += one.addressed
    assert summed == {pair: now[pair] - first[pair] for pair in now}


def test_accounts_that_fall_vanish_and_are_given_twice() -> None:
    growth = Growth()
    growth.take([(("t", "a"), Standing(100, 90))])
    assert growth.take([(("t", "a"), Standing(40, 30))]).pairs == ()  # lost: counted from here on
    moved = growth.take(
        [(("t", "a"), Standing(45, 34)), (("t", "a"), Standing(1, 1)), (("u", "a"), Standing(2))]
    )
    assert dict(moved.pairs) == {("t", "a"): Standing(6, 5), ("u", "a"): Standing(2)}
    assert growth.take([]).pairs == ()


def test_the_busiest_pairs_are_listed() -> None:
    growth = Growth(most=2)
    growth.take([])
    moved = growth.take(
        [(("t", name), Standing(count)) for name, count in zip("abcd", (5, 1, 9, 2), strict=True)]
    )
    assert [pair for pair, _ in moved.pairs] == [("t", "a"), ("t", "c")]
    assert (moved.left_out, moved.records_left_out) == (2, 3)
