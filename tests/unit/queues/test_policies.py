"""Policies: which one applies, its combination with arguments and an operator's, and changes."""

from __future__ import annotations

import pytest
from tests.unit.queues.host import Host, Taker, run

from treecast.middleware.broker.queues import Overflow, Policy, Refusal
from treecast.middleware.broker.queues.arguments import QueueType
from treecast.middleware.broker.queues.policies import for_queue


def set_policy(
    host: Host,
    name: str = "p",
    pattern: str = "",
    priority: int = 0,
    apply_to: str = "all",
    operator: bool = False,
    **definition: object,
) -> None:
    said = {key.replace("_", "-"): value for key, value in definition.items()}
    host.vhost.policies.set(Policy(name, pattern, said, priority, apply_to), host.now, operator=operator)


def test_the_lower_of_two_numbers_counts_and_the_queues_own_word_else(host: Host) -> None:
    set_policy(host, message_ttl=1000, max_length=5, overflow="reject-publish", dead_letter_exchange="a")
    queue = host.queue("q", message_ttl=9000, max_length=2, overflow="drop-head", dead_letter_exchange="b")
    found = queue.arguments
    assert (found.message_ttl, found.max_length) == (1000, 2)
    assert (found.overflow, found.dead_letter_exchange) == (Overflow.DROP_HEAD, b"b")
    quorum = host.queue("r", queue_type="quorum", overflow="drop-head")
    assert quorum.arguments.overflow is Overflow.REJECT_PUBLISH  # for quorum queues the policy wins


def test_an_operators_policy_can_only_lower(host: Host) -> None:
    set_policy(host, max_length=10, expires=5000)
    set_policy(host, operator=True, max_length=20, message_ttl=7)
    found = host.queue("q").arguments
    assert (found.max_length, found.expires, found.message_ttl) == (10, 5000, 7)
    set_policy(host, operator=True, max_length=3)
    assert host.queue("q").arguments.max_length == 3
    assert host.queue("q").arguments.message_ttl == -1


def test_an_operator_may_not_say_where_dead_letters_go(host: Host) -> None:
    with pytest.raises(Refusal, match="not recognised policy settings"):
        set_policy(host, operator=True, dead_letter_exchange="x")


def test_only_the_policy_of_the_highest_priority_counts(host: Host) -> None:
    set_policy(host, "low", "^q", 1, message_ttl=1000)
    set_policy(host, "high", "^q", 2, max_length=1)
    set_policy(host, "other", "^x", 9, max_length=7)
    queue = host.queue("q")
    assert (queue.arguments.message_ttl, queue.arguments.max_length) == (-1, 1)
    assert queue.policies[0] is not None
    assert queue.policies[0].name == "high"
    host.vhost.policies.delete("high", host.now)
    assert (queue.arguments.message_ttl, queue.arguments.max_length) == (1000, -1)


@pytest.mark.parametrize(
    ("apply_to", "classic", "quorum", "exchange"),
    [
        ("all", 5, 5, b"alt"),
        ("queues", 5, 5, None),
        ("classic_queues", 5, -1, None),
        ("quorum_queues", -1, 5, None),
        ("streams", -1, -1, None),
        ("exchanges", -1, -1, b"alt"),
    ],
)
def test_what_a_policy_applies_to(
    host: Host, apply_to: str, classic: int, quorum: int, exchange: bytes | None
) -> None:
    set_policy(host, apply_to=apply_to, max_length=5, alternate_exchange="alt")
    assert host.queue("q").arguments.max_length == classic
    assert host.queue("r", queue_type="quorum").arguments.max_length == quorum
    assert host.vhost.exchange_definitions.declare(b"x", "fanout").alternate == exchange


def test_a_policy_of_what_a_queue_type_does_not_know_is_for_others(host: Host) -> None:
    set_policy(host, delivery_limit=1, max_length=5)
    assert host.queue("q").arguments.max_length == -1
    assert host.queue("r", queue_type="quorum", delivery_limit=7).arguments.delivery_limit == 1


def test_a_negative_delivery_limit_gives_way(host: Host) -> None:
    set_policy(host, delivery_limit=-1)
    assert host.queue("q", queue_type="quorum", delivery_limit=7).arguments.delivery_limit == 7
    assert host.queue("r", queue_type="quorum").arguments.delivery_limit == -1


