"""Telemetry of joined hosts: deltas in an internal topic, with boot, sequence and interval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.broker import Cluster, Isolation, NewTopic, content_filter
from treecast.middleware.broker.pubsub import Message, Subscriber, Subscription, Target
from treecast.middleware.daemon.daemon import Daemon
from treecast.middleware.daemon.settings import Settings, TelemetryNames
from treecast.middleware.daemon.telemetry import WAITING, Hashing, Reporter, Telemetry
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.filter_tally import (
    ChangesTaken,
    ChangeTally,
    FiltersTaken,
    FilterTally,
    wishes_of,
)
from treecast.middleware.model.records import Record
from treecast.middleware.model.tally import Header, Hosts, Pair, Standing, Taken, Tally
from treecast.middleware.wire.record_batch import build_batch, read_header, read_records

PATIENCE = 60.0
OFF = {"kafka": "off", "amqp": "off", "mqtt": "off", "stare": "off", "admin": "off"}
HEADER = Header(8, 1, 1, (5,), 3)


class Counted:
    """A carrier and the accounts of its host, as a test sets them."""

    def __init__(self) -> None:
        self.tally = Tally(4)
        self.standing: dict[Pair, Standing] = {}
        self.filter_tally, self.change_tally = FilterTally(lambda: 0), ChangeTally(2)
        self.again: dict[tuple[str, str], tuple[int, int]] = {}
        self.replayed: dict[tuple[str, str], tuple[int, int]] = {}  # beside repairs, as an origin yields them

    def taken(self) -> Iterator[tuple[str, Taken, Callable[[Hosts], list[str]]]]:
        yield "labels", self.tally.take(), lambda hosts: [f"h{host}" for host in hosts]

    def accounts(self) -> Iterator[tuple[Pair, Standing]]:
        yield from self.standing.items()

    def filters(self) -> tuple[FiltersTaken, Callable[[int], str]]:
        return self.filter_tally.take(), lambda host: f"h{host}"

    def changes(self) -> ChangesTaken:
        return self.change_tally.take()

    def sent_again(self) -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
        yield from self.again.items()
        yield from self.replayed.items()


def read(record: Record) -> pb.TelemetryInterval:
    return topics.decode(pb.TelemetryInterval, record.value or b"")


def test_an_interval_as_a_record() -> None:
    counted = Counted()
    counted.standing["orders-0", "b"] = Standing(1000, 1000)  # of an earlier run
    reporter = Reporter("a", 7, counted, 100.0)
    counted.tally.add((2, 3), 10, 900, HEADER)
    counted.standing["orders-0", "b"] = Standing(1010, 1004, 1, 2)
    first, second = reporter.record(110.0), reporter.record(120.0)
    assert first.key == b"a"
    found = read(first)
    assert (found.host, found.boot, found.seq, found.from_us, found.to_us) == (
        "a",
        7,
        1,
        100_000_000,
        110_000_000,
    )
    assert (found.packets, found.bytes, found.sampled) == (10, 900, 1.0)
    (one,) = found.sets
    assert (list(one.receivers), one.packets, one.header_bytes, one.rule_version) == (["h2", "h3"], 10, 80, 3)
    assert (one.hop_labels, one.stop_labels, one.tree_labels, list(one.trees)) == (10, 10, 10, [5])
    (stream,) = found.streams
    assert (stream.stream, stream.receiver, stream.addressed, stream.received) == ("orders-0", "b", 10, 4)
    assert (stream.filtered, stream.lost) == (1, 2)
    empty = read(second)
    assert (empty.seq, empty.from_us, empty.packets, len(empty.sets), len(empty.streams)) == (
        2,
        110_000_000,
        0,
        0,
        0,
    )


def test_names_are_hashed_with_a_key_and_samples_say_their_share() -> None:
    counted = Counted()
    reporter = Reporter("a", 1, counted, 0.0, Hashing(b"k" * 32, True))
    counted.standing["secret", "b"] = Standing(5, 5)
    for host in range(64):
        counted.tally.add((host,), 1, 10, HEADER)
    found = read(reporter.record(10.0))
    assert found.streams[0].stream == topics.hashed("secret", b"k" * 32) != topics.hashed("secret", b"l" * 32)
    assert found.streams[0].receiver == "b"
    assert found.sampled < 1.0
    assert len(found.sets) <= 4
    assert found.packets == 64


def test_filters_changes_and_repairs_of_an_interval() -> None:
    counted = Counted()
    counted.again["orders-0", "udp"] = (3, 300)  # of an earlier run
    reporter = Reporter("a", 7, counted, 100.0, Hashing(b"k" * 32))
    wishes = wishes_of({("t/+", "a > 3"), ("t/x", "b == 1")}, False)
    for passed in (True, False, False):
        counted.filter_tally.judged(2, wishes, 10, passed, 0)
    counted.filter_tally.judged(0, wishes, 10, True, 0)
    for client in ("me", "you", "he"):
        counted.change_tally.add(client, client != "you", "t/+", "a > 3")
    counted.again["orders-0", "udp"] = (5, 450)
    first, second = read(reporter.record(110.0)), read(reporter.record(120.0))
    here, other = first.filters
    assert (here.origin, here.messages, here.passed) == ("a", 1, 1)
    assert (other.origin, other.messages, other.passed, other.bytes) == ("h2", 3, 1, 30)
    assert (other.passed_bytes, other.count, other.open) == (10, 2, False)
    assert [(one.pattern, one.filter) for one in other.wishes] == [("t/+", "a > 3"), ("t/x", "b == 1")]
    hashed = topics.hashed("me", b"k" * 32)  # also where names are plain: an id may be a person's
    assert [(one.client, one.begun) for one in first.changes] == [
        (hashed, True),
        (topics.hashed("you", b"k" * 32), False),
    ]
    assert first.changes_left_out == 1
    (repair,) = first.repairs
    assert (repair.stream, repair.carrier, repair.packets, repair.bytes) == ("orders-0", "udp", 2, 150)
    assert (len(second.filters), len(second.changes), len(second.repairs)) == (0, 0, 0)


def test_what_was_repaired_and_what_was_replayed_by_a_carrier_add_up() -> None:
    counted = Counted()
    sent = ("orders-0", "udp")
    counted.again[sent], counted.replayed[sent] = (3, 300), (10, 1000)  # of an earlier run
    reporter = Reporter("a", 7, counted, 100.0)
    counted.again[sent], counted.replayed[sent] = (5, 450), (11, 1100)
    (both,) = read(reporter.record(110.0)).repairs
    counted.again[sent] = (6, 500)
    (one,) = read(reporter.record(120.0)).repairs
    assert (both.stream, both.carrier, both.packets, both.bytes) == (*sent, 3, 250)
    assert (one.packets, one.bytes) == (1, 50)


def test_records_of_other_schemas_are_refused() -> None:
    newer = pb.TelemetryInterval(v=topics.VERSION + 1)
    with pytest.raises(topics.Unreadable, match="schema version 2, and this reads up to 1"):
        topics.decode(pb.TelemetryInterval, topics.encode(newer))
    for value in (b"", b"\xff\xff\xff", b"hello"):
        with pytest.raises(topics.Unreadable):
            topics.decode(pb.TelemetryInterval, value)


async def up(folder: Path, name: str, **more: str | TelemetryNames) -> Daemon:
    given: dict[str, Any] = {**OFF, "control": "127.0.0.1:0", "fabric": "127.0.0.1:0", **more}
    settings = Settings(name=name, data=str(folder / name), runtime_dir=str(folder / f"run-{name}"), **given)
    daemon = Daemon(settings, {})
    await daemon.start()
    return daemon


async def values(
    cluster: Cluster, topic: str, leads: Callable[[int], bool] = lambda index: True
) -> list[bytes]:
    """Returns the values of a topic's partitions, or of some of them."""
    found: list[bytes] = []
    for index in filter(leads, range(cluster.definitions.topics()[topic].partitions)):
        leader = cluster.partition(topic, index)
        got = leader.read(0, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True)
        read = await got if isinstance(got, asyncio.Future) else got
        data = b"".join(map(in_memory, read.chunks))
        at = 0
        while at < len(data):
            header = read_header(data, at)
            found += [record.value or b"" for record in read_records(data, at, header)]
            at += header.size
    return found


