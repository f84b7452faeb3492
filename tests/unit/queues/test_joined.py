"""Queues of joined hosts: the same definitions everywhere, each message once, at any cuts of connections."""

from __future__ import annotations

import random
from decimal import Decimal

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.amqp.field_tables import wire_tables

from treecast.middleware.api.entries import binding_ends
from treecast.middleware.broker.queues import (
    Ask,
    Destination,
    Part,
    Policy,
    QueueCall,
    Refusal,
    RemoteQueue,
    messages,
)
from treecast.middleware.broker.queues.elsewhere import HandedOut, read_deliveries
from treecast.middleware.broker.queues.entries import Bound, Declared, encoded
from treecast.middleware.broker.queues.shared import bound_key, declared_key, read
from treecast.middleware.broker.queues.spool import entries_of
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.timers import NEVER
from treecast.shims.amqp.codec_methods import read_table

from .host import Headers, run
from .joined_hosts import Asked, Host, Net, Taker


def pair() -> tuple[Net, Host, Host]:
    net = Net()
    return net, net.add(1), net.add(2)


def with_stand_in() -> tuple[Net, Host, Host, RemoteQueue]:
    """Two hosts, and the stand-in at the second one for queue `q` of the first."""
    net, one, two = pair()
    one.vhost.queue_definitions.declare(b"q")
    net.settle()
    queue = two.vhost.queues[b"q"]
    assert isinstance(queue, RemoteQueue)
    return net, one, two, queue


def shape(host: Host) -> object:
    """The definitions as a host has them, without where queues are."""
    vhost = host.vhost
    return (
        {name: exchange.definition for name, exchange in vhost.exchanges.items()},
        {name: queue.definition for name, queue in vhost.queues.items()},
        {(name, key) for name, exchange in vhost.exchanges.items() for key in exchange.bindings},
        dict(vhost.policies.users),
    )


def body_of(part: Part) -> bytes:
    """The body of a part of one message."""
    ((_, body),) = messages(part.data())
    return body


def home(host: Host, name: bytes) -> int:
    return host.vhost.queues[name].home or host.number


# --- definitions


def test_a_definition_is_known_everywhere_before_its_answer() -> None:
    net, one, two = pair()
    one.vhost.exchange_definitions.declare(b"x", "topic")
    one.vhost.queue_definitions.declare(b"q", arguments={"x-max-length": 3})
    one.vhost.bindings.bind(b"x", Destination(b"q", False), b"a.#")
    one.vhost.policies.set(Policy("p", "q", {"message-ttl": 7}, 0, "queues"), 0.0)
    shared = one.joined.definitions
    assert shared.known < shared.version
    net.settle()
    assert shared.known == shared.version
    assert shape(one) == shape(two)
    assert isinstance(two.vhost.queues[b"q"], RemoteQueue)
    assert two.vhost.queues[b"q"].arguments.message_ttl == 7
    late = net.add(3)
    assert shape(late) == shape(one)
    two.vhost.exchange_definitions.delete(b"x")
    two.vhost.policies.delete("p", 0.0)
    net.settle()
    assert shape(one) == shape(two) == shape(late)
    assert b"x" not in one.vhost.exchanges


def test_the_messages_of_a_queue_that_was_declared_twice_come_together() -> None:
    net, one, two = pair()
    net.coordinator_away = True
    for host in (one, two):
        host.vhost.queue_definitions.declare(b"q")
        host.publish(run(b"of %d" % host.number))
    loser = two.consume(b"q", 0)
    net.settle()
    net.coordinator_away = False
    net.settle()
    assert (home(one, b"q"), home(two, b"q")) == (1, 1)
    assert loser.gone
    assert sorted(one.consume(b"q").bodies) == [b"of 1", b"of 2"]


def test_a_consumer_accepted_in_a_later_connection_is_refused() -> None:
    """A call waits for a connection, and so may arrive after the loss of the one that it was made for."""
    net, one, two, queue = with_stand_in()
    asked = Asked()
    two.joined.ask(queue, QueueCall(Ask.CONSUME, "/", b"q", two.joined.new_number()), asked)
    two.joined.host_down(1)
    two.joined.host_up(1)
    net.settle()
    assert asked.answer is not None
    assert asked.answer.reason == "NOT_FOUND"
    assert len(one.vhost.queues[b"q"].consumers) == 0
    one.publish(run(b"m"))
    assert two.consume(b"q").bodies == [b"m"]