def test_a_living_queue_is_cut_and_dead_letters(host: Host) -> None:
    host.queue("dead")
    host.queue("q")
    host.publish(b"1", b"2", b"3")
    set_policy(host, pattern="^q$", max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    assert host.drained("dead") == [b"1", b"2"]
    assert host.drained("q") == [b"3"]


def test_a_living_queue_expires_from_when_it_was_said(host: Host) -> None:
    host.queue("q")
    host.wait(100)
    set_policy(host, expires=5000)
    host.wait(4)
    assert b"q" in host.vhost.queues
    host.wait(1)
    assert b"q" not in host.vhost.queues


def test_a_time_to_live_counts_for_what_comes_after(host: Host) -> None:
    queue = host.queue("q")
    host.publish(b"1")
    set_policy(host, message_ttl=1000)
    host.publish(b"2")
    host.wait(2)
    assert queue.ready == 2  # the first never expires, and stays at the head
    assert host.drained("q") == [b"1"]


def test_an_alternate_exchange_by_policy_is_used_at_once(host: Host) -> None:
    host.vhost.exchange_definitions.declare(b"x", "direct")
    host.vhost.exchange_definitions.declare(b"alt", "fanout")
    host.queue("q")
    host.bind("alt", "q")
    assert not host.vhost.publish(run(b"1", exchange="x"), host.now)[0]
    set_policy(host, apply_to="exchanges", pattern="^x$", alternate_exchange="alt")
    assert host.vhost.publish(run(b"2", exchange="x"), host.now)[0]
    host.vhost.policies.delete("p", host.now)
    assert not host.vhost.publish(run(b"3", exchange="x"), host.now)[0]


def test_a_consumer_is_given_nothing_that_a_policy_drops(host: Host) -> None:
    queue = host.queue("q")
    host.publish(b"1", b"2", b"3")
    set_policy(host, max_length=0)
    taker = Taker("t")
    host.vhost.consume(queue, taker, host.now)
    assert taker.got == []


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ({}, "no policy provided"),
        ({"ha_mode": "all"}, "not recognised policy settings"),
        ({"max_priority": 3}, "not recognised policy settings"),
        ({"message_ttl": -1}, "not a valid message TTL"),
        ({"message_ttl": True}, "not a valid message TTL"),
        ({"message_ttl": 10.0}, "10.0 is not a valid message TTL"),
        ({"expires": 10.0}, "not a valid queue expiry"),
        ({"queue_version": 1.0}, "not a valid queue-version value"),
        ({"delivery_limit": 1.0}, "not a valid delivery limit"),
        ({"expires": 0}, "not a valid queue expiry"),
        ({"overflow": "spill"}, "not a valid overflow value"),
        ({"max_age": "3 days"}, "not a valid max age"),
        ({"dead_letter_exchange": 1}, "not a valid dead letter exchange name"),
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(
    host: Host, definition: dict[str, object], words: str
) -> None:
    with pytest.raises(Refusal, match=words):
        set_policy(host, **definition)  # type: ignore[arg-type]
    assert not host.vhost.policies.users


def test_patterns_take_linear_time_and_may_look_ahead(host: Host) -> None:
    set_policy(host, name="slow", pattern="^(a|aa)+$", max_length=1)
    set_policy(host, name="own", pattern="^(?!amq\\.|a).*", max_length=2)
    assert for_queue(host.vhost.policies.users, b"a" * 45 + b"x", QueueType.CLASSIC) is None
    for name, policy in ((b"a" * 45, "slow"), (b"orders", "own")):
        found = for_queue(host.vhost.policies.users, name, QueueType.CLASSIC)
        assert found is not None
        assert found.name == policy
    with pytest.raises(Refusal, match="regular expression"):
        set_policy(host, pattern="(a)\\1", max_length=1)


def test_a_stored_pattern_that_is_refused_now_matches_nothing() -> None:
    stored = {"old": Policy("old", "(a)\\1", {"max-length": 1})}
    assert for_queue(stored, b"aa", QueueType.CLASSIC) is None


def test_a_pattern_or_a_target_that_makes_no_sense_is_refused(host: Host) -> None:
    with pytest.raises(Refusal, match="regular expression"):
        set_policy(host, pattern="(", max_length=1)
    with pytest.raises(Refusal, match="apply-to 'everything' unrecognised"):
        set_policy(host, apply_to="everything", max_length=1)
