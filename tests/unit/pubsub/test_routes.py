"""The hub: targets are remembered, forgotten when filters change, and shared by topics that are alike."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.broker.pubsub import (
    InterestListener,
    Message,
    PubSub,
    PubSubSettings,
    Subscriber,
    Subscription,
    Target,
)
from treecast.middleware.broker.pubsub.reference import matches
from treecast.middleware.model.counters import PubSubCounters


class Recorder(Subscriber):
    """Keeps what it is given."""

    def __init__(self, serial: int) -> None:
        super().__init__(serial)
        self.got: list[tuple[bytes, int]] = []

    def take(self, message: Message, target: Target) -> None:
        self.got.append((message.topic, min(message.qos, target.qos)))


def hub(**settings: int) -> PubSub:
    return PubSub(PubSubSettings(**settings), PubSubCounters())


FILTERS = [b"a", b"a/b", b"a/#", b"+/b", b"#", b"+", b"b"]
TOPICS = [b"a", b"a/b", b"b", b"a/b/c", b"$x"]
steps = st.lists(
    st.tuples(st.sampled_from("sup"), st.integers(0, 2), st.sampled_from(FILTERS), st.sampled_from(TOPICS)),
    max_size=40,
)


@given(steps, st.sampled_from([1, 1000]))
@settings(max_examples=100)
def test_with_and_without_remembered_routes_the_same_is_delivered(
    done: list[tuple[str, int, bytes, bytes]], cache: int
) -> None:
    found = hub(route_cache=cache)
    subscribers = [Recorder(found.next_serial()) for _ in range(3)]
    held: set[tuple[int, bytes]] = set()
    for what, who, filter, topic in done:
        if what == "s":
            new = found.subscribe(Subscription(subscribers[who], filter, who))
            assert new == ((who, filter) not in held)
            held.add((who, filter))
        elif what == "u":
            assert found.unsubscribe(subscribers[who], filter) == ((who, filter) in held)
            held.discard((who, filter))
        else:
            before = [len(one.got) for one in subscribers]
            found.publish(Message(topic, b"", 2), found.targets(topic), None)
            for number, subscriber in enumerate(subscribers):
                wants = any(matches(f, topic) for w, f in held if w == number)
                assert subscriber.got[before[number] :] == ([(topic, number)] if wants else [])
    assert found.subscriptions == len(held)


def test_topics_with_the_same_subscriptions_have_the_same_targets() -> None:
    found = hub()
    found.subscribe(Subscription(Recorder(1), b"#"))
    assert found.targets(b"a") is found.targets(b"b/c")
    found.subscribe(Subscription(Recorder(2), b"a"))
    assert found.targets(b"a") is not found.targets(b"b/c")
    assert found.targets(b"b/c").count == 1
    assert found.targets(b"a").count == 2


def test_interest_is_told_of_the_first_and_the_last_of_a_filter() -> None:
    told: list[tuple[str, bytes, bool]] = []

    class Listener(InterestListener):
        def wanted(self, filter: bytes, shared: bool) -> None:
            told.append(("wanted", filter, shared))

        def unwanted(self, filter: bytes, shared: bool) -> None:
            told.append(("unwanted", filter, shared))

    found = hub()
    found.interest = Listener()
    one, two = Recorder(found.next_serial()), Recorder(found.next_serial())
    found.subscribe(Subscription(one, b"a/#"))
    found.subscribe(Subscription(two, b"a/#"))
    found.unsubscribe(one, b"a/#")
    assert told == [("wanted", b"a/#", False)]
    found.unsubscribe(two, b"a/#")
    assert told[1:] == [("unwanted", b"a/#", False)]
    found.subscribe_shared(b"g", Subscription(one, b"s"))
    found.unsubscribe_shared(b"g", one, b"s")
    assert told[2:] == [("wanted", b"s", True), ("unwanted", b"s", True)]
