"""The hub remembers targets, forgets them when filters change, and shares them among similar topics."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.broker.pubsub import (
    Message,
    PubSub,
    PubSubSettings,
    SharedGroup,
    Subscriber,
    Subscription,
    Target,
    Waiter,
)
from treecast.middleware.broker.pubsub.reference import matches
from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.model.wishes import Wish


class Recorder(Subscriber):
    """Keeps the messages that it is given."""

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
    subscribers = [Recorder(found.routes.next_serial()) for _ in range(3)]
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
            found.publish(Message(topic, b"", 2), found.routes.targets(topic), None)
            for number, subscriber in enumerate(subscribers):
                wants = any(matches(f, topic) for w, f in held if w == number)
                assert subscriber.got[before[number] :] == ([(topic, number)] if wants else [])
    assert found.subscriptions == len(held)


def test_topics_with_the_same_subscriptions_have_the_same_targets() -> None:
    found = hub()
    found.subscribe(Subscription(Recorder(1), b"#"))
    assert found.routes.targets(b"a") is found.routes.targets(b"b/c")
    found.subscribe(Subscription(Recorder(2), b"a"))
    assert found.routes.targets(b"a") is not found.routes.targets(b"b/c")
    assert found.routes.targets(b"b/c").count == 1
    assert found.routes.targets(b"a").count == 2


class Told:
    """Other hosts, which know everything. Implements `Reach`."""

    host = 7
    buries = True

    def __init__(self) -> None:
        self.told: list[tuple[str, bytes]] = []

    def wanted(self, wish: Wish) -> None:
        self.told.append(("wanted", wish.filter or b""))

    def unwanted(self, wish: Wish) -> None:
        self.told.append(("unwanted", wish.filter or b""))

    def known(self, waiter: Waiter) -> bool:
        return True

    def collect(self, filters: list[bytes], waiter: Waiter) -> bool:
        return True

    def begin(self) -> None: ...

    def grouped(self, group: SharedGroup) -> None:
        self.told.append(("grouped", group.filter))

    def members_changed(self, group: SharedGroup) -> None:
        self.told.append(("members", group.filter))


def test_what_is_beyond_the_host_is_told_of_the_first_and_the_last_of_a_filter() -> None:
    found, beyond = hub(), Told()
    found.use_reach(beyond)
    one, two = Recorder(found.routes.next_serial()), Recorder(found.routes.next_serial())
    found.subscribe(Subscription(one, b"a/#"))
    found.subscribe(Subscription(two, b"a/#"))
    found.unsubscribe(one, b"a/#")
    assert beyond.told == [("wanted", b"a/#")]
    found.unsubscribe(two, b"a/#")
    assert beyond.told[1:] == [("unwanted", b"a/#")]


def test_shared_subscriptions_are_rooted_where_what_is_beyond_the_host_says_so() -> None:
    found, beyond = hub(), Told()
    one = Recorder(found.routes.next_serial())
    found.shares.subscribe(b"g", Subscription(one, b"s"))
    assert found.routes.direct_recorded(b"s").count == 1  # a host alone is the home of all
    found.shares.unsubscribe(b"g", one, b"s")
    assert found.routes.direct_recorded(b"s").count == 0
    found.use_reach(beyond)
    found.shares.subscribe(b"g", Subscription(one, b"s"))
    assert (found.wishes, beyond.told) == ([], [("grouped", b"s"), ("members", b"s")])
    assert (found.routes.targets(b"s").count, found.routes.direct_recorded(b"s").count) == (1, 0)
    found.shares.root(b"g", b"s")
    assert found.routes.direct_recorded(b"s").count == 1
    assert found.routes.direct(b"s").count == 0  # another host that publishes chooses the receiver itself
    found.shares.unsubscribe(b"g", one, b"s")
    assert beyond.told[2:] == [("members", b"s")]
    assert found.shares.all() == []


def test_a_topic_that_is_emptied_is_buried_where_other_hosts_may_have_it() -> None:
    found = hub()
    for beyond, left in ((None, 0), (Told(), 1)):
        found.use_reach(beyond)
        for payload in (b"x", b""):
            assert found.retain(Message(b"t", payload, 1, True))
        assert found.retained.tombstones == left
    stone = next(iter(found.retained.all()))
    assert stone.stamp & 0xFFFFFFFF == 7
