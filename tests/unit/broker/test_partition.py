"""A partition that this host leads: refusals, repeats, conversions, and the readers that it wakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.refusals import refusal

from treecast.middleware.broker.partition import LocalPartition
from treecast.middleware.broker.values import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AbortedTransaction,
    Appended,
    Isolation,
    OffsetAtTime,
    PartitionRead,
)
from treecast.middleware.model.counters import BrokerCounters, StorageCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.settings import FsyncPolicy, LogSettings
from treecast.middleware.wire.record_batch import build_batch, control_marker, read_header, read_records

NAME = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
PRODUCER = ProducerIdentity(7, 0)
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED


class Guard:
    """Knows which transactions are open."""

    def __init__(self) -> None:
        self.open: set[tuple[str, ProducerIdentity]] = set()

    def verify(self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition) -> None:
        if (transactional_id, producer) not in self.open:
            raise TreecastError(Fault.INVALID_TRANSACTION_STATE)


class Waiter:
    def __init__(self) -> None:
        self.told: list[int | str] = []

    def grown(self, size: int) -> None:
        self.told.append(size)

    def foreseen(self, size: int) -> None:
        self.told.append(f"{size} foreseen")

    def gone(self) -> None:
        self.told.append("gone")


class Bench:
    def __init__(self, path: Path, clock: Any, fsync: FsyncPolicy = FsyncPolicy.NEVER, **config: str) -> None:
        self.clock, self.guard, self.counters, self.flusher = clock, Guard(), BrokerCounters(), Flusher()
        overrides = {name.replace("_", "."): value for name, value in config.items()}
        self.log = PartitionLog.open(
            path / "t-0", TopicConfig.of(overrides), LogSettings(fsync=fsync), StorageCounters(), NOW_MS
        )
        self.partition = LocalPartition(NAME, self.log, self.flusher, self.guard, self.counters, clock)

    def append(self, *values: bytes, tid: str | None = None, acks: int = -1, **batch: Any) -> Any:
        return self.send(batch_of(*values, **batch), acks, tid)

    def send(self, data: bytes, acks: int = -1, tid: str | None = None) -> Any:
        return self.partition.append(memoryview(bytearray(data)), acks, tid)

    def read(self, offset: int = 0, isolation: Isolation = UNCOMMITTED) -> PartitionRead:
        return self.partition.read(offset, 1 << 20, isolation, at_least_one=True)

    def values(self, offset: int = 0, isolation: Isolation = UNCOMMITTED) -> list[bytes | None]:
        return [record.value for record in records_of(self.read(offset, isolation))]

    async def close(self) -> None:
        await self.flusher.close()
        self.log.delete()


def batch_of(*values: bytes, timestamp: int = NOW_MS, key: bytes | None = b"k", **batch: Any) -> bytes:
    return build_batch([Record(key, value, (), timestamp) for value in values], **batch)


def records_of(read: PartitionRead) -> list[Record]:
    data = b"".join(map(bytes, read.chunks))
    found: list[Record] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        found += [] if header.control else read_records(data, position, header)
        position += header.size
    return found


@pytest.fixture
async def make(tmp_path: Path, clock: Any) -> Any:
    made: list[Bench] = []

    def of(**options: Any) -> Bench:
        made.append(Bench(tmp_path / str(len(made)), clock, **options))
        return made[-1]

    yield of
    for bench in made:
        await bench.close()


@pytest.fixture
def bench(make: Callable[..., Bench]) -> Bench:
    return make()


# --- appending


async def test_records_come_back_in_order(bench: Bench) -> None:
    assert bench.append(b"a", b"b") == Appended(0, -1, 0)
    assert bench.append(b"c") == Appended(2, -1, 0)
    assert bench.values() == [b"a", b"b", b"c"]
    read = bench.read(2)
    assert (read.high_watermark, read.last_stable_offset, read.log_start_offset) == (3, 3, 0)


async def test_several_batches_at_once(bench: Bench) -> None:
    bench.send(batch_of(b"a", b"b") + batch_of(b"c"))
    assert [record.offset for record in records_of(bench.read())] == [0, 1, 2]


async def test_clients_write_no_control_records(bench: Bench) -> None:
    with refusal(Fault.INVALID_RECORD):
        bench.send(control_marker(1, PRODUCER, coordinator_epoch=0, timestamp=NOW_MS))


async def test_too_large(make: Callable[..., Bench]) -> None:
    bench = make(max_message_bytes="100")
    with refusal(Fault.BATCH_TOO_LARGE):
        bench.append(b"x" * 100)
    bench.append(b"x")


async def test_keys_are_needed_where_the_topic_is_compacted(make: Callable[..., Bench]) -> None:
    bench = make(cleanup_policy="compact")
    with refusal(Fault.INVALID_RECORD):
        bench.append(b"a", key=None)
    bench.append(b"a")
    assert bench.values() == [b"a"]


@pytest.mark.parametrize(
    ("timestamp", "accepted"),
    [
        (NOW_MS, True),
        (NOW_MS + 3_600_000, True),
        (NOW_MS + 3_600_001, False),
        (NOW_MS - 1000, True),
        (NOW_MS - 1001, False),
    ],
)
async def test_timestamps_have_bounds(make: Callable[..., Bench], timestamp: int, accepted: bool) -> None:
    bench = make(message_timestamp_before_max_ms="1000")
    if accepted:
        bench.append(b"a", timestamp=timestamp)
    else:
        with refusal(Fault.INVALID_TIMESTAMP):
            bench.append(b"a", timestamp=timestamp)
    assert make().append(b"old", timestamp=0) == Appended(0, -1, 0)  # no bound by default


async def test_the_brokers_clock_may_rule(make: Callable[..., Bench]) -> None:
    bench = make(message_timestamp_type="LogAppendTime")
    assert bench.append(b"a", timestamp=NOW_MS * 2) == Appended(0, NOW_MS, 0)
    assert [record.timestamp for record in records_of(bench.read())] == [NOW_MS]


@pytest.mark.parametrize("sent", list(Compression))
@pytest.mark.parametrize("stored", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_the_topic_may_choose_the_compression(
    make: Callable[..., Bench], sent: Compression, stored: str
) -> None:
    bench = make(compression_type=stored)
    for sequence in (0, 2):
        bench.append(b"a" * 99, b"b", compression=sent, producer=PRODUCER, base_sequence=sequence)
    header = read_header(b"".join(map(bytes, bench.read().chunks)), 0)
    assert Compression(header.compression).name.lower() == stored.replace("uncompressed", "none")
    assert (header.producer_id, header.base_sequence, header.count) == (7, 0, 2)
    assert [(r.offset, r.value, r.timestamp) for r in records_of(bench.read())] == [
        (offset, value, NOW_MS) for offset, value in enumerate([b"a" * 99, b"b"] * 2)
    ]


async def test_a_changed_configuration_takes_effect(bench: Bench) -> None:
    bench.append(b"a", key=None)
    bench.partition.reconfigure(TopicConfig.of({"cleanup.policy": "compact", "max.message.bytes": "90"}))
    with refusal(Fault.INVALID_RECORD):
        bench.append(b"a", key=None)
    with refusal(Fault.BATCH_TOO_LARGE):
        bench.append(b"a" * 90)


# --- idempotent producers


async def test_a_repeat_is_answered_as_the_first_time(bench: Bench) -> None:
    for sequence in range(5):
        bench.append(b"%d" % sequence, producer=PRODUCER, base_sequence=sequence)
    for sequence in range(5):
        again = bench.append(b"%d" % sequence, producer=PRODUCER, base_sequence=sequence)
        assert again.base_offset == sequence
    assert (len(bench.values()), bench.counters.duplicate_batches) == (5, 5)


async def test_gaps_and_older_epochs_are_refused(bench: Bench) -> None:
    bench.append(b"a", producer=ProducerIdentity(7, 1), base_sequence=0)
    with refusal(Fault.OUT_OF_ORDER_SEQUENCE):
        bench.append(b"c", producer=ProducerIdentity(7, 1), base_sequence=2)
    with refusal(Fault.INVALID_PRODUCER_EPOCH):
        bench.append(b"b", producer=ProducerIdentity(7, 0), base_sequence=1)


async def test_an_idempotent_batch_comes_with_none_but_its_producers_next_ones(bench: Bench) -> None:
    a, b, c = (batch_of(b"%d" % number, producer=PRODUCER, base_sequence=number) for number in range(3))
    for wrong in (batch_of(b"a") + a, a + batch_of(b"a"), a + c, b + a):
        with refusal(Fault.INVALID_RECORD):
            bench.send(wrong)
    assert bench.values() == []
    bench.send(a + b)
    with refusal(Fault.INVALID_RECORD):
        bench.send(b + c)  # the first batch is repeated
    with refusal(Fault.OUT_OF_ORDER_SEQUENCE):
        bench.append(b"late", producer=PRODUCER, base_sequence=4)
    bench.send(c)
    assert bench.values() == [b"0", b"1", b"2"]


# --- transactions


def transactional(bench: Bench, value: bytes, sequence: int, producer: ProducerIdentity = PRODUCER) -> Any:
    return bench.append(value, tid="tx", producer=producer, base_sequence=sequence, transactional=True)


async def test_records_of_no_open_transaction_are_refused(bench: Bench) -> None:
    with refusal(Fault.INVALID_TRANSACTION_STATE):
        transactional(bench, b"a", 0)
    with refusal(Fault.INVALID_TRANSACTION_STATE):
        bench.append(b"a", producer=PRODUCER, base_sequence=0, transactional=True)
    assert bench.values() == []


@pytest.mark.parametrize("committed", [True, False])
async def test_committed_readers_wait_for_the_marker(bench: Bench, committed: bool) -> None:
    bench.guard.open.add(("tx", PRODUCER))
    bench.append(b"before")
    transactional(bench, b"inside", 0)
    bench.append(b"after")
    assert bench.values(isolation=COMMITTED) == [b"before"]
    assert bench.values() == [b"before", b"inside", b"after"]
    assert bench.partition.append_marker(PRODUCER, committed=committed, coordinator_epoch=0) is None
    read = bench.read(isolation=COMMITTED)
    assert (read.last_stable_offset, read.high_watermark) == (4, 4)
    assert list(read.aborted) == ([] if committed else [AbortedTransaction(7, 1)])


async def test_a_marker_is_written_once_and_only_where_something_is_open(bench: Bench) -> None:
    bench.partition.append_marker(PRODUCER, committed=True, coordinator_epoch=0)
    assert bench.log.end_offset == 0
    bench.guard.open.add(("tx", PRODUCER))
    transactional(bench, b"a", 0)
    for _ in range(3):
        bench.partition.append_marker(PRODUCER, committed=True, coordinator_epoch=0)
    assert bench.log.end_offset == 2


async def test_a_marker_of_the_next_epoch_fences(bench: Bench) -> None:
    bench.guard.open.add(("tx", PRODUCER))
    transactional(bench, b"a", 0)
    bench.partition.append_marker(ProducerIdentity(7, 1), committed=False, coordinator_epoch=0)
    with refusal(Fault.INVALID_PRODUCER_EPOCH):
        transactional(bench, b"b", 1)
    bench.guard.open.add(("tx", ProducerIdentity(7, 2)))
    transactional(bench, b"c", 0, ProducerIdentity(7, 2))


async def test_a_repeat_is_answered_even_after_its_transaction(bench: Bench) -> None:
    bench.guard.open.add(("tx", PRODUCER))
    transactional(bench, b"a", 0)
    bench.partition.append_marker(PRODUCER, committed=True, coordinator_epoch=0)
    bench.guard.open.clear()
    assert transactional(bench, b"a", 0).base_offset == 0
    with refusal(Fault.INVALID_TRANSACTION_STATE):
        transactional(bench, b"b", 1)


async def test_many_aborted_transactions_are_told_as_far_as_the_read_goes(bench: Bench) -> None:
    bench.guard.open.add(("tx", PRODUCER))
    for sequence in range(40):
        transactional(bench, b"x" * 10, sequence)
        bench.partition.append_marker(PRODUCER, committed=False, coordinator_epoch=0)
    read = bench.partition.read(10, 500, COMMITTED, at_least_one=True)
    last = max(record.offset for record in records_of(read))
    assert [t.first_offset for t in read.aborted] == list(range(10, last + 1, 2))
    assert last < 30


# --- waiting


async def test_waiters_are_told_the_size_of_what_came(bench: Bench) -> None:
    waiter = Waiter()
    bench.partition.watch(waiter, UNCOMMITTED)
    data = batch_of(b"a")
    bench.send(data)
    bench.partition.unwatch(waiter)
    bench.send(data)
    bench.partition.unwatch(waiter)
    assert waiter.told == [len(data)]


async def test_a_waiter_may_leave_while_it_is_told(bench: Bench) -> None:
    first, second = Waiter(), Waiter()
    first.grown = lambda size: bench.partition.unwatch(first)  # type: ignore[method-assign]
    for waiter in (first, second):
        bench.partition.watch(waiter, UNCOMMITTED)
    bench.append(b"a")
    assert len(second.told) == 1


async def test_repeats_wake_nobody(bench: Bench) -> None:
    bench.append(b"a", producer=PRODUCER, base_sequence=0)
    waiter = Waiter()
    bench.partition.watch(waiter, UNCOMMITTED)
    bench.append(b"a", producer=PRODUCER, base_sequence=0)
    assert waiter.told == []


async def test_committed_waiters_count_stable_bytes_only(bench: Bench) -> None:
    waiter = Waiter()
    bench.partition.watch(waiter, COMMITTED)
    data = batch_of(b"a")
    bench.send(data)
    assert waiter.told == [len(data)]
    bench.guard.open.add(("tx", PRODUCER))
    transactional(bench, b"a", 0)
    bench.send(data)
    assert waiter.told == [len(data)]
    bench.partition.append_marker(PRODUCER, committed=True, coordinator_epoch=0)
    assert waiter.told == [len(data), 0]


async def test_of_two_transactions_the_older_one_holds_readers_back(bench: Bench) -> None:
    other = ProducerIdentity(8, 0)
    bench.guard.open |= {("tx", PRODUCER), ("tx", other)}
    transactional(bench, b"a", 0)
    transactional(bench, b"b", 0, other)
    waiter = Waiter()
    bench.partition.watch(waiter, COMMITTED)
    bench.partition.append_marker(other, committed=True, coordinator_epoch=0)
    assert (waiter.told, bench.values(isolation=COMMITTED)) == ([], [])
    bench.partition.append_marker(PRODUCER, committed=True, coordinator_epoch=0)
    assert (waiter.told, bench.values(isolation=COMMITTED)) == ([0], [b"a", b"b"])


async def test_a_deleted_partition_wakes_and_refuses(bench: Bench) -> None:
    bench.append(b"a")
    read = bench.read()
    waiters = [Waiter(), Waiter()]
    bench.partition.watch(waiters[0], UNCOMMITTED)
    bench.partition.watch(waiters[1], COMMITTED)
    bench.partition.remove()
    assert [waiter.told for waiter in waiters] == [["gone"], ["gone"]]
    for call in (
        lambda: bench.append(b"b"),
        bench.read,
        lambda: bench.partition.offset_for_time(0, UNCOMMITTED),
        lambda: bench.partition.delete_before(0),
        lambda: bench.partition.append_marker(PRODUCER, committed=True, coordinator_epoch=0),
    ):
        with refusal(Fault.UNKNOWN_TOPIC):
            call()
    assert [record.value for record in records_of(read)] == [b"a"]  # records that were read stay readable


# --- look-ups


async def test_offsets_by_time(bench: Bench) -> None:
    nothing = OffsetAtTime(-1, -1, -1)
    assert bench.partition.offset_for_time(0, UNCOMMITTED) == nothing
    for minute in range(3):
        bench.append(b"a", timestamp=NOW_MS - 180_000 + minute * 60_000)
    bench.guard.open.add(("tx", PRODUCER))
    bench.append(b"x", tid="tx", timestamp=NOW_MS, producer=PRODUCER, base_sequence=0, transactional=True)
    find = bench.partition.offset_for_time
    assert find(EARLIEST_TIMESTAMP, UNCOMMITTED) == OffsetAtTime(0, -1, 0)
    assert find(LATEST_TIMESTAMP, UNCOMMITTED) == OffsetAtTime(4, -1, 0)
    assert find(LATEST_TIMESTAMP, COMMITTED) == OffsetAtTime(3, -1, 0)
    assert find(MAX_TIMESTAMP, UNCOMMITTED) == OffsetAtTime(3, NOW_MS, 0)
    assert find(NOW_MS - 120_001, UNCOMMITTED) == OffsetAtTime(1, NOW_MS - 120_000, 0)
    assert find(NOW_MS, UNCOMMITTED) == OffsetAtTime(3, NOW_MS, 0)
    assert find(NOW_MS, COMMITTED) == nothing
    assert find(NOW_MS + 1, UNCOMMITTED) == nothing
    with refusal(Fault.INVALID_REQUEST):
        find(-9, UNCOMMITTED)


async def test_leader_epochs_are_checked(bench: Bench) -> None:
    bench.log.begin_epoch(4)
    bench.append(b"a")
    bench.partition.check_leader_epoch(-1)
    bench.partition.check_leader_epoch(4)
    with refusal(Fault.FENCED_LEADER_EPOCH):
        bench.partition.check_leader_epoch(3)
    with refusal(Fault.UNKNOWN_LEADER_EPOCH):
        bench.partition.check_leader_epoch(5)
    assert bench.partition.end_of_epoch(4) == (4, 1)


async def test_records_can_be_deleted(bench: Bench) -> None:
    bench.append(b"a")
    bench.append(b"b")
    assert bench.partition.delete_before(1) == 1
    assert bench.values(1) == [b"b"]
    with refusal(Fault.OFFSET_OUT_OF_RANGE):
        bench.read(0)
    with refusal(Fault.OFFSET_OUT_OF_RANGE):
        bench.partition.delete_before(3)
    assert bench.partition.delete_before(-1) == 2


# --- acknowledgements that wait for the disk


async def test_with_fsync_per_batch_the_answer_waits(make: Callable[..., Bench]) -> None:
    bench = make(fsync=FsyncPolicy.BATCH)
    answers = [bench.append(b"%d" % n, producer=PRODUCER, base_sequence=n) for n in range(3)]
    answers.append(bench.append(b"2", producer=PRODUCER, base_sequence=2))
    assert all(asyncio.isfuture(answer) for answer in answers)
    assert [(await answer).base_offset for answer in answers] == [0, 1, 2, 2]
    assert bench.append(b"2", producer=PRODUCER, base_sequence=2).base_offset == 2
    assert bench.append(b"unasked", acks=0) == Appended(3, -1, 0)


async def test_with_fsync_per_batch_markers_wait(make: Callable[..., Bench]) -> None:
    bench = make(fsync=FsyncPolicy.BATCH)
    bench.guard.open.add(("tx", PRODUCER))
    transactional(bench, b"a", 0)
    written = bench.partition.append_marker(PRODUCER, committed=True, coordinator_epoch=0)
    assert written is not None
    await written
    assert bench.log.flushed_offset == 2


async def test_an_answer_nobody_waits_for_harms_nothing(make: Callable[..., Bench]) -> None:
    bench = make(fsync=FsyncPolicy.BATCH)
    bench.append(b"a").cancel()
    assert (await bench.append(b"b")).base_offset == 1


class Asking:
    """A guard that answers later, as another host does."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[None]] = []

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> asyncio.Future[None]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