async def append(cluster: Cluster, topic: str, count: int) -> None:
    batch = memoryview(bytearray(build_batch([Record(None, b"v%d" % n) for n in range(count)])))
    got = cluster.partition(topic, 0).append(batch, -1, None)
    if isinstance(got, asyncio.Future):
        await got


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def two(folder: Path, names: TelemetryNames) -> tuple[Daemon, Daemon]:
    first = await up(folder, "a", telemetry=names)
    join, token = first.listeners["control"].address, f"@{folder / 'a' / 'join-token'}"
    return first, await up(folder, "b", join=join, join_token=token)


def sent(daemon: Daemon) -> int:
    """Returns the records of `orders` that host b has reported to its leader."""
    assert daemon._joining is not None
    origins = daemon._joining.relay.neighbours.fabric.origins()
    rows = [row for one in origins if one.name.startswith("orders") for row in one.rows().values()]
    return sum(row.live + row.replayed + row.repaired for row in rows)


async def test_what_a_host_sends_is_in_the_topic_as_deltas(tmp_path: Path) -> None:
    first, second = await two(tmp_path, TelemetryNames.PLAIN)
    try:
        assert first._broker is not None
        assert second._broker is not None
        assert first._telemetry is not None
        assert second._telemetry is None  # off by its setting
        cluster = first._broker.cluster
        await cluster.definitions.create_topic(NewTopic("orders", 1, {}, ("a",)))
        totals = 0
        for count in (5, 7):
            await append(cluster, "orders", count)
            await until(lambda: "orders" in second._broker.cluster.definitions.topics())  # type: ignore[union-attr]
            await values(second._broker.cluster, "orders")  # interest: a replica follows
            totals += count
            await until(lambda wanted=totals: sent(first) >= wanted)  # type: ignore[misc]
            await first._telemetry.write()
        found = [topics.decode(pb.TelemetryInterval, value) for value in await values(cluster, topics.SENDS)]
        found.sort(key=lambda one: one.seq)
        assert [one.seq for one in found] == list(range(1, len(found) + 1))
        assert {(one.host, one.boot) for one in found} == {("a", 1)}
        rows = [row for one in found for row in one.streams]
        assert {(row.stream, row.receiver) for row in rows} == {("orders-0", "b")}
        assert sum(row.received for row in rows) == totals
        assert all(earlier.to_us == later.from_us for earlier, later in pairwise(found))
    finally:
        await second.close(1.0)
        await first.close(1.0)
    again = await up(tmp_path, "a", telemetry=TelemetryNames.HASHED)
    try:
        assert again._broker is not None
        assert again._telemetry is not None
        await again._telemetry.write()
        own = await values(again._broker.cluster, topics.SENDS, again._telemetry._leads)
        after = [topics.decode(pb.TelemetryInterval, one) for one in own]
        later = {one.boot for one in after} - {1}
        assert min(later) > 1
        assert [
            row for one in after if one.boot in later for row in one.streams
        ] == []  # nothing counts twice
    finally:
        await again.close(1.0)