def test_deleting_a_virtual_host_deletes_its_queues_of_all_hosts() -> None:
    net, one, two = pair()
    for host in (one, two):
        vhost = host.add_vhost("v")
        host.joined.definitions.use(vhost)
        vhost.ledger.sharing.declared("vhost", b"", {})
        vhost.queue_definitions.declare(b"q%d" % host.number)
        vhost.policies.set(Policy("p", "q", {"message-ttl": 7}, 0, "queues"), 0.0)
    net.settle()
    one.remove_vhost("v")
    net.settle()
    assert "v" not in two.vhosts
    assert "v" not in one.vhosts
    assert [key for key in net.entries if "v" in key.partition(":")[2].split("/")[0]] == []


def test_an_exchange_that_was_declared_differently_is_the_first_ones() -> None:
    net, one, two = pair()
    net.coordinator_away = True
    one.vhost.exchange_definitions.declare(b"x", "topic")
    two.vhost.exchange_definitions.declare(b"x", "fanout")
    two.vhost.queue_definitions.declare(b"q")
    two.vhost.bindings.bind(b"x", Destination(b"q", False), b"a.*")
    net.coordinator_away = False
    net.settle()
    assert shape(one) == shape(two)
    assert one.publish(run(b"m", exchange="x", key="a.b"))
    assert not one.publish(run(b"m", exchange="x", key="b"))


def test_a_transient_queue_ends_with_its_host() -> None:
    net, one, two = pair()
    one.vhost.queue_definitions.declare(b"mine", exclusive=True, owner=one)
    one.vhost.bindings.bind(b"amq.fanout", Destination(b"mine", False), b"", None, one)
    net.settle()
    with pytest.raises(Refusal, match="locked"):
        two.vhost.router.owned(b"mine", two)
    net.cut(1, 2)
    del net.hosts[1]
    net.down.clear()
    again = net.add(1)
    net.settle()
    assert b"mine" not in two.vhost.queues
    assert b"mine" not in again.vhost.queues
    assert not [key for key in net.entries if key.startswith("5:")]


def test_a_queue_that_gets_its_definition_back_keeps_its_bindings() -> None:
    """The second host declares and deletes a queue before it knows that the first has one of that name."""
    net, one, two = pair()
    net.coordinator_away = True
    one.vhost.queue_definitions.declare(b"q")
    one.vhost.bindings.bind(b"amq.fanout", Destination(b"q", False), b"")
    net.settle()
    two.vhost.queue_definitions.declare(b"q")
    two.vhost.queue_definitions.delete(b"q", None)
    net.settle()
    net.coordinator_away = False
    net.settle()
    assert shape(one) == shape(two)
    assert two.publish(run(b"m", exchange="amq.fanout", key=""))
    net.settle()
    assert one.consume(b"q").bodies == [b"m"]


NAMES = (b"a", b"b")


# A binding of an auto-delete exchange to a queue that the other host deletes at the same time.
BOUND_TO_THE_DELETED = [(0, 0, 1, False), (0, 2, 0, True), (0, 3, 0, False), (1, 4, 1, False)]


@settings(max_examples=150, deadline=None)
@example([(0, 0, 0, True), *BOUND_TO_THE_DELETED])
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 7), st.integers(0, 1), st.booleans()), max_size=25)
)
def test_definitions_are_equal_after_any_changes(steps: list[tuple[int, int, int, bool]]) -> None:
    net, one, two = pair()
    for who, what, which, settle in steps:
        vhost, name = net.hosts[who + 1].vhost, NAMES[which]
        try:
            if what == 0:
                vhost.exchange_definitions.declare(
                    name, "fanout" if who else "direct", auto_delete=which == 1
                )
            elif what == 1:
                vhost.exchange_definitions.delete(name)
            elif what == 2:
                vhost.queue_definitions.declare(name)
            elif what == 3 and name in vhost.queues and vhost.queues[name].home == 0:
                vhost.queue_definitions.delete(name, None)
            elif what == 4:
                vhost.bindings.bind(name, Destination(NAMES[0], False), b"k")
            elif what == 5:
                vhost.bindings.unbind(name, Destination(NAMES[0], False), b"k")
            elif what == 6:  # the first one also to itself
                vhost.bindings.bind(name, Destination(NAMES[0], True), b"k")
            elif what == 7:
                vhost.bindings.unbind(name, Destination(NAMES[0], True), b"k")
        except Refusal:
            pass
        if settle:
            net.step()
    net.settle()
    third = net.add(3)
    assert shape(one) == shape(two) == shape(third)
    assert all(end in net.entries for key in net.entries for end in binding_ends(key))
    net.coordinator.check_invariants()
    assert all(host.joined.definitions.known == host.joined.definitions.version for host in (one, two))
    for name in one.vhost.queues:
        assert home(one, name) == home(two, name) == home(third, name)


