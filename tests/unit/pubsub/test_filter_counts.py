"""The hub counts what filters judge by the host that messages come from, and changes of subscriptions."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from treecast.middleware.broker import content_filter
from treecast.middleware.broker.pubsub import (
    Message,
    PubSub,
    PubSubSettings,
    Subscriber,
    Subscription,
    Target,
)
from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.model.filter_tally import Change, SubscriptionTally

FILTERS = ("", "a > 3", "a < 2")


class Client(Subscriber):
    """Counts the messages that it is given."""

    def __init__(self, serial: int, name: str = "", *, foreign: bool = False) -> None:
        super().__init__(serial)
        self.name = name
        self.foreign = foreign
        self.got = 0

    def take(self, message: Message, target: Target) -> None:
        self.got += 1


def hub() -> PubSub:
    found = PubSub(PubSubSettings(), PubSubCounters())
    found.tally = SubscriptionTally(lambda: 0)
    return found


def subscription(client: Client, pattern: str, text: str) -> Subscription:
    return Subscription(client, pattern.encode(), content=content_filter(text) if text else None)


published = st.lists(st.tuples(st.sampled_from([0, 7, 8]), st.sampled_from("tu"), st.integers(0, 5)))


@given(st.lists(st.sampled_from(FILTERS), min_size=1, max_size=3), published)
def test_counts_are_those_of_judging_each_message(
    texts: list[str], messages: list[tuple[int, str, int]]
) -> None:
    found = hub()
    assert found.tally is not None
    others = {7: Client(7, foreign=True)}
    found.subscribe(Subscription(others[7], b"#"))  # another host wants all, which is no client of this one
    for number, text in enumerate(texts):
        found.subscribe(subscription(Client(100 + number), "+", text))
    expected: dict[int, Counter[str]] = {}
    for origin, topic, value in messages:
        message = Message(topic.encode(), b'{"a":%d}' % value)
        if origin:
            found.tally.origin = origin
            found.feed(message, others.get(origin))
            found.tally.origin = 0
        else:
            found.publish(message, found.routes.targets(message.topic), None)
        passed = "" in texts or ("a > 3" in texts and value > 3) or ("a < 2" in texts and value < 2)
        one = expected.setdefault(origin, Counter())
        one["messages"] += 1
        one["size"] += message.size
        one["passed"] += passed
        one["passed_size"] += passed * message.size
    counts = found.tally.filters.take().counts
    if set(texts) == {""}:
        assert counts == ()  # no filter judges
        return
    assert [origin for origin, _, _ in counts] == sorted(expected)
    for origin, wishes, one in counts:
        whole = expected[origin]
        assert (one.messages, one.passed) == (whole["messages"], whole["passed"])
        assert (one.size, one.passed_size) == (whole["size"], whole["passed_size"])
        assert wishes.open == ("" in texts)
        assert {text for _, text in wishes.listed} == set(texts) - {""}


def test_changes_of_clients_are_counted_and_those_of_hosts_are_not() -> None:
    found = hub()
    assert found.tally is not None
    client, host = Client(1, "sensor"), Client(2, foreign=True)
    found.subscribe(subscription(client, "t/+", "a > 3"))
    found.subscribe(subscription(client, "t/+", "a > 3"))  # the same again is no change
    found.subscribe(subscription(client, "t/+", "a < 2"))
    found.subscribe(Subscription(host, b"#"))
    found.unsubscribe(client, b"t/+")
    found.unsubscribe(host, b"#")
    assert found.tally.changes.take().listed == (
        Change("sensor", True, "t/+", "a > 3"),
        Change("sensor", True, "t/+", "a < 2"),
        Change("sensor", False, "t/+", "a > 3"),
        Change("sensor", False, "t/+", "a < 2"),
    )


def test_a_message_of_damaged_text_meets_no_filter_and_the_next_one_arrives() -> None:
    found, clients = hub(), [Client(1), Client(2), Client(3)]
    for client, text in zip(clients, ("", "a == x", "not a == x"), strict=True):
        found.subscribe(subscription(client, "t", text))
    for payload in (b'{"a":"\xff"}', b'{"a":"x","b":"\xff"}', b'{"a":"x"}'):
        message = Message(b"t", payload)
        found.feed(message, None)
        found.publish(message, found.routes.targets(b"t"), None)
    assert [client.got for client in clients] == [6, 2, 4]


def test_what_hosts_feed_and_what_is_published_here_have_filters_of_their_own() -> None:
    found, client, host = hub(), Client(1), Client(2, foreign=True)
    found.subscribe(subscription(client, "t", "a > 3"))
    found.subscribe(subscription(host, "t", "a < 2"))
    message = Message(b"t", b'{"a":9}')
    for _ in range(5):
        found.feed(message, host)
        found.publish(message, found.routes.targets(b"t"), None)
    assert (client.got, host.got) == (10, 0)
    for targets in (found.routes.targets(b"t"), found.routes.direct(b"t")):
        assert targets._contents is not None
        assert targets._contents._many.version == 1  # it never became another set


def test_diagrams_go_with_the_last_filter_of_a_pattern() -> None:
    found, clients = hub(), [Client(1), Client(2)]
    kept = found.routes._filters

    def publish() -> None:
        message = Message(b"t", b'{"a":9}')
        found.publish(message, found.routes.targets(b"t"), None)

    for client, pattern in zip(clients, ("t", "+"), strict=True):
        found.subscribe(subscription(client, pattern, "a > 3"))
        found.subscribe(subscription(client, pattern, "a > 4"))  # in place of the first
        publish()
    assert len(kept) == 2  # of the topics that one or both patterns match
    found.unsubscribe(clients[1], b"+")
    publish()
    assert len(kept) == 1
    found.subscribe(subscription(clients[0], "t", ""))
    publish()
    assert (len(kept), clients[0].got, clients[1].got) == (0, 4, 1)
