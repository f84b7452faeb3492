"""Transactions on a real data directory against a reference, with the process killed at any step.

The reference knows what a read_committed reader may see: per partition a list of values, each with the
transaction that wrote it. Producers come and go, lose answers, are fenced and time out. The broker is dropped
without a close, also between a decision and its markers, and is opened again from its files.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from treecast.middleware.broker import (
    GROUPS,
    TRANSACTIONS,
    Broker,
    BrokerSettings,
    CommittedOffset,
    InitProducer,
    Isolation,
    MemberIdentity,
    NewTopic,
    PartitionRead,
)
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import Host, ProducerIdentity, TopicPartition
from treecast.middleware.model.records import Record
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.wire.record_batch import (
    ABORT,
    build_batch,
    read_control_type,
    read_header,
    read_records,
)

PARTITIONS = [TopicPartition("t", index) for index in range(3)]
IDS = ["tx-a", "tx-b", "tx-c"]
GROUP = "g"
TIMEOUT = 60.0
T = TypeVar("T")

_FENCED = (Fault.PRODUCER_FENCED, Fault.INVALID_PRODUCER_EPOCH, Fault.INVALID_PRODUCER_MAPPING)


class Kill(BaseException):
    """The process ends here."""


@dataclass(eq=False)
class Written:
    """A transaction in the reference."""

    started: float
    status: str = "open"  # open, committed, aborted
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class Client:
    """A producer: its state, and the last batch that it sent."""

    identity: ProducerIdentity | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    last: tuple[TopicPartition, bytes, int] | None = None  # partition, batch, offset
    open: Written | None = None
    former: list[ProducerIdentity] = field(default_factory=list)


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="transactions-"))
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.broker = self._opened()
        self.run(self.broker.cluster.definitions.create_topic(NewTopic("t", len(PARTITIONS))))
        self.clients = {tid: Client() for tid in IDS}
        self.log: dict[TopicPartition, list[tuple[bytes, Written | None]]] = {p: [] for p in PARTITIONS}
        self.committed: dict[TopicPartition, int] = {}
        self.values = 0

    def teardown(self) -> None:
        self.run(self.broker.close())
        self.runner.close()
        shutil.rmtree(self.path)

    # --- the machinery

    def run(self, call: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await call

        return self.runner.run(awaited())

    def _opened(self) -> Broker:
        settings = BrokerSettings(self.path, fsync=FsyncPolicy.NEVER)
        broker = Broker(settings, Host(1, "h"), Counters(), clock=self.clock)
        self.run(broker.start())
        return broker

    def _kill(self) -> None:
        """Drops the broker; the next one reads only the files."""
        parts: Any = self.broker._parts
        parts.abandon()
        self.broker = self._opened()

    def _until(self, deeds: int, call: Callable[[], Awaitable[T]]) -> T:
        """Runs `call`, and kills the process before durable deed number `deeds`."""
        parts: Any = self.broker._parts
        left = deeds
        killed = asyncio.Event()

        def count() -> None:
            nonlocal left
            if left == 0:
                killed.set()
                raise Kill
            left -= 1

        commit = parts.tables.commit

        async def counted_commit(changes: Any) -> None:
            try:
                count()
            except Kill:
                await asyncio.Event().wait()  # the writer never continues
            await commit(changes)

        parts.tables.commit = counted_commit
        get = parts.partitions.get
        parts.partitions.get = lambda topic, index: Counted(get(topic, index), count)
        try:
            return self.run(_unless(killed, call()))
        finally:
            parts.tables.commit = commit
            del parts.partitions.get

    def _finish(self, written: Written, *, committed: bool) -> None:
        written.status = "committed" if committed else "aborted"
        if committed:
            self.committed |= written.offsets

    def _home(self, tid: str) -> Any:
        return self.broker.cluster.home(TRANSACTIONS, tid)

    def _append(self, tid: str, partition: TopicPartition, batch: bytes) -> int:
        leader = self.broker.cluster.partition(partition.topic, partition.partition)
        appended: Any = leader.append(memoryview(bytearray(batch)), -1, tid)
        return int(appended.base_offset)

    def _batch(self, client: Client, partition: TopicPartition, identity: ProducerIdentity) -> bytes:
        self.values += 1
        return build_batch(
            [Record(None, b"%d" % self.values, (), int(self.clock.now * 1000))],
            producer=identity,
            base_sequence=client.sequences.get(partition, 0),
            transactional=True,
        )

    # --- what producers do

    @initialize()
    def begin(self) -> None:
        for tid in IDS:
            self.take_over(tid, deeds=99, known=False)

    @rule(tid=st.sampled_from(IDS), deeds=st.integers(0, 6), known=st.booleans())
    def take_over(self, tid: str, deeds: int, known: bool) -> None:
        client = self.clients[tid]
        was_open = client.open
        request = InitProducer(tid, int(TIMEOUT * 1000))
        if known and client.identity is not None:
            request = InitProducer(tid, int(TIMEOUT * 1000), client.identity)
        try:
            identity = self._until(deeds, lambda: self._home(tid).init_producer(request))
        except Kill:
            self._kill()
            if was_open is not None and deeds > 0:
                self._finish(was_open, committed=False)
                client.open = None
            if deeds > 0:
                self._gave_way(client)
            return
        if was_open is not None:
            self._finish(was_open, committed=False)
        assert identity not in client.former
        self._gave_way(client)
        client.identity, client.open = identity, None

    def _gave_way(self, client: Client) -> None:
        """The client starts with a new identity; the former one holds no guarantee."""
        if client.identity is not None:
            client.former.append(client.identity)
        client.identity, client.last = None, None
        client.sequences = {}

    def _open(self) -> list[str]:
        return [tid for tid, client in self.clients.items() if client.identity and client.open]

    def _producing(self) -> list[str]:
        return [tid for tid, client in self.clients.items() if client.identity is not None]

    @precondition(lambda self: self._producing())
    @rule(data=st.data(), partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def produce(self, data: st.DataObject, partitions: set[TopicPartition]) -> None:
        tid = data.draw(st.sampled_from(self._producing()))
        client = self.clients[tid]
        assert client.identity is not None
        assert self.run(self._home(tid).add_partitions(tid, client.identity, sorted(partitions))) == {}
        client.open = client.open or Written(self.clock.now)
        for partition in sorted(partitions):
            batch = self._batch(client, partition, client.identity)
            client.last = (partition, batch, self._append(tid, partition, batch))
            client.sequences[partition] = client.sequences.get(partition, 0) + 1
            self.log[partition].append((b"%d" % self.values, client.open))

    @precondition(lambda self: self._producing())
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 99))
    def commit_offset(self, data: st.DataObject, partition: TopicPartition, offset: int) -> None:
        tid = data.draw(st.sampled_from(self._producing()))
        client = self.clients[tid]
        assert client.identity is not None
        self.run(self._home(tid).add_offsets(tid, client.identity, GROUP))
        client.open = client.open or Written(self.clock.now)
        if any(partition in other.open.offsets for other in self.clients.values() if other.open):
            return  # two open commits of one offset are tested with groups
        home = self.broker.cluster.home(GROUPS, GROUP)
        refused = self.run(
            home.commit_transaction_offsets(
                GROUP, MemberIdentity(), tid, client.identity, {partition: CommittedOffset(offset)}
            )
        )
        assert refused == {}
        client.open.offsets[partition] = offset

    @rule(partition=st.sampled_from(PARTITIONS))
    def produce_plainly(self, partition: TopicPartition) -> None:
        self.values += 1
        value = b"%d" % self.values
        leader = self.broker.cluster.partition(partition.topic, partition.partition)
        batch = build_batch([Record(None, value, (), int(self.clock.now * 1000))])
        leader.append(memoryview(bytearray(batch)), -1, None)
        self.log[partition].append((value, None))

    @precondition(lambda self: self._producing())
    @rule(data=st.data())
    def repeat_the_last_batch(self, data: st.DataObject) -> None:
        tid = data.draw(st.sampled_from(self._producing()))
        last = self.clients[tid].last
        if last is not None:
            partition, batch, offset = last
            assert self._append(tid, partition, batch) == offset

    @precondition(lambda self: self._open())
    @rule(data=st.data(), committed=st.booleans(), deeds=st.integers(0, 6), asks_again=st.booleans())
    def end(self, data: st.DataObject, committed: bool, deeds: int, asks_again: bool) -> None:
        tid = data.draw(st.sampled_from(self._open()))
        client = self.clients[tid]
        written, identity = client.open, client.identity
        assert identity is not None
        assert written is not None
        try:
            self._until(deeds, lambda: self._home(tid).end(tid, identity, committed=committed))
        except Kill:
            self._kill()
            if deeds == 0:
                return  # nothing was decided: the transaction is still open
            if asks_again:
                self.run(self._home(tid).end(tid, identity, committed=committed))
        self._finish(written, committed=committed)
        client.open = None

    @precondition(lambda self: any(client.former for client in self.clients.values()))
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def a_zombie_is_refused(self, data: st.DataObject, partition: TopicPartition) -> None:
        tid = data.draw(st.sampled_from([tid for tid, client in self.clients.items() if client.former]))
        client = self.clients[tid]
        identity = data.draw(st.sampled_from(client.former))
        for call in (
            lambda: self.run(self._home(tid).add_partitions(tid, identity, [partition])),
            lambda: self.run(self._home(tid).end(tid, identity, committed=True)),
        ):
            with pytest.raises(TreecastError) as caught:
                call()
            assert caught.value.fault in _FENCED
        with suppress(TreecastError):  # otherwise it counts as a repeat of the producer's first batch
            self._append(tid, partition, self._batch(Client(), partition, identity))
        self.readers_see_what_the_reference_says()  # nothing was added

    # --- events from outside

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        if killed:
            self._kill()
            return
        self.run(self.broker.close())
        self.broker = self._opened()

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        self.run(self.broker.housekeeping(self.clock.now))
        for client in self.clients.values():
            if client.open is not None and self.clock.now >= client.open.started + TIMEOUT:
                self._finish(client.open, committed=False)
                client.open = None
                self._gave_way(client)

    # --- what readers see

    @invariant()
    def readers_see_what_the_reference_says(self) -> None:
        for partition, written in self.log.items():
            leader = self.broker.cluster.partition(partition.topic, partition.partition)
            everything: Any = leader.read(0, 1 << 24, Isolation.READ_UNCOMMITTED, at_least_one=True)
            assert _values(everything, drop_aborted=False) == [value for value, _ in written]
            stable: Any = leader.read(0, 1 << 24, Isolation.READ_COMMITTED, at_least_one=True)
            assert _values(stable, drop_aborted=True) == _expected(written)

    @invariant()
    def the_group_has_what_was_committed(self) -> None:
        home = self.broker.cluster.home(GROUPS, GROUP)
        found = self.run(home.fetch_offsets(GROUP, None, require_stable=False))
        assert {p: commit.offset for p, commit in found.items()} == self.committed  # type: ignore[union-attr]


async def _unless(killed: asyncio.Event, call: Awaitable[T]) -> T:
    """Returns the result of `call`. Raises Kill once the process is dead, and cancels all its tasks."""
    request, death = asyncio.ensure_future(call), asyncio.ensure_future(killed.wait())
    await asyncio.wait([request, death], return_when=asyncio.FIRST_COMPLETED)
    if not killed.is_set():
        death.cancel()
        return await request
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(request, *tasks, return_exceptions=True)
    raise Kill


class Counted:
    """A partition whose markers count as deeds. A wrapper, as a compiled class takes no other method."""

    def __init__(self, partition: Any, count: Callable[[], None]) -> None:
        self._partition = partition
        self._count = count

    def append_marker(self, *args: Any, **kwargs: Any) -> Any:
        self._count()
        return self._partition.append_marker(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)


def _expected(written: list[tuple[bytes, Written | None]]) -> list[bytes]:
    seen: list[bytes] = []
    for value, transaction in written:
        if transaction is not None and transaction.status == "open":
            break
        if transaction is None or transaction.status == "committed":
            seen.append(value)
    return seen


def _values(read: PartitionRead, *, drop_aborted: bool) -> list[bytes | None]:
    """Returns a consumer's view of a response, by Kafka's rule for aborted transactions."""
    data = b"".join(map(bytes, read.chunks))
    coming = sorted(read.aborted, key=lambda aborted: aborted.first_offset)
    dropping: set[int] = set()
    values: list[bytes | None] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        while coming and coming[0].first_offset <= header.last_offset:
            dropping.add(coming.pop(0).producer_id)
        if header.control:
            if read_control_type(data, position, header) == ABORT:
                dropping.discard(header.producer_id)
        elif not (drop_aborted and header.transactional and header.producer_id in dropping):
            values += [record.value for record in read_records(data, position, header)]
        position += header.size
    return values


Transactions.TestCase.settings = settings(max_examples=75, stateful_step_count=30)
TestTransactions = Transactions.TestCase
