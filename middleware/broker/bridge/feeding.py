"""Feeds MQTT subscribers of recorded topics from the partitions, each record once.

A partition is followed from the time at which this host first has a subscriber of its topic. The SUBACK waits
for the partition's end offset. A partition created while its topic has subscribers is read from its first
record. The journal stores the delivered position together with its effects on persistent sessions, so a
restart continues there. Records of a transaction are delivered after its commit.
"""

from __future__ import annotations

import asyncio
import random
from asyncio import Future, Task
from collections.abc import Callable

from treecast.middleware.api.lasting import BackOff, lasting
from treecast.middleware.broker.cluster import Cluster, PartitionLeader
from treecast.middleware.broker.committed import CommittedRecords
from treecast.middleware.broker.pubsub import Journal
from treecast.middleware.broker.values import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Isolation,
    OffsetAtTime,
    PartitionRead,
    Topic,
)
from treecast.middleware.model.counters import BridgeCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.records import Record

_log = Log(__name__)

_COMMITTED = Isolation.READ_COMMITTED
_CHUNK = 1 << 20  # bytes of one read
_LOOK_AGAIN = 5.0  # seconds without news until the partition is read anyway

Deliver = Callable[[list[Record]], None]


class PartitionFeed:
    """The feed from one partition of a topic. Implements `cluster.ReadWaiter`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: Topic,
        index: int,
        journal: Journal | None,
        counters: BridgeCounters,
        retry: float,
        deliver: Deliver,
    ) -> None:
        self._records = CommittedRecords()
        self.ready = asyncio.Event()
        self._cluster = cluster
        self._topic = topic
        self._index = index
        self._journal = journal
        self._key = (0, topic.topic_id.int, index)  # as a stream of the journal; no host has id 0
        self._counters = counters
        self._retry = retry
        self._deliver = deliver
        self._more = asyncio.Event()
        self._watched: PartitionLeader | None = None
        self._task: Task[None] = asyncio.get_running_loop().create_task(
            lasting(f"feed of {topic.name}-{index}", self._run, BackOff(random.Random())),
            name=f"feed of {topic.name}-{index}",
        )

    @property
    def offset(self) -> int:
        """The offset of the next record; -1 while unknown."""
        return self._records.offset

    @offset.setter
    def offset(self, offset: int) -> None:
        self._records.offset = offset

    # --- life

    def begin_at_the_first(self) -> None:
        """Starts at the first record, for a partition just created. Call it in the turn that made the feed.

        A position in the journal takes precedence.
        """
        if self._journal is None or self._key not in self._journal.passed:
            self.offset = 0
            self._note(0)

    def stop(self) -> Task[None]:
        """Stops the feed. Returns its cancelled task."""
        self._unwatch()
        self._task.cancel()
        return self._task

    def forget(self) -> None:
        """Removes the position from the journal."""
        if self._journal is not None and self._key in self._journal.passed:
            self._journal.pass_by(self._key, 0)

    def grown(self, size: int) -> None:
        self._more.set()

    def foreseen(self, size: int) -> None:
        """Does nothing: the feed delivers only records that are in the log."""

    def gone(self) -> None:
        self._watched = None
        self._more.set()

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._watched.unwatch(self)
            self._watched = None

    # --- reading

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except TreecastError as error:
                self._counters.feeds_failed += 1
                if error.fault in (Fault.UNKNOWN_TOPIC, Fault.UNKNOWN_TOPIC_ID):
                    self.ready.set()
                    return  # the bridge is notified of the deletion
                _log.info(
                    "bridge reads a partition again later",
                    partition=f"{self._topic.name}-{self._index}",
                    error=error,
                )
            await asyncio.sleep(self._retry)

    async def _follow(self) -> None:
        leader = self._cluster.partition(self._topic.name, self._index)
        if self.offset < 0:
            self.offset = await self._beginning(leader)
        if self._watched is not leader:
            self._unwatch()
            leader.watch(self, _COMMITTED)
            self._watched = leader
        self.ready.set()
        while self._watched is leader:
            self._more.clear()
            try:
                found = leader.read(self.offset, _CHUNK, _COMMITTED, at_least_one=True)
                if isinstance(found, Future):
                    found = await found
            except TreecastError as error:
                if error.fault is not Fault.OFFSET_OUT_OF_RANGE:
                    raise
                self.offset = await self._skipped(leader)
                continue
            if found.size:
                self._take(found)
                await asyncio.sleep(0)
            elif not self._more.is_set():
                await _set_within(self._more, _LOOK_AGAIN)

    async def _beginning(self, leader: PartitionLeader) -> int:
        """Returns the position of an earlier run (the journal stores it plus 1), else the partition's end."""
        if self._journal is not None and self._key in self._journal.passed:
            return self._journal.passed[self._key] - 1
        offset = await self._end(leader)
        self._note(offset)
        return offset

    async def _end(self, leader: PartitionLeader) -> int:
        found = leader.offset_for_time(LATEST_TIMESTAMP, _COMMITTED)
        at: OffsetAtTime = await found if isinstance(found, Future) else found
        return at.offset

    async def _skipped(self, leader: PartitionLeader) -> int:
        """Returns the offset to continue at after retention has deleted the next record."""
        self._counters.feeds_cut += 1
        found = leader.offset_for_time(EARLIEST_TIMESTAMP, _COMMITTED)
        at: OffsetAtTime = await found if isinstance(found, Future) else found
        return at.offset if at.offset > self.offset else await self._end(leader)

    def _note(self, offset: int) -> None:
        if self._journal is not None:
            self._journal.pass_by(self._key, offset + 1)

    # --- records

    def _take(self, found: PartitionRead) -> None:
        records = self._records.of(found)
        if records:
            self._deliver(records)
        self._note(self.offset)


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
