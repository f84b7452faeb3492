"""Kafka's internal topics, as far as clients look for them: listed, empty, and not to be written to.

Offsets and transactions of this cluster are kept in tables, not in topics. Clients all the same expect these
names in Metadata, marked as internal, and expect that ordinary use of them is refused: a consumer that
subscribes by a pattern leaves internal topics out by that mark. So the face answers for them by itself.
Nobody can create a topic of such a name; one that an earlier version has created is served as the ordinary
topic that it is.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping
from typing import Final

from treecast.middleware.broker import (
    EARLIEST_TIMESTAMP,
    INTERNAL,
    LATEST_TIMESTAMP,
    Appended,
    Cluster,
    Isolation,
    OffsetAtTime,
    PartitionLeader,
    PartitionRead,
    ReadWaiter,
    Topic,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity

_EPOCH: Final = 0


def visible_topics(cluster: Cluster) -> Mapping[str, Topic]:
    """The cluster's topics, and the internal ones."""
    known = cluster.definitions.topics()
    return {**known, **{name: topic for name, topic in INTERNAL.items() if name not in known}}


def visible_topic(cluster: Cluster, name: str) -> Topic | None:
    return cluster.definitions.topics().get(name) or INTERNAL.get(name)


def check_own(cluster: Cluster, name: str) -> None:
    """INVALID_TOPIC for what is asked of an internal topic that only its cluster may do."""
    if name in INTERNAL and name not in cluster.definitions.topics():
        raise TreecastError(Fault.INVALID_TOPIC, f"{name} is internal: the cluster alone changes it")


def visible_partition(cluster: Cluster, topic: str, index: int) -> PartitionLeader:
    """As `cluster.partition`, internal topics among them. UNKNOWN_TOPIC where there is none."""
    try:
        return cluster.partition(topic, index)
    except TreecastError:
        found = internal_partition(topic, index)
        if found is None:
            raise
        return found


def internal_partition(topic: str, index: int) -> PartitionLeader | None:
    """The partition of an internal topic, None where there is none."""
    known = INTERNAL.get(topic)
    return EmptyPartition(topic) if known is not None and 0 <= index < known.partitions else None


def not_writable(topic: str) -> TreecastError:
    return TreecastError(Fault.INVALID_TOPIC, f"{topic} is internal: the cluster alone writes to it")


class EmptyPartition:
    """Implements `PartitionLeader` for a partition in which nothing ever is."""

    leader_epoch = _EPOCH
    size = 0

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def append(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        raise not_writable(self._topic)

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None] | None:
        raise not_writable(self._topic)

    def delete_before(self, offset: int) -> int | Future[int]:
        raise not_writable(self._topic)

    def read(self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool) -> PartitionRead:
        if offset != 0:
            raise TreecastError(Fault.OFFSET_OUT_OF_RANGE, f"{self._topic} is empty, there is no {offset}")
        return PartitionRead([], 0, 0, 0, 0)

    def watch(self, waiter: ReadWaiter, isolation: Isolation) -> None:
        """Nothing ever comes."""

    def unwatch(self, waiter: ReadWaiter) -> None:
        """Nobody is kept."""

    def check_leader_epoch(self, current: int) -> None:
        if current > _EPOCH:
            raise TreecastError(Fault.UNKNOWN_LEADER_EPOCH)

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime:
        at_end = timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        return OffsetAtTime(0, -1, _EPOCH) if at_end else OffsetAtTime(-1, -1, -1)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        return (_EPOCH, 0) if leader_epoch >= _EPOCH else (-1, -1)