# --- messages


def test_a_publish_is_matched_once_and_goes_to_each_home_once() -> None:
    net, one, two = pair()
    third = net.add(3)
    third.vhost.exchange_definitions.declare(b"x", "fanout")
    for host, name in ((one, b"1"), (two, b"2a"), (two, b"2b")):
        host.vhost.queue_definitions.declare(name)
        net.settle()
        third.vhost.bindings.bind(b"x", Destination(name, False), b"")
    net.settle()
    assert third.publish(run(b"m", b"n", exchange="x"))
    assert third.joined.spools.waiting == 2
    net.settle()
    assert third.joined.spools.waiting == 0
    assert [host.vhost.queues[name].ready for host, name in ((one, b"1"), (two, b"2a"), (two, b"2b"))] == [
        2
    ] * 3


def test_a_dead_letter_reaches_a_queue_of_another_host() -> None:
    net, one, two = pair()
    two.vhost.queue_definitions.declare(b"dead")
    one.vhost.queue_definitions.declare(
        b"q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    net.settle()
    one.publish(run(b"m"))
    part = one.vhost.queues[b"q"].get(0.0, False)
    assert part is not None
    one.vhost.queues[b"q"].reject(part, 0, 1, None, 0.0)
    one.vhost.settle_up(0.0)
    net.settle()
    (got,) = two.consume(b"dead").runs
    assert [(death.queue, death.reason) for death in got.deaths] == [(b"q", "rejected")]


def test_a_home_that_does_not_take_messages_yet_is_asked_again() -> None:
    net, one, two = pair()
    one.vhost.queue_definitions.declare(b"q")
    net.settle()
    one.refuses = True
    two.publish(run(b"m"))
    two.joined.send()
    two.publish(run(b"n"))  # a second call must not be taken before the first
    two.joined.send()
    assert net.step()
    one.refuses = False
    net.settle()
    assert two.joined.spools.waiting == 2
    two.joined.now = 0.1
    two.joined.tick()
    net.settle()
    assert one.vhost.queues[b"q"].ready == 0  # it is too soon
    two.joined.now = 1.0
    two.joined.tick()
    net.settle()
    assert (one.vhost.queues[b"q"].ready, two.joined.spools.waiting) == (2, 0)
    assert one.consume(b"q").bodies == [b"m", b"n"]


@pytest.mark.parametrize("seed", range(40))
def test_each_message_comes_once_and_in_order_at_any_cuts(seed: int) -> None:
    rng = random.Random(seed)
    net, one, two = pair()
    one.vhost.queue_definitions.declare(b"q")
    net.settle()
    for number in range(60):
        two.publish(run(b"%d" % number, persistent=rng.random() < 0.7))
        for _ in range(rng.randrange(3)):
            net.step()
        if rng.random() < 0.15:
            net.cut(1, 2)
        elif net.down and rng.random() < 0.5:
            net.mend(1, 2)
    if net.down:
        net.mend(1, 2)
    two.joined.now = 10.0
    two.joined.tick()
    net.settle()
    assert one.consume(b"q").bodies == [b"%d" % number for number in range(60)]


@pytest.mark.parametrize("persistent", [False, True])
def test_only_persistent_messages_of_another_host_wait_for_the_store(
    persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, one, two = pair()
    one.vhost.queue_definitions.declare(b"q")
    net.settle()
    bodies: list[bytes] = []
    monkeypatch.setattr(two, "carry", lambda host, number, body: bodies.append(body))
    two.publish(run(b"m", persistent=persistent))
    two.joined.send()
    assert one.joined.arrived(2, bodies[0]) is persistent
    assert one.joined.arrived(2, bodies[0]) is persistent  # again, as the first answer was an error
    assert one.vhost.queues[b"q"].ready == 1


# --- consumers


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_or_settled_twice_by_far_consumers(seed: int) -> None:
    rng = random.Random(seed)
    net, one, two = pair()
    one.vhost.queue_definitions.declare(b"q")
    net.settle()
    bodies = [b"%d" % number for number in range(40)]
    for body in bodies:
        one.publish(run(body))
    done: list[bytes] = []
    while len(done) < len(bodies):
        taker = two.consume(b"q", rng.choice((1, 3, 1000)))
        for _ in range(rng.randrange(1, 12)):
            if not taker.parts:
                break
            assert taker.unsettled <= taker.prefetch
            part = taker.parts.pop(rng.randrange(len(taker.parts)))
            _settle_some(rng, taker, part, done)
            net.settle()
        if rng.random() < 0.5:
            net.cut(1, 2)
            assert taker.gone
            net.mend(1, 2)
        else:
            two.vhost.cancel(taker.queue, taker, 0.0)
            for part in taker.parts:
                taker.queue.requeue(part, 0, part.count, taker, 0.0, failed=True)
        net.settle()
    queue = one.vhost.queues[b"q"]
    assert sorted(done) == sorted(bodies)
    assert (queue.ready, queue.unsettled, len(queue.consumers)) == (0, 0, 0)


def _settle_some(rng: random.Random, taker: Taker, part: Part, done: list[bytes]) -> None:
    for offset, (_, body) in enumerate(messages(part.data())):
        if rng.random() < 0.6:
            done.append(body)
            taker.queue.settle(part, offset, 1, taker)
        else:
            taker.queue.requeue(part, offset, 1, taker, 0.0, failed=rng.random() < 0.5)


def test_calls_about_a_queue_of_another_host() -> None:
    net, one, two = pair()
    one.vhost.queue_definitions.declare(b"q")
    net.settle()
    one.publish(run(b"a", b"b"))
    counted = two.ask(b"q", Ask.COUNT)
    assert counted.answer is not None
    assert (counted.answer.messages, counted.answer.consumers) == (2, 0)
    (part,) = two.ask(b"q", Ask.GET, consumer=two.joined.new_number()).parts
    queue = two.vhost.queues[b"q"]
    queue.requeue(part, 0, 1, None, 0.0, failed=False)
    net.settle()
    (part,) = two.ask(b"q", Ask.GET, consumer=two.joined.new_number()).parts
    assert part.redelivered
    queue.settle(part, 0, 1, None)
    net.settle()
    assert (one.vhost.queues[b"q"].ready, one.vhost.queues[b"q"].unsettled) == (1, 0)
    refused = two.ask(b"q", Ask.DELETE, if_empty=True).answer
    assert refused is not None
    assert refused.reason == "PRECONDITION_FAILED"
    purged = two.ask(b"q", Ask.PURGE).answer
    assert purged is not None
    assert purged.messages == 1
    two.ask(b"q", Ask.DELETE)
    assert b"q" not in two.vhost.queues
    one.vhost.queue_definitions.declare(b"q")
    net.settle()
    net.cut(1, 2)
    with pytest.raises(
        Refusal, match="home node 'h1' of durable queue 'q' in vhost '/' is down or inaccessible"
    ):
        two.ask(b"q", Ask.COUNT)


def test_a_call_comes_after_what_was_settled_before() -> None:
    """A client that does not wait for anything between basic.nack and basic.get gets the message again."""
    _, one, two, queue = with_stand_in()
    one.publish(run(b"a", b"b"))
    (part,) = two.ask(b"q", Ask.GET, consumer=two.joined.new_number()).parts
    queue.requeue(part, 0, 1, None, 0.0, failed=False)
    (part,) = two.ask(b"q", Ask.GET, consumer=two.joined.new_number()).parts
    assert (body_of(part), part.redelivered) == (b"a", True)
    queue.settle(part, 0, 1, None)
    counted = two.ask(b"q", Ask.COUNT).answer
    assert counted is not None
    assert counted.messages == 1
    assert one.vhost.queues[b"q"].unsettled == 0


def test_a_call_that_was_not_sent_yet_is_answered_if_its_host_goes_away() -> None:
    net, _, two, queue = with_stand_in()
    asked = Asked()
    two.joined.ask(queue, QueueCall(Ask.COUNT, "/", b"q"), asked)
    net.cut(1, 2)
    net.settle()
    assert asked.answer is not None
    assert asked.answer.reason == "NOT_FOUND"


def test_what_was_got_too_late_returns_to_its_queue_at_once() -> None:
    """The home cannot know that nobody has seen it: it is redelivered with the flag."""
    net, one, two = pair()
    one.vhost.queue_definitions.declare(b"q")
    net.settle()
    one.publish(run(b"a", b"b"))
    two.impatient = True
    late = two.ask(b"q", Ask.GET, consumer=two.joined.new_number())
    assert late.answer is not None
    assert (late.answer.reason, late.parts) == ("NOT_FOUND", [])
    queue = one.vhost.queues[b"q"]
    assert (queue.ready, queue.unsettled) == (2, 0)
    two.impatient = False
    (part,) = two.ask(b"q", Ask.GET, consumer=two.joined.new_number()).parts
    assert (body_of(part), part.redelivered) == (b"a", True)
    assert (queue.ready, queue.unsettled) == (1, 1)


# --- codecs


@given(wire_tables)
def test_definitions_with_any_fields_are_told_as_they_are(data: bytes) -> None:
    table = read_table(data)
    bound = Bound("/", b"x", "queue", b"q", b"k", table)
    declared = Declared("/", "exchange", b"x", 0, {"type": "headers", "arguments": table})
    assert repr(read(bound_key(bound), encoded(bound))) == repr(bound)
    assert repr(read(declared_key("/", "exchange", b"x"), encoded(declared))) == repr(declared)


def test_a_binding_matches_and_is_unbound_at_every_host_whatever_its_arguments() -> None:
    net, one, two = pair()
    one.vhost.exchange_definitions.declare(b"h", "headers")
    one.vhost.queue_definitions.declare(b"q")
    net.settle()
    for value in (Decimal("1.50"), bytearray(b"\xff"), bytearray(b"text"), b"\xff", [Decimal(1)], 1.0, None):
        arguments = {"v": value}
        one.vhost.bindings.bind(b"h", Destination(b"q", False), b"", arguments)
        net.settle()
        for host in (one, two):
            host.vhost.router.reader = Headers({b"m": arguments})
            assert [queue.name for queue in host.vhost.route(run(b"m", exchange="h"))] == [b"q"], value
        two.vhost.bindings.unbind(b"h", Destination(b"q", False), b"", arguments)
        net.settle()
        assert not one.vhost.exchanges[b"h"].bindings
    assert not [key for key in net.entries if key.startswith("5:")]


def test_keys_name_their_definitions() -> None:
    declared = Declared("v/1", "queue", b"a/b", 0, {"durable": True})
    key = declared_key("v/1", "queue", b"a/b")
    assert key == "4:v%2F1/a%2Fb"
    assert read(key, msgspec.msgpack.encode(declared)) == declared
    bound = Bound("/", b"x", "queue", b"q", b"k", {"x-match": "all"})
    assert read(bound_key(bound), msgspec.msgpack.encode(bound)) == bound
    with pytest.raises(ValueError, match="it is the definition of 4:"):
        read("4:other/q", msgspec.msgpack.encode(declared))


@given(st.binary(max_size=80))
def test_wrong_bytes_of_other_hosts_are_refused(data: bytes) -> None:
    for what in (entries_of, lambda given: read_deliveries(1, given)):
        try:
            what(data)
        except TreecastError:
            continue


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=30))
def test_handed_out_is_settled_once(ranges: list[tuple[int, int]]) -> None:
    handed = HandedOut()
    for first, count in ((0, 7), (7, 1), (8, 20), (28, 2)):
        handed.add(Part(None, 1, 0, 0, count, count, first, NEVER, 0))
    left = set(range(30))
    for first, count in ranges:
        taken = [
            part.position + offset + n
            for part, offset, length in handed.take(first, count)
            for n in range(length)
        ]
        assert sorted(taken) == sorted(left & set(range(first, first + count)))
        left -= set(taken)
    rest = [part.position + offset + n for part, offset, length in handed.clear() for n in range(length)]
    assert rest == sorted(left)
