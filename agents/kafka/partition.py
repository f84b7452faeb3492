"""`CopiedPartition`: a partition that a Kafka cluster leads, as the hosts of the fabric use it.

Its log is a copy: the cluster's batches with their offsets, epochs, markers and gaps. Hosts follow it, and
read it while they have no replica. What only the cluster can decide is asked there.
"""

from __future__ import annotations

import time
from asyncio import Future
from collections.abc import Awaitable, Callable
from typing import Protocol

from treecast.middleware.broker.cluster import ReadWaiter
from treecast.middleware.broker.followed import FollowedPartition
from treecast.middleware.broker.partition import AppendTap
from treecast.middleware.broker.values import (
    LATEST_TIMESTAMP,
    ActiveProducer,
    Appended,
    Isolation,
    OffsetAtTime,
    PartitionRead,
    Topic,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.storage.log import PartitionLog

from .session import Append, CopySession, end_in


class Owner(Protocol):
    """The Kafka cluster, asked about one partition. Refusals are TreecastErrors."""

    def produce(
        self, name: TopicPartition, batches: bytes, acks: int, transactional_id: str | None
    ) -> Future[Appended]: ...

    async def offset_for_time(
        self, name: TopicPartition, timestamp: int, isolation: Isolation
    ) -> OffsetAtTime: ...

    async def end_of_epoch(self, name: TopicPartition, leader_epoch: int) -> tuple[int, int]: ...

    async def active_producers(self, name: TopicPartition) -> tuple[ActiveProducer, ...]: ...

    async def delete_before(self, name: TopicPartition, offset: int) -> int: ...


class CopiedPartition:
    """Implements `relay.partitions.ports.LedPartition` over a stored copy. All calls come from the event
    loop."""

    def __init__(
        self,
        topic: Topic,
        copy: FollowedPartition,
        owner: Owner,
        anew: Callable[[CopiedPartition], None],
    ) -> None:
        """`anew`: called after the copy was cut, so that hosts that follow it look where theirs part."""
        self.topic = topic
        self.copy = copy
        self.session = CopySession(self._own_end_of)
        self.missed = 0  # offsets that the cluster had removed before they were copied
        self.cuts = 0
        self.copied_bytes = 0
        self.copied_batches = 0
        self._owner = owner
        self._anew = anew
        self._tap: AppendTap | None = None

    # --- state

    @property
    def name(self) -> TopicPartition:
        return self.copy.name

    @property
    def log(self) -> PartitionLog:
        return self.copy.log

    @property
    def here(self) -> bool:
        return self.copy.here

    @property
    def leader_epoch(self) -> int:
        return max(self.session.epoch, self.log.leader_epoch, 0)

    @property
    def end(self) -> int:
        return self.log.end_offset

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record; -1 if there is none."""
        entries = self.log.epoch_entries
        return entries[-1][0] if entries and self.end > self.log.start_offset else -1

    def _own_end_of(self, epoch: int) -> int:
        return end_in(self.log.epoch_entries, epoch, self.end)

    # --- the copy grows, and is cut

    def append_copied(self, found: Append) -> None:
        """Appends batches of the cluster. Raises CORRUPT_BATCH or STORAGE."""
        now_ms, first = int(time.time() * 1000), found.headers[0].base_offset
        if first < self.end:  # the cluster's log begins inside this batch
            self.copy.restart(first, now_ms)
        self.copy.append_replicated(found.batches, found.headers, now_ms)
        self.copy.forget_fresh()
        self.copied_bytes += len(found.batches)
        self.copied_batches += len(found.headers)
        if self._tap is not None:
            self._tap.appended(memoryview(found.batches), found.headers)
        self.advance(found.start)

    def advance(self, start: int) -> None:
        """The cluster's log now begins at `start`. Raises STORAGE."""
        if self.log.start_offset < start <= self.end:
            self.copy.advance_start(start, int(time.time() * 1000))
            if self._tap is not None:
                self._tap.moved()

    def cut(self, offset: int) -> None:
        """Removes what the cluster does not have, from `offset` on. Raises STORAGE."""
        self.cuts += 1
        self.copy.truncate(max(offset, 0), int(time.time() * 1000))
        self._anew(self)

    def restart(self, offset: int, missed: int) -> None:
        """Begins the copy again at `offset`. `missed`: the offsets between. Raises STORAGE."""
        had_records = self.end > self.log.start_offset
        self.missed += missed if had_records or self.end else 0
        self.copy.restart(offset, int(time.time() * 1000))
        self._anew(self)

    def tap(self, tap: AppendTap | None) -> None:
        self._tap = tap

    def end_stream(self) -> None:
        """The topic is gone: ends the stream to other hosts."""
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.gone()

    # --- served to other hosts

    def append(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        return self._owner.produce(self.name, bytes(batches), acks, transactional_id)

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None] | None:
        raise TreecastError(
            Fault.INVALID_TRANSACTION_STATE,
            f"topic {self.topic.name} is led by a Kafka cluster, which ends transactions itself",
        )

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
    ) -> PartitionRead | Awaitable[PartitionRead]:
        """Returns records of the copy. Beyond its bounds only the cluster knows whether there are any."""
        log = self.log
        if not log.start_offset <= offset <= self.end:
            return self._outside(offset, isolation)
        return self.copy.read(offset, max_bytes, isolation, at_least_one=at_least_one)

    async def _outside(self, offset: int, isolation: Isolation) -> PartitionRead:
        """Returns nothing yet if the cluster has the offset: the copy will. Raises OFFSET_OUT_OF_RANGE if
        not."""
        latest = await self._owner.offset_for_time(self.name, LATEST_TIMESTAMP, Isolation.READ_UNCOMMITTED)
        log = self.log
        if offset < log.start_offset or offset > latest.offset:
            raise TreecastError(
                Fault.OFFSET_OUT_OF_RANGE,
                f"{self.name} has {log.start_offset} to {latest.offset}, not {offset}",
            )
        return PartitionRead([], 0, max(latest.offset, offset), log.stable_offset, log.start_offset)

    def watch(self, waiter: ReadWaiter, isolation: Isolation) -> None:
        self.copy.watch(waiter, isolation)

    def unwatch(self, waiter: ReadWaiter) -> None:
        self.copy.unwatch(waiter)

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> Awaitable[OffsetAtTime]:
        return self._owner.offset_for_time(self.name, timestamp, isolation)

    def end_of_epoch(self, leader_epoch: int) -> Awaitable[tuple[int, int]]:
        return self._owner.end_of_epoch(self.name, leader_epoch)

    def active_producers(self) -> Awaitable[tuple[ActiveProducer, ...]]:
        return self._owner.active_producers(self.name)

    def delete_before(self, offset: int) -> Awaitable[int]:
        return self._owner.delete_before(self.name, offset)
