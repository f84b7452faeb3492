"""Feeds MQTT subscribers of recorded topics from the partitions, each record once.

A partition is followed from the time at which this host first has a subscriber of its topic. The SUBACK waits
for the partition's end offset. A partition created while its topic has subscribers is read from its first
record. The journal stores the delivered position together with its effects on persistent sessions, so a
restart continues there. Records of a transaction are delivered after its commit.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Callable

from treecast.middleware.broker.cluster import Cluster, PartitionLeader
from treecast.middleware.broker.pubsub import Journal
from treecast.middleware.broker.reading import PartitionReading, committed_offset
from treecast.middleware.broker.values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Topic
from treecast.middleware.model.counters import BridgeCounters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.records import Record

_log = Log(__name__)

_CHUNK = 1 << 20  # bytes of one read

Deliver = Callable[[list[Record]], None]


class PartitionFeed:
    """The feed from one partition of a topic. Implements `reading.Taker`."""

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
        self.ready = asyncio.Event()
        self._name = f"{topic.name}-{index}"
        self._journal = journal
        self._key = (0, topic.topic_id.int, index)  # as a stream of the journal; no host has id 0
        self._counters = counters
        self._deliver = deliver
        self._reading = PartitionReading(
            f"feed of {self._name}", lambda: cluster.partition(topic.name, index), self, _CHUNK, retry
        )

    @property
    def offset(self) -> int:
        """The offset of the next record; -1 while unknown."""
        return self._reading.offset

    @offset.setter
    def offset(self, offset: int) -> None:
        self._reading.offset = offset

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
        return self._reading.stop()

    def forget(self) -> None:
        """Removes the position from the journal."""
        if self._journal is not None and self._key in self._journal.passed:
            self._journal.pass_by(self._key, 0)

    # --- reading

    async def begin(self, leader: PartitionLeader) -> int:
        """Returns the position of an earlier run (the journal stores it plus 1), else the partition's end."""
        if self._journal is not None and self._key in self._journal.passed:
            return self._journal.passed[self._key] - 1
        offset = await committed_offset(leader, LATEST_TIMESTAMP)
        self._note(offset)
        return offset

    async def room(self) -> None:
        self.ready.set()

    def take(self, records: list[Record], offset: int) -> None:
        if records:
            self._deliver(records)
        self._note(offset)

    async def beyond(self, leader: PartitionLeader, offset: int) -> int:
        """Returns the offset to continue at after retention has deleted the next record."""
        self._counters.feeds_cut += 1
        first = await committed_offset(leader, EARLIEST_TIMESTAMP)
        return first if first > offset else await committed_offset(leader, LATEST_TIMESTAMP)

    def failed(self, error: TreecastError) -> None:
        self._counters.feeds_failed += 1
        _log.info("bridge reads a partition again later", partition=self._name, error=error)

    def ended(self) -> None:
        """The bridge is notified of the deletion."""
        self._counters.feeds_failed += 1
        self.ready.set()

    def _note(self, offset: int) -> None:
        if self._journal is not None:
            self._journal.pass_by(self._key, offset + 1)
