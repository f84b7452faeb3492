"""Exchanges, keys and bindings as topics and patterns of the fabric."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.agents.rabbitmq.bindings import difference, kept, wanted_elsewhere, wanted_here
from treecast.agents.rabbitmq.management import BindingFound
from treecast.agents.rabbitmq.topics import DIRECT, FANOUT, HEADERS, TOPIC, binding_of, pattern_of, topic_of
from treecast.middleware.broker.pubsub.message import is_name
from treecast.middleware.broker.pubsub.reference import matches, matches_key
from treecast.middleware.model.wishes import matches as pattern_matches

WORDS = st.sampled_from([b"", b"a", b"b", b"+", b"/", b"$x", b"\xc3\xa9", b"%2F", b"long-word_1"])
KEYS = st.lists(WORDS, max_size=4).map(b".".join)
BINDING_KEYS = st.lists(st.one_of(WORDS, st.sampled_from([b"*", b"#"])), max_size=4).map(b".".join)


def filter_of(pattern: tuple[str, ...]) -> bytes:
    return "/".join(pattern).encode()


@given(BINDING_KEYS, KEYS)
def test_a_pattern_matches_whatever_its_binding_matches(binding: bytes, key: bytes) -> None:
    pattern = pattern_of("/", b"e", TOPIC, binding)
    topic = topic_of("/", b"e", TOPIC, key)
    if matches_key(binding, key):
        assert matches(filter_of(pattern), topic)
        assert pattern_matches(pattern, tuple(topic.decode().split("/")))
    elif b"#" not in binding.split(b".")[:-1]:
        assert not matches(filter_of(pattern), topic)  # exact, unless words follow a #


@given(BINDING_KEYS, KEYS)
def test_the_binding_made_of_a_pattern_matches_whatever_the_first_one_matches(
    binding: bytes, key: bytes
) -> None:
    made = binding_of("v", pattern_of("v", b"e", TOPIC, binding), {b"e": TOPIC})
    assert made is not None
    exchange, wider = made
    assert exchange == b"e"
    assert matches_key(wider, key) or not matches_key(binding, key)


@given(st.binary(max_size=255), st.binary(max_size=255))
def test_direct_keys_are_exact(binding: bytes, key: bytes) -> None:
    pattern, topic = pattern_of("/", b"e", DIRECT, binding), topic_of("/", b"e", DIRECT, key)
    assert matches(filter_of(pattern), topic) == (binding == key)
    assert binding_of("/", pattern, {b"e": DIRECT}) == (b"e", binding)


@pytest.mark.parametrize("kind", [FANOUT, HEADERS])
def test_fanout_and_headers_exchanges_are_wanted_whole(kind: str) -> None:
    pattern, topic = pattern_of("/", b"e", kind, b"any"), topic_of("/", b"e", kind, b"other.key")
    assert matches(filter_of(pattern), topic)
    assert binding_of("/", pattern, {b"e": kind}) == (b"e", b"")


@given(st.binary(max_size=255), st.text(max_size=20), st.binary(max_size=255))
def test_topics_are_names_that_cross_hosts_and_differ_by_host_and_exchange(
    exchange: bytes, vhost: str, key: bytes
) -> None:
    for kind in (DIRECT, TOPIC, FANOUT, HEADERS):
        topic = topic_of(vhost, exchange, kind, key)
        assert is_name(topic)
        assert not matches(filter_of(pattern_of(vhost, exchange + b"x", kind, key)), topic)
        assert not matches(filter_of(pattern_of(vhost + "x", exchange, kind, key)), topic)


def test_patterns_of_other_virtual_hosts_and_exchanges_are_no_bindings() -> None:
    pattern = pattern_of("v", b"e", TOPIC, b"a.*")
    assert binding_of("other", pattern, {b"e": TOPIC}) is None
    assert binding_of("v", pattern, {b"other": TOPIC}) is None
    assert binding_of("v", pattern[:2], {b"e": TOPIC}) is None


def test_the_agents_own_queue_is_no_interest() -> None:
    found = {
        "e": [
            BindingFound("e", "q", "queue", "a.*"),
            BindingFound("e", "own", "queue", "b.*"),
            BindingFound("e", "own", "exchange", "c.*"),
        ],
        "not carried": [BindingFound("not carried", "q", "queue", "a")],
    }
    wanted = wanted_here("/", {"e": TOPIC}, found, "own")
    assert wanted == {pattern_of("/", b"e", TOPIC, key) for key in (b"a.*", b"c.*")}
    assert wanted_elsewhere("/", {"e": TOPIC}, wanted) == {("e", "a.*"), ("e", "c.*")}


def test_differences() -> None:
    assert difference({1, 2}, {2, 3}) == ({3}, {1})


def test_what_one_look_misses_counts_until_the_next_one() -> None:
    assert kept({1, 2}, {2, 3}, set()) == ({1, 2, 3}, {1})
    assert kept({1, 2, 3}, {2, 3}, {1}) == ({2, 3}, set())
    assert kept({1, 2, 3}, {1, 2, 3}, {1}) == ({1, 2, 3}, set())
    assert kept({1, 2}, set(), {1}) == ({2}, {2})
