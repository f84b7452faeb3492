"""Streams: where consumers start, credit, and what their log is asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.unit.queues import joined_hosts
from tests.unit.queues.host import Host, run
from tests.unit.queues.joined_hosts import Net

from treecast.middleware.broker.queues import (
    Consumer,
    Cursor,
    Destination,
    Part,
    QueueArguments,
    QueueType,
    Reason,
    Refusal,
    Run,
    StartKind,
    StreamQueue,
    StreamStart,
    message,
    messages,
    start_of,
)
from treecast.middleware.broker.queues import arguments as queue_arguments

WALL = 1_700_000_000.5


class Log:
    """A log in memory. Reads are answered by `answer`, as the edge does, later."""

    def __init__(self) -> None:
        self.records: list[Run] = []
        self.reads: list[tuple[StreamQueue, Cursor]] = []
        self.closed: list[Cursor] = []
        self.deleted = False
        self.most = 1000
        self.stands = False

    def append(self, run: Run) -> list[int]:
        if self.stands:
            return list(range(run.count))
        self.records.append(run)
        return self.refusals(run)

    def refusals(self, run: Run) -> list[int]:
        return [index for index, (_, body) in enumerate(messages(run.data)) if len(body) > self.most]

    def full(self) -> bool:
        return self.stands

    def read(self, queue: StreamQueue, cursor: Cursor) -> None:
        self.reads.append((queue, cursor))

    def close(self, cursor: Cursor) -> None:
        self.closed.append(cursor)

    def delete(self) -> None:
        self.deleted = True

    def answer(self, most: int = 100) -> None:
        """Answers all reads, each with up to `most` runs."""
        reads, self.reads = self.reads, []
        for queue, cursor in reads:
            at = max(cursor.offset, 0)
            runs = self.records[at : at + most]
            if not runs:
                self.reads.append((queue, cursor))
                continue
            cursor.offset = at + len(runs)
            cursor.reading = False
            queue.arrived(cursor, runs, 0.0)


class Taker(Consumer):
    """A consumer with a prefetch that keeps what it gets."""

    def __init__(self, prefetch: int, start: StreamStart | None = None, no_ack: bool = False) -> None:
        super().__init__(b"t", no_ack=no_ack)
        self.prefetch = prefetch
        self.start = start
        self.parts: list[Part] = []
        self.positions: list[int] = []
        self.gone = False

    @property
    def room(self) -> int:
        return self.prefetch - self.unsettled

    def take(self, part: Part) -> None:
        self.parts.append(part)
        self.positions += range(part.position, part.position + part.count)

    def cancelled(self) -> None:
        self.gone = True


def run_of(*bodies: bytes) -> Run:
    data = b"".join(message(b"\0\0", body) for body in bodies)
    return Run(b"", b"s", data, len(bodies), sum(map(len, bodies)), True)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def stream(log: Log) -> StreamQueue:
    arguments = QueueArguments(type=QueueType.STREAM)
    return StreamQueue(b"s", arguments, log, "/", 0.0)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("first", StreamStart(StartKind.FIRST)),
        (b"last", StreamStart(StartKind.LAST)),
        ("next", StreamStart(StartKind.NEXT)),
        (None, StreamStart(StartKind.NEXT)),
        (0, StreamStart(StartKind.OFFSET)),
        (12, StreamStart(StartKind.OFFSET, 12)),
        ("1h", StreamStart(StartKind.TIME, int((WALL - 3600) * 1000))),
        ("2D", StreamStart(StartKind.TIME, int((WALL - 172_800) * 1000))),
        (datetime.fromtimestamp(5, UTC), StreamStart(StartKind.TIME, 5000)),
    ],
)
def test_where_a_consumer_starts(said: object, expected: StreamStart) -> None:
    assert start_of({} if said is None else {"x-stream-offset": said}, WALL) == expected


@pytest.mark.parametrize("said", ["soon", "", "1", "h", "-1h", "1 h", -1, True, 1.5, [1], {"a": 1}])
def test_other_starts_are_refused(said: object) -> None:
    with pytest.raises(Refusal) as refused:
        start_of({"x-stream-offset": said}, WALL)
    assert refused.value.reason is Reason.PRECONDITION_FAILED


def test_what_streams_are_declared_with() -> None:
    given = {
        "x-queue-type": "stream",
        "x-max-age": "7D",
        "x-max-length-bytes": 1000,
        "x-stream-max-segment-size-bytes": 500,
    }
    parsed = queue_arguments.parse(given, b"s", "/")
    assert (parsed.max_age, parsed.max_bytes, parsed.segment_bytes) == (7 * 86_400, 1000, 500)
    for name, value in (
        ("x-max-age", "7"),
        ("x-max-age", 7),
        ("x-stream-max-segment-size-bytes", 3_000_000_001),
        ("x-max-length", 5),
        ("x-max-priority", 5),
        ("x-message-ttl", 5),
        ("x-expires", 5),
        ("x-dead-letter-exchange", "d"),
        ("x-single-active-consumer", True),
        ("x-overflow", "drop-head"),
    ):
        with pytest.raises(Refusal):
            queue_arguments.parse({**given, name: value}, b"s", "/")


def test_messages_stay_and_each_consumer_has_its_place(log: Log, stream: StreamQueue) -> None:
    for number in range(5):
        assert stream.publish(run_of(b"%d" % number, b"x"), 0.0) == []
    assert stream.ready == 0
    takers = [Taker(100), Taker(100)]
    for taker in takers:
        stream.consume(taker, 0.0)
        log.answer()
    assert [sum(part.count for part in taker.parts) for taker in takers] == [10, 10]
    assert stream.unsettled == 20
    assert not set(takers[0].positions) & set(takers[1].positions)


def test_a_prefetch_is_credit(log: Log, stream: StreamQueue) -> None:
    stream.publish(run_of(*[b"x"] * 10), 0.0)
    stream.publish(run_of(*[b"y"] * 10), 0.0)
    taker = Taker(4)
    stream.consume(taker, 0.0)
    log.answer(1)
    assert len(taker.positions) == 4
    assert not log.reads  # it has what it may have, and more was read already
    stream.settle(taker.parts[0], 0, 3, taker)
    stream.pump(0.0)
    assert len(taker.positions) == 7
    while len(taker.positions) < 20:
        for part in taker.parts:
            stream.settle(part, 0, 0, taker)
        stream.settle(taker.parts[-1], 0, taker.unsettled, taker)
        stream.pump(0.0)
        log.answer(1)
        assert taker.unsettled <= 4
    assert taker.positions == sorted(taker.positions)


def test_no_more_is_read_than_a_consumer_waits_for(log: Log, stream: StreamQueue) -> None:
    taker = Taker(2)
    stream.consume(taker, 0.0)
    stream.pump(0.0)
    assert len(log.reads) == 1
    stream.publish(run_of(b"x"), 0.0)
    log.answer()
    assert len(log.reads) == 1  # it has room for one more
    stream.publish(run_of(b"x", b"x", b"x"), 0.0)
    log.answer()
    assert len(taker.positions) == 2
    assert not log.reads


def test_a_consumer_that_leaves_is_forgotten(log: Log, stream: StreamQueue) -> None:
    stream.publish(run_of(b"x"), 0.0)
    taker = Taker(1)
    stream.consume(taker, 0.0)
    (_, cursor), *_ = log.reads
    assert not stream.cancel(taker, 0.0)
    assert log.closed == [cursor]
    log.answer()
    assert taker.parts == []
    assert len(stream.consumers) == 0


def test_the_end_of_the_log_cancels(log: Log, stream: StreamQueue) -> None:
    taker = Taker(1)
    stream.consume(taker, 0.0)
    stream.ended(log.reads[0][1])
    assert taker.gone
    other = Taker(1)
    stream.consume(other, 0.0)
    stream.delete()
    assert other.gone
    assert not log.deleted  # the virtual host decides about that


def test_returned_messages_are_only_settled(log: Log, stream: StreamQueue) -> None:
    stream.publish(run_of(b"x"), 0.0)
    taker = Taker(1)
    stream.consume(taker, 0.0)
    log.answer()
    stream.requeue(taker.parts[0], 0, 1, taker, 0.0, failed=True)
    assert (stream.unsettled, taker.unsettled, stream.ready) == (0, 0, 0)


def test_what_streams_do_not_have(stream: StreamQueue) -> None:
    for attempt in (
        lambda: stream.get(0.0, True),
        stream.purge,
        lambda: stream.consume(Taker(1, no_ack=True), 0.0),
    ):
        with pytest.raises(Refusal) as refused:
            attempt()
        assert refused.value.reason is Reason.NOT_IMPLEMENTED


class Logs:
    """Makes logs in memory."""

    def __init__(self) -> None:
        self.made: dict[bytes, Log] = {}

    def log(self, vhost: str, name: bytes, arguments: QueueArguments) -> Log:
        return self.made.setdefault(name, Log())


def test_a_stream_in_a_virtual_host() -> None:
    vhost, logs = Host().vhost, Logs()
    vhost.queue_definitions.streams = logs
    stream = vhost.queue_definitions.declare(b"s", arguments={"x-queue-type": "stream", "x-max-age": "1h"})
    assert stream.arguments.max_age == 3600
    vhost.departed = False
    assert vhost.publish(run_of(b"x"), 0.0) == (True, [])
    assert vhost.departed  # so the confirm waits, also of a transient message
    assert [run.count for run in logs.made[b"s"].records] == [1]
    vhost.queue_definitions.delete(b"s", None)
    assert logs.made[b"s"].deleted


def test_a_stream_that_loses_its_name_keeps_its_log() -> None:
    vhost, logs = Host().vhost, Logs()
    vhost.queue_definitions.streams = logs
    stream = vhost.queue_definitions.declare(b"s", arguments={"x-queue-type": "stream"})
    assert vhost.displace(stream, 0.0) == []
    assert not logs.made[b"s"].deleted


def test_a_host_without_logs_refuses_streams() -> None:
    with pytest.raises(Refusal) as refused:
        Host().vhost.queue_definitions.declare(b"s", arguments={"x-queue-type": "stream"})
    assert refused.value.reason is Reason.NOT_IMPLEMENTED


# --- of other hosts


class OneLog:
    """The logs of all hosts: one stream in one place."""

    def __init__(self, log: Log) -> None:
        self.one = log

    def log(self, vhost: str, name: bytes, arguments: QueueArguments) -> Log:
        return self.one


@pytest.fixture
def hosts(log: Log) -> tuple[Net, joined_hosts.Host, joined_hosts.Host]:
    """The second has the stream."""
    net = Net()
    one, two = net.add(1), net.add(2)
    for host in (one, two):
        host.vhost.queue_definitions.streams = OneLog(log)
    two.vhost.queue_definitions.declare(b"s", arguments={"x-queue-type": "stream"})
    two.vhost.queue_definitions.declare(b"q")
    for name in (b"s", b"q"):
        two.vhost.bindings.bind(b"amq.fanout", Destination(name, False), b"")
    net.settle()
    return net, one, two


def test_what_a_stream_of_another_host_does_not_take_is_refused_at_its_origin(
    log: Log, hosts: tuple[Net, joined_hosts.Host, joined_hosts.Host]
) -> None:
    net, one, _ = hosts
    large = b"x" * (log.most + 1)
    assert one.vhost.publish(run(b"0", large, b"2", key="s"), 0.0) == (True, [1])
    assert one.vhost.publish(run(large, key="s"), 0.0) == (True, [0])
    net.settle()
    assert [[body for _, body in messages(found.data)] for found in log.records] == [[b"0", large, b"2"]]


def test_a_stream_that_takes_no_more_keeps_messages_at_their_origin(
    log: Log, hosts: tuple[Net, joined_hosts.Host, joined_hosts.Host]
) -> None:
    net, one, two = hosts
    log.stands = True
    for number in range(3):
        assert one.vhost.publish(run(b"%d" % number, exchange="amq.fanout", key=""), 0.0) == (True, [])
    net.settle()
    assert log.records == []
    assert one.joined.spools.waiting == 3
    log.stands = False
    one.joined.now = 10.0
    one.joined.tick()
    net.settle()
    assert one.joined.spools.waiting == 0
    assert [messages(one.data)[0][1] for one in log.records] == [b"0", b"1", b"2"]
    assert two.consume(b"q").bodies == [b"0", b"1", b"2"]