class Client(Subscriber):
    def take(self, message: Message, target: Target) -> None:
        pass


async def test_what_filters_here_judge_is_told_by_the_host_that_it_comes_from(tmp_path: Path) -> None:
    first, second = await two(tmp_path, TelemetryNames.OFF)
    await second.close(1.0)
    second = await up(tmp_path, "b", telemetry=TelemetryNames.PLAIN)
    try:
        assert first._broker is not None
        assert second._broker is not None
        assert second._telemetry is not None
        hub, publishing = second._broker.pubsub.hub, first._broker.pubsub.hub
        client = Client(hub.routes.next_serial())
        client.name = "sensor"
        hub.subscribe(Subscription(client, b"t/+", content=content_filter("a > 3")))
        await until(lambda: publishing.routes.targets(b"t/x").count)
        assert hub.tally is not None
        tally = hub.tally.filters

        def judged() -> bool:
            publishing.publish(Message(b"t/x", b'{"a":9}'), publishing.routes.targets(b"t/x"), None)
            return bool(tally._counts)

        await until(judged)  # what is published before the hosts are connected is lost, at QoS 0
        before = sum(one.passed for one in tally._counts.values())
        for value in range(6):
            publishing.publish(Message(b"t/x", b'{"a":%d}' % value), publishing.routes.targets(b"t/x"), None)
        await until(lambda: sum(one.passed for one in tally._counts.values()) >= before + 2)
        await second._telemetry.write()
        found = [
            topics.decode(pb.TelemetryInterval, value)
            for value in await values(second._broker.cluster, topics.SENDS, second._telemetry._leads)
        ]
        (one,) = [row for interval in found for row in interval.filters]
        assert (one.origin, one.open) == ("a", False)
        assert one.messages >= one.passed >= before + 2
        assert [(wish.pattern, wish.filter) for wish in one.wishes] == [("t/+", "a > 3")]
        (change,) = [row for interval in found for row in interval.changes]
        assert (change.begun, change.pattern, change.filter) == (True, "t/+", "a > 3")
        assert change.client not in ("", "sensor")
    finally:
        await second.close(1.0)
        await first.close(1.0)


