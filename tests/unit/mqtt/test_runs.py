"""QoS 1 publishes by whole chunks and message by message give the same bytes on every connection.

Two hosts get the same input. One gets it in chunks that are cut anywhere; the other packet by packet, so that
it never has a run of QoS 1 or a range of packet ids in flight, and serves as the plain reference.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.mqtt.face import Client, MemoryHost, packets_of

from treecast.middleware.broker.pubsub import PubSubSettings, QueuePolicy
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Ack, FilterRequest, Packet, Ping, Publish, Subscribe, encode
from treecast.shims.mqtt.codec_properties import NONE, Properties
from treecast.shims.mqtt.deliveries import InFlight
from treecast.shims.mqtt.settings import MqttSettings

LASTING = 1000
Spec = tuple[int, int, int, bool, dict[str, object]]  # version, granted QoS, window, lasting, options
MARKED = Properties(user=(("k", "v"),))


class Half:
    """One of the two hosts, and its clients by name."""

    def __init__(self, host: MemoryHost, by_chunk: bool) -> None:
        self.host = host
        self.by_chunk = by_chunk
        self.clients: dict[str, Client] = {}
        self.got: dict[str, bytes] = {}

    def connect(self, name: str, spec: Spec) -> None:
        version, _, window, lasting, options = spec
        given: dict[str, object] = {}
        if version == V5:
            given = {"receive_maximum": window} | ({"session_expiry": LASTING} if lasting else {}) | options
            given = {key: value for key, value in given.items() if key not in ("identifier", "no_local")}
        client = self.host.client(version)
        client.connect(name, clean=not lasting, **given)
        self.clients[name] = client
        self.got[name] = b""
        self.collect()

    def subscribe(self, name: str, filter: bytes, spec: Spec) -> None:
        _, qos, _, _, options = spec
        identifier = options.get("identifier")
        request = FilterRequest(filter, qos, bool(options.get("no_local")))
        given = Properties(subscription_ids=(identifier,)) if isinstance(identifier, int) else NONE
        self.clients[name].send(Subscribe(9, (request,), given))

    def say(self, name: str, packets: list[Packet], cuts: list[int]) -> None:
        client = self.clients[name]
        parts = [encode(packet, client.version) for packet in packets]
        if not self.by_chunk:
            for part in parts:
                client.send_bytes(part)
            return
        data = b"".join(parts)
        at = 0
        for cut in sorted({cut % (len(data) + 1) for cut in cuts}):
            client.send_bytes(data[at:cut])
            at = cut
        if at < len(data):
            client.send_bytes(data[at:])

    def collect(self) -> None:
        """Ends the turn and collects the output."""
        self.host.end_turn()
        for name, client in self.clients.items():
            self.got[name] += client.got_bytes()

    def state(self) -> list[object]:
        """Returns the values that metrics and listings show."""
        hub, counters = self.host.hub, self.host.counters
        found: list[object] = [
            (state.client_id, state.queued, len(state.inflight or ()), state.ready)
            for state in self.host.sessions.states()
        ]
        found += [client.session.output.sent_messages for client in self.clients.values()]
        found += [client.session.output.failure for client in self.clients.values()]
        counting = self.host.counting
        return [
            *found,
            *(counting.publishes_in, counting.acks_in, counting._others),
            *(hub.published, hub.unmatched, counters.published, counters.unmatched),
            *(counters.dropped_full, counters.dropped_large, counters.expired),
        ]

    def unsettled(self) -> dict[str, list[object]]:
        """Returns unsettled messages by client, without runs of QoS 0."""
        return {
            state.client_id: [
                (d.packet_id, d.qos, d.state, d.message.payload) for d in state.unsettled() if d.qos
            ]
            for state in self.host.sessions.states()
        }


class Twins:
    """Both hosts. `begin_at`: the packet id after which all subscribers' ids continue."""

    def __init__(self, hosts: tuple[MemoryHost, MemoryHost], specs: list[Spec], begin_at: int) -> None:
        self.halves = [Half(hosts[0], True), Half(hosts[1], False)]
        self.specs = {f"s{number}": spec for number, spec in enumerate(specs)}
        self.specs |= {"p4": (V311, 1, 100, False, {}), "p5": (V5, 1, 100, False, {})}
        self.next_id = 0
        self.waiting: dict[str, list[Publish]] = {}  # by client: the messages that it has to acknowledge
        self.read: dict[str, int] = {}
        for name, spec in self.specs.items():
            self.each(partial(Half.connect, name=name, spec=spec))
            self.read[name], self.waiting[name] = 0, []
        for name, spec in list(self.specs.items())[: len(specs)]:
            filter = (b"a/#", b"#", b"a/+")[int(name[1]) % 3]
            self.each(partial(Half.subscribe, name=name, filter=filter, spec=spec))
            for half in self.halves:
                state = half.clients[name].state
                assert state is not None
                state.inflight = InFlight()
                state.inflight._last_id = begin_at
        self.turn()

    def each(self, done: Callable[[Half], None]) -> None:
        for half in self.halves:
            done(half)

    def turn(self) -> None:
        """Ends the turn, compares both hosts, and reads the subscribers' packets."""
        self.each(Half.collect)
        one, other = self.halves
        assert one.got == other.got
        assert one.state() == other.state()
        for state in other.host.sessions.states():
            assert state.inflight is None or not state.inflight._parts  # the plain host has no ranges
        for name, data in one.got.items():
            packets = packets_of(data[self.read[name] :], self.specs[name][0])
            self.read[name] = len(data)
            self.waiting[name] += [p for p in packets if isinstance(p, Publish) and p.qos]
            releases = [p for p in packets if isinstance(p, Ack) and p.kind == codec.PUBREL]
            if releases and not one.clients[name].session.output.closing:
                answers: list[Packet] = [Ack(codec.PUBCOMP, p.packet_id) for p in releases]
                self.each(partial(Half.say, name=name, packets=answers, cuts=[]))

    def say(self, name: str, packets: list[Packet], cuts: list[int]) -> None:
        self.each(lambda half: half.say(name, packets, cuts))

    # --- steps

    def publish(self, name: str, what: list[tuple[bytes, bytes, int, int]], cuts: list[int]) -> None:
        """`what`: topic, payload, QoS, and a special form (1: retained, 2: a duplicate, 3: properties)."""
        packets: list[Packet] = []
        for topic, payload, qos, special in what:
            self.next_id = self.next_id % 65535 + 1
            packet_id = self.next_id if qos else 0
            given = MARKED if special == 3 and self.specs[name][0] == V5 else NONE
            again = special == 2 and qos > 0
            packets.append(Publish(topic, payload, qos, special == 1, again, packet_id, given))
            if qos == 2:
                packets.append(Ack(codec.PUBREL, packet_id))
        if cuts and cuts[0] % 5 == 0:
            packets.insert(len(packets) // 2, Ping(codec.PINGREQ))
        self.say(name, packets, cuts)

    def acknowledge(self, name: str, order: list[int], cuts: list[int]) -> None:
        """Acknowledges messages from the head, and some later ones that `order` selects."""
        waiting = self.waiting[name]
        chosen = waiting[: len(order) * 2]
        del waiting[: len(order) * 2]
        for number in order:
            if waiting and number % 3 == 0:
                chosen.insert(number % (len(chosen) + 1), waiting.pop(number % len(waiting)))
        kinds = {1: codec.PUBACK, 2: codec.PUBREC}
        packets: list[Packet] = [Ack(kinds[p.qos], p.packet_id) for p in chosen]
        if order and order[0] % 7 == 0:
            packets.append(Ack(codec.PUBACK, 40_000))  # an unknown id
        if order and order[0] % 11 == 0:
            packets += packets[:2]  # a repeat
        if not self.halves[0].clients[name].session.output.closing:
            self.say(name, packets, cuts)

    def congest(self, name: str, congested: bool) -> None:
        for half in self.halves:
            session = half.clients[name].session
            session.output.congest(congested)
            if not congested and session.connection.has_session:
                session.connection.resume()

    def come_back(self, name: str, version: int, window: int) -> None:
        """Breaks the connection and connects again, perhaps with another version."""
        _, qos, _, lasting, options = self.specs[name]
        spec = (version, qos, window, lasting, options)
        self.turn()
        for half in self.halves:
            if window % 2:
                half.clients[name].drop()
            half.connect(name, spec)
        self.specs[name] = spec
        self.read[name], self.waiting[name] = 0, []
        if not lasting:
            self.each(lambda half: half.subscribe(name, b"a/#", spec))


topics = st.sampled_from([b"a/1", b"a/1", b"a/2", b"a/1/2", b"b"])
messages = st.tuples(
    topics,
    st.one_of(st.binary(max_size=12), st.just(b"x" * 120)),
    st.sampled_from([1, 1, 1, 1, 0, 2]),
    st.sampled_from([0] * 9 + [1, 2, 3]),
)
promised = st.tuples(topics, st.binary(max_size=12), st.sampled_from([1, 1, 1, 2]), st.just(0))
cuts = st.lists(st.integers(0, 2000), max_size=3)
options = st.sampled_from(
    [
        {},
        {},
        {},
        {"identifier": 7},
        {"no_local": True},
        {"topic_alias_maximum": 2},
        {"maximum_packet_size": 60},
    ]
)
specs = st.lists(
    st.tuples(
        st.sampled_from([V311, V5]),
        st.sampled_from([1, 1, 0, 2]),
        st.sampled_from([1, 3, 20, 200]),
        st.booleans(),
        options,
    ),
    min_size=1,
    max_size=4,
)
names = st.sampled_from(["s0", "s1", "s2", "s3"])


def steps(
    message: st.SearchStrategy[tuple[bytes, bytes, int, int]],
) -> st.SearchStrategy[list[tuple[object, ...]]]:
    publisher = st.sampled_from(["p4", "p4", "p5", "p5", "s0"])
    published = st.lists(message, min_size=1, max_size=25)
    return st.lists(
        st.one_of(
            st.tuples(st.just("publish"), publisher, published, cuts),
            st.tuples(st.just("publish"), publisher, published, cuts),
            st.tuples(st.just("acknowledge"), names, st.lists(st.integers(0, 50), max_size=8), cuts),
            st.tuples(st.just("acknowledge"), names, st.lists(st.integers(0, 50), max_size=8), cuts),
            st.tuples(st.just("turn")),
            st.tuples(st.just("congest"), names, st.booleans()),
            st.tuples(
                st.just("come_back"), names, st.sampled_from([V311, V5]), st.sampled_from([3, 20, 200])
            ),
        ),
        max_size=14,
    )


def drive(twins: Twins, done: list[tuple[object, ...]]) -> None:
    for step in done:
        if len(step) > 1 and step[1] not in twins.specs:
            continue
        getattr(twins, str(step[0]))(*step[1:])
    for name in twins.specs:
        twins.congest(name, False)
    twins.turn()
    one, other = twins.halves
    assert one.unsettled() == other.unsettled()
    for name in twins.specs:
        twins.acknowledge(name, list(range(60)), [])
    twins.turn()


SETTINGS = MqttSettings(send_maximum=10)


@given(specs, st.sampled_from([0, 0, 65_530, 65_500]), steps(messages))
@settings(max_examples=120)
def test_chunks_and_packets_come_to_the_same(
    found: list[Spec], begin_at: int, done: list[tuple[object, ...]]
) -> None:
    drive(Twins((MemoryHost(SETTINGS), MemoryHost(SETTINGS)), found, begin_at), done)


@given(specs, st.sampled_from(QueuePolicy), st.sampled_from([200, 400, 10_000]), steps(promised))
@settings(max_examples=80)
def test_they_do_where_queues_are_full_as_well(
    found: list[Spec], policy: QueuePolicy, size: int, done: list[tuple[object, ...]]
) -> None:
    """QoS 0 is left out, as its runs are queued or dropped as a whole."""
    bounds = PubSubSettings(queue_policy=policy, queue_messages=30, queue_bytes=size)
    hosts = MemoryHost(SETTINGS, bounds), MemoryHost(SETTINGS, bounds)
    drive(Twins(hosts, found, 0), done)


@given(specs, steps(messages))
@settings(max_examples=25)
def test_they_do_with_a_journal(found: list[Spec], done: list[tuple[object, ...]]) -> None:
    """Lasting sessions are then durable, and get single messages beside others that get runs."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = tuple(MemoryHost(SETTINGS, data=Path(folder) / name) for name in ("one", "other"))
        assert len(hosts) == 2
        twins = Twins(hosts, found, 0)
        drive(twins, done)
        kept = []
        for host in hosts:
            host.crash()
            kept.append(
                [(s.client_id, [d.message.payload for d in s.unsettled()]) for s in host.sessions.states()]
            )
            assert host.hub.journal is not None
            host.hub.journal.close()
        assert kept[0] == kept[1]


KINDS: list[Spec] = [
    (V311, 1, 10, False, {}),
    (V5, 1, 10, False, {}),
    (V5, 2, 200, True, {}),
    (V5, 0, 200, False, {}),
    (V5, 1, 10, False, {"identifier": 7}),
    (V5, 1, 10, False, {"no_local": True}),
    (V5, 1, 10, False, {"topic_alias_maximum": 2}),
    (V5, 1, 200, False, {"maximum_packet_size": 60}),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("publisher", ["p4", "p5", "s0"])
def test_they_do_for_each_kind_of_client(kind: Spec, publisher: str) -> None:
    """Covers a run that fits the window, a larger one, and one that waits; also beside a client that takes
    runs.
    """
    sizes = [3, 25, 7]
    for others in ([], [(V311, 1, 20, False, {})]):
        twins = Twins((MemoryHost(SETTINGS), MemoryHost(SETTINGS)), [kind, *others], 0)
        for size in sizes:
            twins.publish(publisher, [(b"a/1", b"x" * (n % 3 * 40), 1, 0) for n in range(size)], [])
        drive(twins, [("turn",), ("acknowledge", "s0", [5], []), ("acknowledge", "s0", [0, 6, 3], [9])])


# --- the fast path is used


def flood(count: int, size: int = 100, version: int = V311) -> bytes:
    return b"".join(
        encode(Publish(b"t", b"x" * size, 1, packet_id=n % 500 + 1), version) for n in range(count)
    )


def acks(first: int, count: int) -> bytes:
    return b"".join(encode(Ack(codec.PUBACK, first + n), V311) for n in range(count))


@pytest.mark.parametrize("version", [V311, V5])
def test_a_chunk_is_in_flight_as_one_range_and_settled_by_one_chunk(version: int) -> None:
    host = MemoryHost()
    sub, pub = host.connected("s", version), host.connected("p", version)
    sub.subscribe("t", qos=1)
    pub.send_bytes(flood(700, version=version))
    assert [p.packet_id for p in sub.publishes()] == list(range(1, 701))
    assert [p.packet_id for p in pub.got() if isinstance(p, Ack)] == [n % 500 + 1 for n in range(700)]
    state = sub.state
    assert state is not None
    inflight = state.inflight
    assert inflight is not None
    assert (len(inflight), len(inflight._parts), len(inflight._sent)) == (700, 1, 1)
    sub.send_bytes(acks(1, 700))
    assert len(inflight) == 0
    assert host.counting.acks_in == 700


def test_what_the_window_holds_back_waits_as_the_run_that_it_is() -> None:
    host = MemoryHost(MqttSettings(send_maximum=100))
    sub, pub = host.connected("s", V311), host.connected("p", V311)
    sub.subscribe("t", qos=1)
    pub.send_bytes(flood(1000))
    state = sub.state
    assert state is not None
    assert state.queued == 900
    assert len(state._queue or ()) == 1
    first = 1
    while first <= 1000:
        got = sub.publishes()
        assert [p.packet_id for p in got] == list(range(first, first + len(got)))
        assert len(got) <= 100
        for number in range(7):  # in pieces, some of a single acknowledgement
            size = (len(got) + 6) // 7
            sub.send_bytes(acks(first + number * size, max(min(size, len(got) - number * size), 0)))
            assert state.inflight is not None
            assert len(state.inflight._parts) <= 2
        first += len(got)
    sub >> []
    assert state.queued == len(state.inflight or ()) == 0


def test_a_turn_takes_as_much_as_message_by_message() -> None:
    """A turn takes 1 MiB and the message that exceeds it; the rest of the run waits."""
    halves = []
    for by_chunk in (True, False):
        half = Half(MemoryHost(MqttSettings(send_maximum=60_000)), by_chunk)
        half.clients["s"] = half.host.connected("s", V311)
        half.clients["s"].subscribe("t", qos=1)
        half.clients["p"] = half.host.connected("p", V311)
        half.say("p", [Publish(b"t", b"x" * 3000, 1, packet_id=n + 1) for n in range(800)], [1_000_000])
        halves.append(half)
    states = [half.clients["s"].state for half in halves]
    assert [state.queued for state in states if state is not None] == [451, 451]
    assert halves[0].clients["s"].got_bytes() == halves[1].clients["s"].got_bytes()
