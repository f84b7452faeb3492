"""`Way`: the topics of one cluster carried to another one, from the lease to the last commit.

    look    topics and leaders of both clusters, every `poll_seconds`
    write   what was fetched, in transactions
    keep    the lease, see `lease`
    tell    offsets, groups and heartbeats in MirrorMaker 2's topics, see `telling`

The first of them that fails ends all four, and they start over at the commits.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from treecast.agents.common.status import AgentCounters
from treecast.agents.kafka.cluster import KafkaCluster, TopicFound
from treecast.agents.kafka.connection import ConnectionLost
from treecast.agents.kafka.looks import Looks
from treecast.middleware.api.lasting import BackOff
from treecast.middleware.broker.values import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    CommittedOffset,
    Isolation,
)
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.logs import Log
from treecast.middleware.wire.kafka_primitives import CodecError

from .batches import Sieve, halves
from .lease import HeldElsewhere, Lease
from .memory import Maps, WayMemory
from .naming import Naming
from .offsets import translated
from .settings import BridgeSettings, WaySettings
from .source import Arrived, Source, SourcePartition
from .telling import Telling
from .topics import grow_topic, make_topic, settings_of
from .writer import Load, Refused, Writer

_IDLE_SECONDS: Final = 5.0  # until offsets are committed behind which nothing was carried

_log = Log(__name__)


class Notes(Protocol):
    """The agent: its counts, its troubles, and its memory."""

    @property
    def counters(self) -> AgentCounters: ...

    def note(self, what: str, detail: str) -> None: ...

    def settled(self, what: str) -> None: ...

    def remember(self) -> None: ...


class WayStatus(Struct):
    """`fetching`: the partitions that are read. `lag`: records that the source has and the way has not read.

    `moved`: records that the target has taken; `looped`: that had come from it.
    """

    serving: bool
    partitions: int
    fetching: int
    lag: int
    moved: int
    looped: int
    transactions: int
    groups: int


class Way:
    """In use from `run` to its cancellation and `close`. `back`: the way in the other direction, if this
    agent has it."""

    def __init__(
        self,
        settings: BridgeSettings,
        way: WaySettings,
        source: KafkaCluster,
        target: KafkaCluster,
        memory: WayMemory,
        notes: Notes,
        client_id: str,
    ) -> None:
        self.way = way
        self.back: Way | None = None
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.serving = False
        self.naming = Naming(way.source, way.target, way.names == "prefix", way.topics, way.not_topics)
        self._looks = Looks(settings.clusters[way.source].poll_seconds)
        self.writer = Writer(target, self.naming.group, self._looks.soon)
        self.source = Source(source, settings.clusters[way.source], self._looks.soon)
        self.maps = Maps(memory.maps)
        self.producers = set(memory.producers)
        self.committed: dict[TopicPartition, CommittedOffset] = {}  # by partition of the target
        self.moved = 0
        self.looped = 0
        self.telling = Telling(settings, way, source, target, self)
        self._settings = settings
        self._clusters = source, target
        self._lease = Lease(self.writer.groups, self.naming.group, client_id)
        self._notes = notes
        self._idle: dict[TopicPartition, CommittedOffset] = {}
        self._idle_since = 0.0

    @property
    def name(self) -> str:
        return self.way.name

    @property
    def memory(self) -> WayMemory:
        return WayMemory(sorted(self.producers), self.maps.known())

    # --- life

    async def run(self) -> None:
        """Carries until it is cancelled, also after failures."""
        back_off = BackOff(random.Random())  # nosec B311  # pauses, no secrets
        while True:
            try:
                await self._carry(back_off)
            except (TreecastError, ConnectionLost, CodecError, HeldElsewhere) as error:
                self._failed(error)
            await asyncio.sleep(back_off.pause())

    def _failed(self, error: Exception) -> None:
        self.serving = False
        self._notes.note(self.name, error.detail if isinstance(error, TreecastError) else str(error))
        if isinstance(error, HeldElsewhere) and not self.begun.done():
            self.begun.set_exception(error)

    async def _carry(self, back_off: BackOff) -> None:
        for cluster in self._clusters:
            await cluster.refresh()
        await self._lease.take()
        try:
            await self._begin()
            back_off.reset()
            await first_end(self._look_often(), self._write(), self._lease.keep(), self._tell())
        finally:
            self.source.forget()
            await self._lease.leave()

    async def _begin(self) -> None:
        """Ends what an earlier run has left open, and learns how far it has come."""
        producer = await self.writer.begin()
        if producer.producer_id not in self.producers:
            self.producers.add(producer.producer_id)
            self._notes.remember()  # before the first batch: the way back knows it by this id
        if not self.naming.prefix:
            await self._learn_producers()
        group = self.naming.group
        found = await self.writer.groups.fetch_offsets(group, None, require_stable=True)
        self.committed.clear()
        self._idle.clear()
        for name, one in found.items():
            if isinstance(one, TreecastError):
                raise one
            self.committed[name] = one

    async def _learn_producers(self) -> None:
        """Asks the target under which ids this way has written: the memory may be that of another agent."""
        for one in await self.writer.transactions.list_transactions(None):
            if one.transactional_id == self.naming.group:
                self.producers.add(one.producer.producer_id)

    async def close(self) -> None:
        await self.source.close()

    # --- topics

    async def _look_often(self) -> None:
        while True:
            for cluster in self._clusters:
                await cluster.refresh()
            await self._plan()
            if not self.serving:
                self.serving = True
                self._notes.settled(self.name)
                if not self.begun.done():
                    self.begun.set_result(None)
            await self._looks.next()

    async def _plan(self) -> None:
        """Makes the topics of the target as the source has them, and reads their partitions."""
        source = self._clusters[0]
        for topic in list(source.found.topics.values()):
            name = self.naming.at_target(topic.name)
            if name is None or topic.internal:
                continue
            try:
                await self._prepare(topic, name)
                self._notes.settled(f"topic {name}")
            except TreecastError as error:
                self._notes.note(f"topic {name}", f"{self.name}: {error.detail}")
        for partition in list(self.source.partitions.values()):
            found = source.found.topics.get(partition.topic.name)
            if found is None or found.topic_id != partition.topic.topic_id:
                self.source.drop(partition.name)
            elif (leader := source.leader(partition.topic.name, partition.name.partition)) is not None:
                self.source.fetchers.led(partition, leader)
        self.source.fetchers.keep()

    async def _prepare(self, topic: TopicFound, name: str) -> None:
        source, target = self._clusters
        count, there = len(topic.partitions), target.found.topics.get(name)
        if there is None:
            config = await settings_of(source, topic.name)
            await make_topic(target, name, count, self._settings.replicas, config)
            self._looks.soon()  # it can be carried once the target names its leaders
            _log.info("topic is carried", way=self.name, topic=topic.name, name=name, partitions=count)
            return
        if len(there.partitions) < count:
            await grow_topic(target, name, count)
            self._looks.soon()
        for index in range(min(count, len(there.partitions))):
            known = self.source.partitions.get(TopicPartition(topic.name, index))
            if known is None and there.partitions[index].leader >= 0:
                await self._read(topic, index, TopicPartition(name, index))

    async def _read(self, topic: TopicFound, index: int, target: TopicPartition) -> None:
        """Reads a partition on from where it was carried; all of it if another topic had the name before."""
        name, known = TopicPartition(topic.name, index), self.committed.get(target)
        if known is not None and known.metadata == str(topic.topic_id):
            position, epoch = known.offset, known.leader_epoch
        else:
            latest = known is None and self.way.begin == "latest"
            timestamp = LATEST_TIMESTAMP if latest else EARLIEST_TIMESTAMP
            plain = Isolation.READ_UNCOMMITTED
            found = await self.source.owner.offset_for_time(name, timestamp, plain)
            position, epoch, known = found.offset, -1, None
        self.maps.of(name, topic.topic_id).begin(position, new=known is None)
        self.source.partitions[name] = SourcePartition(topic, index, target, position, epoch)

    # --- carrying

    async def _write(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            arrived = await self.source.arrived(_IDLE_SECONDS)
            if arrived:
                await self._turn(arrived)
            if self._idle and clock() - self._idle_since >= _IDLE_SECONDS:
                await self._commit([], {})

    async def _turn(self, arrived: list[Arrived]) -> None:
        loads: list[Load] = []
        positions: dict[TopicPartition, CommittedOffset] = {}
        for one in arrived:
            loads += self._sorted(one)
            topic_id = str(one.partition.topic.topic_id)
            positions[one.partition.target] = CommittedOffset(one.end, one.epoch, topic_id)
        if loads:
            await self._commit(loads, positions)
            return
        if not self._idle:
            self._idle_since = asyncio.get_running_loop().time()
        self._idle |= positions

    def _sorted(self, one: Arrived) -> list[Load]:
        """Returns what of an answer goes to the target."""
        guarded = self.back.producers if self.back is not None and not self.naming.prefix else ()
        taken = Sieve(one.aborted, guarded).take(one.data, one.headers, one.position)
        counters = self._notes.counters
        self.looped += taken.looped
        counters.looped += taken.looped
        counters.taken += sum(batch.count for batch in taken.batches)
        return [Load(one.partition.name, one.partition.target, batch) for batch in taken.batches]

    async def _commit(self, loads: list[Load], positions: Mapping[TopicPartition, CommittedOffset]) -> None:
        positions = {**self._idle, **positions}
        while True:
            try:
                placed = await self.writer.carry(loads, positions, self._lease.member)
                break
            except Refused as refused:
                loads = self._smaller(loads, refused)
        self._idle.clear()
        self.committed.update(positions)
        for load, found in zip(loads, placed, strict=True):
            self._placed(load, found.base_offset)

    def _smaller(self, loads: list[Load], refused: Refused) -> list[Load]:
        """Returns the loads with those halved that the target refuses, down to records, which are left
        out."""
        reasons = {id(load): error for load, error in refused.loads}
        found: list[Load] = []
        for load in loads:
            error = reasons.get(id(load))
            if error is None:
                found.append(load)
                continue
            parts = [Load(load.source, load.target, one) for one in halves(load.batch)]
            if not parts:
                self._notes.counters.refuse_there(error.fault.value, 1)
                first = load.batch.runs[0].first
                _log.error("a record is not carried", place=f"{load.source}@{first}", reason=error.detail)
            found += parts
        return found

    def _placed(self, load: Load, base: int) -> None:
        """Takes note of where a batch is at the target."""
        count = load.batch.count
        self.moved += count
        self._notes.counters.published += count
        found = self.maps.get(load.source)
        at = base
        for run in load.batch.runs:
            if found is not None:
                found.add(run.first, run.count, at)
            at += run.count
        last = load.batch.runs[-1]
        self.telling.moved(load.source, last.first + last.count - 1, at - 1)

    # --- groups

    async def _tell(self) -> None:
        await self.telling.run(self._notes)

    def place_of(self, name: TopicPartition, offset: int) -> tuple[TopicPartition, int] | None:
        """Implements `checkpoints.Translates`."""
        partition = self.source.partitions.get(name)
        own = self.maps.get(name)
        if partition is None or own is None:
            return None
        back, position = None, 0
        if self.back is not None and not self.naming.prefix:
            back, committed = self.back.maps.get(partition.target), self.back.committed.get(name)
            if back is not None and committed is None:
                return None  # the way back has read nothing of it yet
            position = 0 if committed is None else committed.offset
        found = translated(offset, own, back, position)
        return None if found is None else (partition.target, found)

    # --- status

    def status(self) -> WayStatus:
        partitions = list(self.source.partitions.values())
        return WayStatus(
            self.serving,
            len(partitions),
            sum(not one.session.trouble for one in partitions),
            sum(one.lag for one in partitions),
            self.moved,
            self.looped,
            self.writer.carried,
            self.telling.checkpoints.groups,
        )


async def first_end(*work: Coroutine[Any, Any, None]) -> None:
    """Runs all until one of them ends, and raises what it raises; the others are cancelled."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
