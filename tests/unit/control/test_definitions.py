"""Definitions of AMQP at the coordinator: no binding without both its ends, whatever the order of changes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.control.test_state import SETTINGS, attached

from treecast.middleware.api.entries import binding_ends
from treecast.middleware.broker.queues.entries import Bound
from treecast.middleware.broker.queues.shared import bound_key, declared_key
from treecast.middleware.control import commands
from treecast.middleware.control.cluster_state import ClusterState
from treecast.middleware.control.commands import DefinitionWrite as Write
from treecast.middleware.control.state import step

VHOST = "a/b"  # what keys have to quote
EXCHANGES = (b"x/1", b"amq.topic")
QUEUES = (b"q/1", b"q 2")


def binding(source: bytes, kind: str, name: bytes) -> str:
    return bound_key(Bound(VHOST, source, kind, name, b"a/#", {}))


BINDINGS = [
    *(binding(source, "queue", name) for source in EXCHANGES for name in QUEUES),
    binding(EXCHANGES[0], "exchange", EXCHANGES[0]),
    binding(b"amq.fanout", "exchange", EXCHANGES[0]),
    binding(EXCHANGES[0], "exchange", b"amq.fanout"),
]
EXCHANGE = declared_key(VHOST, "exchange", EXCHANGES[0])
QUEUE_KEYS = [declared_key(VHOST, "queue", name) for name in QUEUES]
KEYS = [EXCHANGE, *QUEUE_KEYS, *BINDINGS]


def test_the_ends_of_a_binding_are_the_keys_of_their_definitions() -> None:
    assert binding_ends(BINDINGS[0]) == (EXCHANGE, QUEUE_KEYS[0])
    assert binding_ends(binding(b"amq.topic", "queue", QUEUES[1])) == (QUEUE_KEYS[1],)
    assert (
        binding_ends(BINDINGS[-1]) == binding_ends(BINDINGS[-2]) == binding_ends(BINDINGS[-3]) == (EXCHANGE,)
    )
    assert binding_ends(binding(b"amq.topic", "exchange", b"amq.fanout")) == ()
    assert binding_ends(binding(b"amq.topic", "queue", b"amq.gen-x")) != ()
    for other in (EXCHANGE, *QUEUE_KEYS, declared_key(VHOST, "policy", b"p"), "5:", "5:a/b/c/d", ""):
        assert binding_ends(other) == ()


def reference(known: dict[str, bytes], writes: list[Write]) -> None:
    """The rule, plainly: after each write, bindings without an end are gone."""
    for write in writes:
        if write.value is None:
            known.pop(write.key, None)
        elif write.replace or write.key not in known:
            known[write.key] = write.value
        for key in list(known):
            if any(end not in known for end in binding_ends(key)):
                del known[key]


one_write = st.builds(Write, st.sampled_from(KEYS), st.sampled_from([None, b"1", b"1", b"2"]), st.booleans())


@given(st.lists(st.tuples(st.booleans(), st.lists(one_write, max_size=6)), max_size=20))
def test_no_binding_is_kept_without_its_ends(calls: list[tuple[bool, list[Write]]]) -> None:
    state, known = ClusterState(SETTINGS), dict[str, bytes]()
    hosts = [attached(state, name) for name in ("one", "two")]
    for which, writes in calls:
        step(state, commands.PutDefinitions(hosts[which], tuple(writes)))
        reference(known, writes)
        found = {key: entry.value for key in KEYS if (entry := state.definition(key)) is not None}
        assert found == known
        state.check_invariants()


@pytest.mark.parametrize("order", set(itertools.permutations("bdx")))
def test_a_queue_deleted_while_it_is_bound(order: tuple[str, ...]) -> None:
    """Host one deletes the queue and what it knows; host two binds it, and so does host three."""
    state = ClusterState(SETTINGS)
    one, two, three = [attached(state, name) for name in ("one", "two", "three")]
    step(state, commands.PutDefinitions(one, (Write(EXCHANGE, b"x"), Write(QUEUE_KEYS[0], b"q"))))
    calls = {
        "d": commands.PutDefinitions(one, (Write(QUEUE_KEYS[0], None),)),
        "b": commands.PutDefinitions(two, (Write(BINDINGS[0], b"b"),)),
        "x": commands.PutDefinitions(three, (Write(binding(b"amq.topic", "queue", QUEUES[0]), b"b"),)),
    }
    for what in order:
        step(state, calls[what])
    assert [key for key in KEYS if state.definition(key) is not None] == [EXCHANGE]
    state.check_invariants()