def tx_batch(sequence: int) -> memoryview:
    records = [Record(b"k", b"v", (), NOW_MS)]
    return memoryview(
        bytearray(build_batch(records, producer=PRODUCER, base_sequence=sequence, transactional=True))
    )


async def test_a_home_elsewhere_is_asked_once_a_transaction_and_the_order_is_kept(bench: Bench) -> None:
    guard = Asking()
    bench.partition._guard = guard
    batches = [tx_batch(number) for number in range(3)]
    answers = [bench.partition.append(data, 1, "tx") for data in batches]
    for data in batches:
        data[:] = bytes(len(data))  # the partition keeps no reference to the caller's data
    assert len(guard.asked) == 1
    assert bench.partition.log.end_offset == 0
    guard.asked[0].set_result(None)
    offsets = [(await answer).base_offset for answer in answers if isinstance(answer, asyncio.Future)]
    assert offsets == [0, 1, 2]
    later = bench.partition.append(tx_batch(3), 1, "tx")
    assert isinstance(later, Appended)
    repeat = bench.partition.append(tx_batch(3), 1, "tx")
    assert repeat == Appended(3, -1, 0)
    assert len(guard.asked) == 1
    bench.partition.append_marker(PRODUCER, committed=True, coordinator_epoch=0)
    refused = bench.partition.append(tx_batch(4), 1, "tx")
    assert isinstance(refused, asyncio.Future)
    guard.asked[1].set_exception(TreecastError(Fault.INVALID_TRANSACTION_STATE))
    with refusal(Fault.INVALID_TRANSACTION_STATE):
        await refused
    assert bench.partition.log.end_offset == 5


@pytest.mark.parametrize("answer", [None, TreecastError(Fault.INVALID_TRANSACTION_STATE)])
async def test_an_answer_from_before_a_marker_does_not_count(
    bench: Bench, answer: TreecastError | None
) -> None:
    """The home confirmed an open transaction, but ended it before the batch was appended."""
    guard = Asking()
    bench.partition._guard = guard
    waiting = [bench.partition.append(tx_batch(number), 1, "tx") for number in range(2)]
    bench.partition.append_marker(PRODUCER, committed=False, coordinator_epoch=0)
    if answer is None:
        guard.asked[0].set_result(None)
    else:
        guard.asked[0].set_exception(answer)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bench.partition.log.end_offset == 0
    assert len(guard.asked) == 2
    guard.asked[1].set_result(None)
    assert [(await one).base_offset for one in waiting if isinstance(one, asyncio.Future)] == [0, 1]
    assert not bench.partition._outdated
