"""Topics that are not stored: Kafka's internal ones, which are listed, empty and read-only, and views.

This cluster keeps offsets and transactions in tables, not in topics. Clients still expect these names in
Metadata, marked as internal, and expect that ordinary use of them is refused. A consumer that subscribes by
a pattern excludes internal topics by that mark. The face therefore answers for them itself. No client can
create a topic with such a name; a topic that an earlier version created is served as an ordinary topic.

A view shows the records of a topic that pass a filter (`broker.views`). The cluster looks up its partitions.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Mapping
from typing import Final

from treecast.middleware.broker import (
    EARLIEST_TIMESTAMP,
    INTERNAL,
    LATEST_TIMESTAMP,
    ActiveProducer,
    Appended,
    Cluster,
    Definitions,
    Isolation,
    Leaders,
    OffsetAtTime,
    PartitionLeader,
    PartitionRead,
    ReadWaiter,
    Topic,
    read_only,
    view_by_id,
    view_of,
    views_in,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicId

_EPOCH: Final = 0


def visible_topics(cluster: Cluster) -> Mapping[str, Topic]:
    """Returns the cluster's topics, their views and the internal topics."""
    known = cluster.definitions.topics()
    internal = {name: topic for name, topic in INTERNAL.items() if name not in known}
    return {**known, **views_in(known), **internal}


def visible_topic(cluster: Cluster, name: str) -> Topic | None:
    known = cluster.definitions.topics()
    return known.get(name) or INTERNAL.get(name) or view_of(known, name)


def visible_topic_by_id(definitions: Definitions, topic_id: TopicId) -> Topic:
    """Returns a topic, also an internal one or a view. Raises UNKNOWN_TOPIC_ID if there is none."""
    internal = next((topic for topic in INTERNAL.values() if topic.topic_id == topic_id), None)
    if internal is not None:
        return internal
    try:
        return definitions.topic_by_id(topic_id)
    except TreecastError:
        view = view_by_id(definitions.topics(), topic_id)
        if view is None:
            raise
        return view


def check_own(cluster: Cluster, name: str) -> None:
    """Raises INVALID_TOPIC if `name` is an internal topic, which only the cluster may change, or a view."""
    check_no_view(cluster, name)
    if name in INTERNAL and name not in cluster.definitions.topics():
        raise TreecastError(Fault.INVALID_TOPIC, f"{name} is internal: the cluster alone changes it")


def check_no_view(cluster: Cluster, name: str) -> None:
    """Raises INVALID_TOPIC if `name` is a view."""
    view = view_of(cluster.definitions.topics(), name)
    if view is not None:
        raise read_only(view)


def visible_partition(leaders: Leaders, topic: str, index: int) -> PartitionLeader:
    """As `cluster.partition`, with internal topics. Raises UNKNOWN_TOPIC if there is no such partition."""
    try:
        return leaders.partition(topic, index)
    except TreecastError:
        found = internal_partition(topic, index)
        if found is None:
            raise
        return found


def internal_partition(topic: str, index: int) -> PartitionLeader | None:
    """Returns the partition of an internal topic, or None if there is none."""
    known = INTERNAL.get(topic)
    return EmptyPartition(topic) if known is not None and 0 <= index < known.partitions else None


def not_writable(topic: str) -> TreecastError:
    return TreecastError(Fault.INVALID_TOPIC, f"{topic} is internal: the cluster alone writes to it")


class EmptyPartition:
    """Implements `PartitionLeader` for a partition that is always empty."""

    here = True
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
        """Does nothing: no records ever arrive."""

    def unwatch(self, waiter: ReadWaiter) -> None:
        """Does nothing: `watch` keeps no waiters."""

    def check_leader_epoch(self, current: int) -> None:
        if current > _EPOCH:
            raise TreecastError(Fault.UNKNOWN_LEADER_EPOCH)

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime:
        at_end = timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
        return OffsetAtTime(0, -1, _EPOCH) if at_end else OffsetAtTime(-1, -1, -1)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        return (_EPOCH, 0) if leader_epoch >= _EPOCH else (-1, -1)

    def active_producers(self) -> tuple[ActiveProducer, ...]:
        return ()
