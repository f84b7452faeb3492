"""The trie agrees with its plain reference, and visits only matching nodes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.broker.pubsub import Message, Subscriber, Subscription
from treecast.middleware.broker.pubsub.reference import matches, matches_key
from treecast.middleware.broker.pubsub.retained import RetainedStore
from treecast.middleware.broker.pubsub.trie import AMQP, TopicTrie

levels = st.sampled_from([b"a", b"b", b"", b"$x", b"abc"])
topics = st.lists(levels, min_size=1, max_size=4).map(b"/".join).filter(bool)
wild = st.sampled_from([b"a", b"b", b"", b"$x", b"abc", b"+"])
filters = st.tuples(st.lists(wild, min_size=1, max_size=4), st.booleans()).map(
    lambda found: b"/".join([*found[0][: 3 if found[1] else 4], *([b"#"] if found[1] else [])])
)
filters = (filters | st.just(b"#")).filter(bool)


def subscription(filter: bytes, serial: int = 1) -> Subscription:
    return Subscription(Subscriber(serial), filter)


@given(st.lists(st.tuples(filters, st.integers(1, 3))), st.lists(topics, max_size=10), st.data())
@settings(max_examples=100)
def test_it_matches_what_the_reference_matches(
    entries: list[tuple[bytes, int]], names: list[bytes], data: st.DataObject
) -> None:
    trie: TopicTrie[Subscription] = TopicTrie()
    for filter, serial in entries:
        trie.add(filter, serial, subscription(filter, serial))
    held = set(entries)
    gone = data.draw(st.lists(st.sampled_from(sorted(held)), unique=True)) if held else []
    for filter, serial in gone:
        removed = trie.remove(filter, serial)
        assert removed is not None
        assert removed.filter == filter
        assert trie.remove(filter, serial) is None
        held.discard((filter, serial))
    assert trie.count == len(held)
    for name in names:
        found = sorted((one.filter, one.subscriber.serial) for one in trie.match(name))
        assert found == sorted((f, s) for f, s in held if matches(f, name))
    for filter, serial in held:
        trie.remove(filter, serial)
    assert trie._root.empty


@given(st.lists(topics, max_size=12), st.lists(filters, max_size=6))
@settings(max_examples=100)
def test_retained_messages_match_what_the_reference_matches(names: list[bytes], wanted: list[bytes]) -> None:
    store = RetainedStore(1000)
    for name in names:
        store.put(Message(name, b"x"))
    assert store.count == len(set(names))
    for filter in wanted:
        found = sorted(message.topic for message in store.match(filter, 0.0))
        assert found == sorted(name for name in set(names) if matches(filter, name))
    for name in set(names):
        assert store.remove(name) is not None
        assert store.remove(name) is None
    assert store.count == 0
    assert not store._root.children


def test_the_examples_of_the_specification() -> None:
    """The examples are those of section 4.7 of MQTT 5.0."""
    for filter, topic in (
        (b"sport/tennis/player1/#", b"sport/tennis/player1"),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon"),
        (b"sport/#", b"sport"),
        (b"#", b"anything/at/all"),
        (b"sport/+", b"sport/"),
        (b"+/+", b"/finance"),
        (b"/+", b"/finance"),
        (b"$SYS/#", b"$SYS/monitor/Clients"),
    ):
        assert matches(filter, topic), (filter, topic)
    for filter, topic in (
        (b"sport/+", b"sport"),
        (b"sport/tennis/+", b"sport/tennis/player1/ranking"),
        (b"+", b"/finance"),
        (b"#", b"$SYS/x"),
        (b"+/monitor/Clients", b"$SYS/monitor/Clients"),
    ):
        assert not matches(filter, topic), (filter, topic)


def test_a_filter_of_very_many_levels() -> None:
    trie: TopicTrie[Subscription] = TopicTrie()
    deep = b"/".join([b"+"] * 30_000)
    trie.add(deep, 1, subscription(deep))
    assert len(trie.match(b"/" * 29_999)) == 1
    assert trie.remove(deep, 1) is not None


words = st.lists(st.sampled_from([b"a", b"b", b""]), max_size=6).map(b".".join)
patterns = st.lists(st.sampled_from([b"a", b"b", b"", b"*", b"#"]), max_size=5).map(b".".join)


@given(st.lists(st.tuples(patterns, st.integers(1, 3))), st.lists(words, max_size=10), st.data())
@settings(max_examples=200)
def test_it_matches_what_the_reference_of_amqp_matches(
    entries: list[tuple[bytes, int]], keys: list[bytes], data: st.DataObject
) -> None:
    """Each value comes once, even if its pattern matches in several ways."""
    trie: TopicTrie[tuple[bytes, int]] = TopicTrie(AMQP)
    for entry in entries:
        trie.add(*entry, entry)
    held = set(entries)
    gone = data.draw(st.lists(st.sampled_from(sorted(held)), unique=True)) if held else []
    for entry in gone:
        assert trie.remove(*entry) == entry
        assert trie.remove(*entry) is None
        held.discard(entry)
    assert trie.count == len(held)
    for key in keys:
        assert sorted(trie.match(key)) == sorted(one for one in held if matches_key(one[0], key))
    for entry in held:
        trie.remove(*entry)
    assert trie._root.empty
    assert trie._amid == 0


def test_keys_of_amqp() -> None:
    """Examples of AMQP 0-9-1's section 3.1.3.3, and RabbitMQ's treatment of empty words."""
    for pattern, key in (
        (b"*.stock.#", b"usd.stock"),
        (b"*.stock.#", b"eur.stock.db"),
        (b"#", b""),
        (b"", b""),
        (b"#.#", b"a"),
        (b"a.#.b", b"a.b"),
        (b"a.#.b", b"a.b.b"),
        (b"a.*.b", b"a..b"),
        (b"#.a", b"a.a.a"),
    ):
        assert matches_key(pattern, key), (pattern, key)
    for pattern, key in ((b"*.stock.#", b"stock.nasdaq"), (b"*", b""), (b"a.#.b", b"a.b.c"), (b"", b"a")):
        assert not matches_key(pattern, key), (pattern, key)


def test_very_many_wildcards_cost_no_more_than_nodes_times_levels() -> None:
    """Each node is visited once per level, although the number of ways is exponential."""
    trie: TopicTrie[int] = TopicTrie(AMQP)
    trie.add(b".".join([b"#", b"a"] * 60 + [b"#", b"b"]), 1, 1)
    trie.add(b".".join([b"#"] * 120), 2, 2)
    assert trie.match(b".".join([b"a"] * 120)) == [2]
