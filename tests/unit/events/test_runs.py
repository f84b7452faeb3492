"""Runs between hosts have the same effect as single messages at the receiver. Over kills, loss and changes of
interest each message arrives once, in order, and is accounted for.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.events.test_accounts import closes
from tests.unit.events.test_kills import numbers
from tests.unit.events.world import Client, TestHost, World, until
from tests.unit.mqtt import face

from treecast.middleware.broker.pubsub import (
    Message,
    PromisedRun,
    PublishRun,
    PubSubSettings,
    Run,
    Subscription,
    run_of,
)
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.records import Record
from treecast.middleware.relay.events.batches import Event, RunEvent, batch_of, events_of
from treecast.middleware.wire.mqtt_publish import PLAIN, WITH_PROPERTIES, count_run, topics_of
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Publish, encode
from treecast.shims.mqtt.session_publishing import Scan

Found = list[tuple[bytes, bytes]]  # topic, payload


def run_bytes(found: Found, qos: int, version: int) -> bytes:
    return b"".join(
        encode(Publish(topic, payload, qos, packet_id=number % 65535 + 1 if qos else 0), version)
        for number, (topic, payload) in enumerate(found)
    )


def made(found: Found, qos: int, version: int = V311) -> Run:
    run = run_of(version, run_bytes(found, qos, version))
    assert run is not None
    return run


def publish_run(host: TestHost, found: Found, qos: int, version: int = V311) -> None:
    """Publishes a run, as the face does with a chunk."""
    data = run_bytes(found, qos, version)
    scan, at = Scan(host.hub, version, 1 << 20, 200), 0
    while at < len(data):
        scan.look(data, at, len(data))
        assert scan.targets is not None
        if scan.targets.count:
            run = scan.run(data, at)
            host.hub.publish_run(run, scan.targets, None)
            run.handed_over()
        at = scan.stop


def count_runs(host: TestHost, first: int, count: int, *topics: str, qos: int = 1) -> int:
    """Publishes consecutive numbers in one run. Returns the next number."""
    names = [topic.encode() for topic in topics or ("t",)]
    publish_run(host, [(names[n % len(names)], b"%d" % n) for n in range(first, first + count)], qos)
    return first + count


# --- as bytes

topics = st.sampled_from([b"a/1", b"a/1", b"a/2", b"b", b"a/long/topic/name", "ключ".encode()])
payloads = st.one_of(st.binary(max_size=12), st.sampled_from([b"x" * 120, b"x" * 300]))
founds = st.lists(st.tuples(topics, payloads), min_size=1, max_size=12)
parts = st.lists(st.tuples(founds, st.integers(0, 1), st.sampled_from([V311, V5])), min_size=1, max_size=4)


@given(parts, st.integers(0, 2**40), st.none() | st.just((7, 2**31 + 3)), founds, st.booleans())
@settings(max_examples=60)
def test_runs_become_a_batch_and_runs_again(
    found: list[tuple[Found, int, int]],
    number: int,
    lineage: tuple[int, int] | None,
    singles: Found,
    summed: bool,
) -> None:
    given_parts: list[Message | Run] = [Message(*singles[0])]
    for messages, qos, version in found:
        run = made(messages, qos, version)
        if isinstance(run, PromisedRun):
            run.number = number
        given_parts += [run, Message(*singles[-1])]
    batch = batch_of(given_parts, 1_700_000_000_000, lineage, summed=summed)
    events = events_of(batch)
    assert len(events) == len(given_parts)
    if summed:
        with pytest.raises(TreecastError):
            events_of(batch[:-1] + bytes([batch[-1] ^ 1]))
    for event, part in zip(events, given_parts, strict=True):
        if isinstance(part, Message):
            assert isinstance(event, Event)
            assert (event.message.topic, event.message.payload) == (part.topic, part.payload)
            continue
        assert isinstance(event, RunEvent)
        assert type(event.run) is type(part)
        assert (event.run.data, event.run.format, event.run.count) == (part.data, part.format, part.count)
        if isinstance(part, PromisedRun) and isinstance(event.run, PromisedRun):
            assert event.run.size == part.size
            assert (event.number, event.lineage) == (number, lineage if number else None)
            singly = [one.number for one in event.singly()]
            assert singly == ([number + at for at in range(part.count)] if number else [0] * part.count)


@given(founds, st.integers(0, 1), st.sampled_from([V311, V5]), st.integers(0, 500), st.integers(0, 255))
@settings(max_examples=120)
def test_bytes_that_are_not_a_run_are_refused(
    found: Found, qos: int, version: int, at: int, value: int
) -> None:
    """After any change the bytes are still a run with readable messages, or are refused."""
    data = bytearray(run_bytes(found, qos, version))
    assert count_run(bytes(data), version) == len(found)
    assert topics_of(bytes(data)) == [
        topic for n, (topic, _) in enumerate(found) if n == 0 or found[n - 1][0] != topic
    ]
    data[at % len(data)] = value
    for changed in (bytes(data), bytes(data[: at % len(data)])):
        run = run_of(version, changed)
        if run is not None:
            assert len(run.messages()) == run.count == count_run(changed, version)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (("", b"\x80"), b"\x30\x03\0\1t"),  # no format
        (("", b"\x80\x07"), b"\x30\x03\0\1t"),  # an unknown format
        (("", b"\x80\x04"), b""),
        (("", b"\x80\x04"), b"\x30\x03\0\1"),
        (("", b"\x80\x04"), b"\x31\x03\0\1t"),  # retained
        (("", b"\x81\x04"), b"\x30\x03\0\1t"),  # both QoS 1 and 0
        (("", b"\x90\0\x04"), b"\x30\x03\0\1t"),  # a truncated number
        (("", b"\x82\x04"), b"\x30\x03\0\1t"),
        (("other", b"\x80\x04"), b"\x30\x03\0\1t"),
    ],
)
def test_a_run_that_is_wrong_is_refused(header: tuple[str, bytes], value: bytes) -> None:
    with pytest.raises(TreecastError):
        events_of(build_batch([Record(None, value, (header,), 1)]))


# --- at the receiver, compared with single messages


class Receiver:
    """A host's face in memory, which receives another host's messages."""

    def __init__(self, by_run: bool, folder: Path | None, bounds: PubSubSettings) -> None:
        self.by_run = by_run
        self.host = face.MemoryHost(hub_settings=bounds, data=folder)
        self.clients: dict[str, face.Client] = {}

    def connect(self, name: str, version: int, qos: int, lasting: bool, filter: str, more: int) -> None:
        client = self.host.client(version)
        given: dict[str, object] = {}
        if version == V5:
            given = {"receive_maximum": 20} | ({"session_expiry": 1000} if lasting else {})
        client.connect(name, clean=not lasting, **given)  # type: ignore[arg-type]
        client.subscribe(filter, qos=qos, identifier=more if version == V5 else 0)
        self.clients[name] = client

    def feed(self, found: Found, qos: int, version: int) -> None:
        run = made(found, qos, version)
        if self.by_run:
            self.host.hub.feed_run(run, None)
        else:
            for message in run.messages():
                self.host.hub.feed(message, None)

    def got(self) -> dict[str, list[object]]:
        """Returns each client's packets, as runs of QoS 0 and single messages may be cut into chunks
        differently.
        """
        return {name: list(client.got()) for name, client in self.clients.items()}


specs = st.lists(
    st.tuples(
        st.sampled_from([V311, V5]),
        st.sampled_from([0, 1, 2]),
        st.booleans(),
        st.sampled_from(["a/#", "#", "a/+", "$share/g/a/#"]),
        st.sampled_from([0, 0, 0, 7]),
    ),
    min_size=1,
    max_size=4,
)


@given(specs, parts, st.booleans())
@settings(max_examples=60)
def test_runs_that_arrive_come_to_the_same_as_their_messages(
    found: list[tuple[int, int, bool, str, int]], given_parts: list[tuple[Found, int, int]], journal: bool
) -> None:
    bounds = PubSubSettings()
    with tempfile.TemporaryDirectory() as folder:
        halves = [
            Receiver(by_run, Path(folder) / str(by_run) if journal else None, bounds)
            for by_run in (True, False)
        ]
        for number, spec in enumerate(found):
            for half in halves:
                half.connect(f"s{number}", *spec)
        alone = sum(spec[3].startswith("$share") for spec in found) == 0
        for messages, qos, version in given_parts:
            for half in halves:
                half.feed(messages, qos, version)
            one, other = (half.got() for half in halves)
            if alone:
                assert one == other
            else:  # members take turns, so the receiver of each message may differ
                assert _all(one) == _all(other)
        assert halves[0].host.hub.published == halves[1].host.hub.published
        for half in halves:
            if half.host.hub.journal is not None:
                half.host.hub.journal.close()


def _all(got: dict[str, list[object]]) -> list[str]:
    """Returns the packets of all clients together."""
    packets = [packet for came in got.values() for packet in came if isinstance(packet, Publish)]
    return sorted(f"{packet.topic!r} {packet.payload!r}" for packet in packets)


def test_a_run_with_an_invalid_topic_ends_there() -> None:
    receiver = Receiver(True, None, PubSubSettings())
    receiver.connect("s", V311, 0, False, "#", 0)
    with pytest.raises(TreecastError):
        receiver.feed([(b"a", b"1"), (b"$own", b"2"), (b"a", b"3")], 0, V311)
    assert [packet.payload for packet in receiver.clients["s"].publishes()] == [b"1"]


# --- between hosts


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [PLAIN, WITH_PROPERTIES])
async def test_a_run_reaches_who_wants_it_and_is_accounted_for(world: World, qos: int, version: int) -> None:
    a, b, c = await world.start(1, 2, 3)
    at_b, at_c, at_a = b.client(), c.client(), a.client()
    await at_b.subscribe("t/#")
    await at_c.subscribe("t/1", "other")
    await at_a.subscribe("t/2")
    sent = [(b"t/%d" % (n % 3), b"%d" % n) for n in range(300)]
    publish_run(a, sent, qos, version)
    await until(lambda: len(at_b.got) == 300 and len(at_c.got) == 100)
    for name, _, _ in at_b.got[:3]:  # order holds per topic
        mine = [payload for topic, payload in sent if topic.decode() == name]
        assert [(p, q) for topic, p, q in at_b.got if topic == name] == [(payload, qos) for payload in mine]
    assert numbers(at_c) == list(range(1, 300, 3))
    assert numbers(at_a) == list(range(2, 300, 3))
    assert a.counters.messages_sent == 300
    await closes(a, 2, 300)
    await closes(a, 3, 100)
    await until(lambda: not any(record.owes for record in a.journal.records.values()))


async def test_runs_stay_runs_on_their_way(world: World) -> None:
    a, b = await world.start(1, 2)
    client = Counting(b)
    await client.subscribe("t")
    for qos in (0, 1):
        count_runs(a, 0, 500, qos=qos)
        a.end_turn()
    await until(lambda: len(client.got) == 1000)
    assert client.runs == [(PublishRun, 500), (PromisedRun, 500)]
    assert a.counters.batches_sent == 2


class Counting(Client):
    """Records the runs that it gets."""

    def __init__(self, host: TestHost) -> None:
        super().__init__(host)
        self.runs: list[tuple[type, int]] = []

    def take_run(self, run: Run, target: object) -> None:
        self.runs.append((type(run), run.count))
        super().take_run(run, target)  # type: ignore[arg-type]


async def test_order_holds_for_runs_while_interest_changes(world: World) -> None:
    """Runs and messages of topics that move between the streams of {b}, {c} and {b, c}, with loss."""
    world.loss = 0.02
    a, b, c = await world.start(1, 2, 3)
    always = {2: b.client(), 3: c.client()}
    fickle = {2: b.client(), 3: c.client()}
    await always[2].subscribe("t/0", "t/1")
    await always[3].subscribe("t/1")
    rng, sent = random.Random(7), 0
    wants = dict.fromkeys(fickle, False)
    for _ in range(40):
        for _ in range(rng.randrange(5)):
            if rng.random() < 0.3:
                a.publish(f"t/{rng.randrange(3)}", b"%d" % sent, rng.randrange(3))
                sent += 1
            else:
                topics = rng.sample(["t/0", "t/1", "t/2"], rng.randrange(1, 4))
                sent = count_runs(a, sent, rng.randrange(1, 9), *topics, qos=rng.randrange(2))
        number = rng.choice([2, 3])
        if wants[number]:
            fickle[number].unsubscribe("t/+")
        else:
            await fickle[number].subscribe("t/+")
        wants[number] = not wants[number]
    publish_run(a, [(b"t/0", b"end"), (b"t/1", b"end")], 1)
    await until(lambda: always[2].payloads.count(b"end") == 2 and b"end" in always[3].payloads)
    for client in (*always.values(), *fickle.values()):
        for topic in ("t/0", "t/1", "t/2"):
            found = [int(payload) for name, payload, _ in client.got if name == topic and payload != b"end"]
            assert found == sorted(set(found))


async def test_runs_that_were_promised_before_a_kill_arrive_after_it(world: World) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    world.kill(2)  # b is away for an unknown time
    sent = count_runs(a, 0, 50)
    a.publish("t", b"%d" % sent, 2)
    sent = count_runs(a, sent + 1, 30)
    a.end_turn()  # the messages are promised
    world.kill(1)
    (b,) = await world.start(2)
    client = b.client()
    await client.subscribe("t")
    (a,) = await world.start(1)
    await until(lambda: len(client.got) == sent)
    assert numbers(client) == list(range(sent))
    assert a.counters.sent_again == sent
    sent = count_runs(a, sent, 10)
    await until(lambda: len(client.got) == sent)
    assert numbers(client) == list(range(sent))
    await until(lambda: all(not one.owes for one in a.journal.records.values()))


async def test_kills_at_both_ends_lose_and_double_no_message_of_a_run(world: World) -> None:
    world.loss = 0.01
    rng = random.Random(11)
    a, b, c = await world.start(1, 2, 3)
    clients: dict[int, Client] = {2: b.client(), 3: c.client()}
    await clients[2].subscribe("t/#")
    await clients[3].subscribe("t/#")
    got: list[int] = []
    sent = 0
    for step in range(6):
        sent = count_runs(a, sent, rng.randrange(1, 40), "t/0", "t/1")
        if rng.random() < 0.5:
            a.publish("t/2", b"%d" % sent, 2)
            sent += 1
        a.end_turn()
        if rng.random() < 0.5:
            await until(lambda: len(clients[3].got) > 0)
        if step % 2:
            world.kill(2)
            got += numbers(clients[2])
            (b,) = await world.start(2, share=False)
            clients[2] = b.client()
            b.hub.subscribe(Subscription(clients[2], b"t/#", 2))
            b.share()
        else:
            world.kill(1)
            (a,) = await world.start(1)
            await until(lambda a=a: sorted(a.interest.hosts_for(("t", "0"))) == [2, 3])
    sent = count_runs(a, sent, 5, "t/0")
    await until(lambda: len(got) + len(clients[2].got) >= sent and len(clients[3].got) >= sent)
    assert sorted(got + numbers(clients[2])) == sorted(numbers(clients[3])) == list(range(sent))
    await closes(a, 3, sent)


async def test_a_run_of_which_a_part_was_taken_is_taken_from_there_on(world: World) -> None:
    """Another version of the origin may have cut the run differently."""
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    count_runs(a, 0, 5)
    await until(lambda: len(client.got) == 5)
    assert b.events is not None
    receiving = b.events.receiving
    (stream,) = receiving._streams.values()
    run = made([(b"t", b"%d" % n) for n in range(1, 9)], 1)
    assert isinstance(run, PromisedRun)
    run.number = stream.number - 2  # the first three were taken before
    receiving._publish_all(stream, batch_of([run], 0))
    assert numbers(client) == [*range(5), *range(4, 9)]
    assert b.counters.repeated == 3
    receiving._publish_all(stream, batch_of([run], 0))
    assert b.counters.repeated == 11


async def test_the_journal_has_a_run_once_and_sessions_that_last_refer_to_it(world: World) -> None:
    from treecast.middleware.broker.pubsub import Creditor, Owed

    class Lasting(Client):
        def take(self, message: Message, target: object) -> None:
            super().take(message, target)  # type: ignore[arg-type]
            journal.owe(record, Owed(message, 1, False, ()))

    a, b = await world.start(1, 2)
    await b.client().subscribe("t")
    world.kill(2)
    journal, record = a.journal, Creditor(a.hub.routes.next_serial(), "lasting")
    journal.begin(record)
    await Lasting(a).subscribe("t")
    assert journal.flush()
    before = journal.size
    payload = b"x" * 1000
    publish_run(a, [(b"t", payload)] * 50, 1)
    a.end_turn()
    assert 50 * len(payload) < journal.size - before < 60 * len(payload)
    assert len(record.owed) == 50
    numbers_owed = sorted(record.owed)
    world.kill(1)
    (a,) = await world.start(1)
    kept = next(one for one in a.journal.records.values() if one.client_id == "lasting")
    assert sorted(kept.owed) == numbers_owed
    assert all(owed.message.payload == payload for owed in kept.owed.values())


async def test_runs_that_are_owed_outlive_segments_of_the_journal(world: World) -> None:
    """Old segments whose only content is a run are rewritten and dropped."""
    a, b = await world.start(1, 2)
    await b.client().subscribe("t")
    world.kill(2)
    journal = a.journal
    journal._segment_bytes = journal._roll_at = 2000
    sent = count_runs(a, 0, 20)
    a.end_turn()
    first = journal.log.segments[0].number
    for number in range(100):
        a.hub.retain(Message(b"r", b"%d" % number + bytes(300), 1, True))
        assert journal.flush()
    assert journal.log.segments[0].number > first
    assert sum(record.owes for record in journal.records.values()) == sent
    world.kill(1)
    (a,) = await world.start(1)
    (b,) = await world.start(2)
    client = b.client()
    await client.subscribe("t")
    await until(lambda: len(client.got) == sent)
    assert numbers(client) == list(range(sent))