class NoTopics:
    """A cluster without a coordinator, and without the topic."""

    def topics(self) -> dict[str, object]:
        return {}

    async def create_topic(self, new: NewTopic) -> object:
        raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "away")

    @property
    def definitions(self) -> NoTopics:
        return self


async def test_intervals_that_cannot_be_written_wait_and_are_bounded() -> None:
    reporter = Reporter("a", 1, Counted(), 0.0)
    telemetry = Telemetry(NoTopics(), reporter, 1.0, lambda index: False)  # type: ignore[arg-type]
    for _ in range(WAITING + 5):
        await telemetry.write()
    waiting = [read(record).seq for record in telemetry._waiting]
    assert waiting == list(range(6, WAITING + 6))  # the missing numbers tell which were lost


class Small:
    """A cluster whose topic takes batches of up to `limit` bytes."""

    partitions = 1

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.appended: list[int] = []

    @property
    def definitions(self) -> Small:
        return self

    def topics(self) -> dict[str, object]:
        return {topics.SENDS: self}

    def partition(self, topic: str, index: int) -> Small:
        return self

    def append(self, batch: memoryview, acks: int, transactional_id: str | None) -> None:
        if len(batch) > self._limit:
            raise TreecastError(Fault.BATCH_TOO_LARGE, f"{len(batch)} bytes")
        (record,) = read_records(batch, 0, read_header(batch, 0))
        self.appended.append(read(record).seq)


async def test_an_interval_that_is_too_large_holds_up_none_behind_it() -> None:
    counted, small = Counted(), Small(2000)
    telemetry = Telemetry(small, Reporter("a", 1, counted, 0.0), 1.0, lambda index: True)  # type: ignore[arg-type]
    for seq in range(1, 5):
        if seq in (2, 3):
            counted.standing["s" * 3000, "b"] = Standing(seq, seq)
        await telemetry.write()
    assert small.appended == [1, 4]  # the missing numbers tell which were lost
    assert (telemetry.too_large, len(telemetry._waiting)) == (2, 0)


async def test_the_longest_texts_of_clients_fit_into_the_topic() -> None:
    counted = Counted()
    counted.change_tally = ChangeTally()
    reporter = Reporter("a", 7, counted, 0.0)
    for number in range(300):
        for size in (1000, 65_000):
            some = {(f"{number}/{one}", "f" * size) for one in range(32)}
            counted.filter_tally.judged(2, wishes_of(some, False), 10, True, 0)
            counted.change_tally.add("me", True, f"{number}", "f" * size)
    record = reporter.record(10.0)
    assert read(record).changes_left_out > 300
    assert len(record.value or b"") < 300 << 10
