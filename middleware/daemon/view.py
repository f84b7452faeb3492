"""What there is to see of a daemon's topics, groups and process, read for status, metrics and admin calls."""

from __future__ import annotations

import asyncio
import os
import resource
from asyncio import Future
from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from treecast.middleware.broker import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Cluster,
    CommittedOffset,
    GroupDescription,
    Isolation,
    Topic,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

T = TypeVar("T")
_AWAY = {Fault.LEADER_UNAVAILABLE, Fault.NOT_LEADER, Fault.TIMED_OUT}


class PartitionView(Struct, frozen=True):
    """One partition's log. Offsets are -1 where its leader cannot be asked; `size` in bytes, on this host."""

    index: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    stable_offset: int
    size: int


class TopicView(Struct, frozen=True):
    topic: Topic
    partitions: tuple[PartitionView, ...]

    @property
    def records(self) -> int:
        return sum(p.end_offset - p.start_offset for p in self.partitions)

    @property
    def size(self) -> int:
        return sum(p.size for p in self.partitions)


class OffsetView(Struct, frozen=True):
    """A group's committed offset, and how far the log has gone beyond it. -1 where it is unknown."""

    partition: TopicPartition
    committed: int
    end_offset: int
    metadata: str

    @property
    def lag(self) -> int:
        return max(self.end_offset - self.committed, 0) if self.end_offset >= 0 else 0


class GroupView(Struct, frozen=True):
    description: GroupDescription
    offsets: tuple[OffsetView, ...]


class ProcessView(Struct, frozen=True):
    """The process's own accounting. Sizes in bytes."""

    resident_bytes: int
    cpu_seconds: float
    open_files: int
    open_files_limit: int


async def settled(value: T | Future[T]) -> T:
    """The value of what is there at once, or has to be waited for."""
    return await value if isinstance(value, asyncio.Future) else value


async def view_partition(cluster: Cluster, topic: str, index: int) -> PartitionView:
    leader = cluster.partition(topic, index)
    try:
        start = await settled(leader.offset_for_time(EARLIEST_TIMESTAMP, Isolation.READ_UNCOMMITTED))
        end = await settled(leader.offset_for_time(LATEST_TIMESTAMP, Isolation.READ_UNCOMMITTED))
        stable = await settled(leader.offset_for_time(LATEST_TIMESTAMP, Isolation.READ_COMMITTED))
    except TreecastError as error:
        if error.fault not in _AWAY:
            raise
        return PartitionView(index, leader.leader_epoch, -1, -1, -1, leader.size)
    return PartitionView(index, leader.leader_epoch, start.offset, end.offset, stable.offset, leader.size)


async def view_topic(cluster: Cluster, topic: Topic) -> TopicView:
    indexes = range(topic.partitions)
    return TopicView(topic, tuple([await view_partition(cluster, topic.name, i) for i in indexes]))


async def view_topics(cluster: Cluster) -> list[TopicView]:
    """All topics by name. One that is deleted meanwhile is left out."""
    found = []
    for _, topic in sorted(cluster.definitions.topics().items()):
        try:
            found.append(await view_topic(cluster, topic))
        except TreecastError:
            continue
    return found


async def view_offsets(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition] | None = None
) -> tuple[OffsetView, ...]:
    """A group's committed offsets, by topic and partition; those that cannot be told are left out."""
    home = cluster.group_home(group_id)
    committed = await home.fetch_offsets(group_id, partitions, require_stable=False)
    return tuple(
        [
            OffsetView(partition, entry.offset, await end_offset(cluster, partition), entry.metadata)
            for partition, entry in sorted(committed.items())
            if isinstance(entry, CommittedOffset) and entry.offset >= 0
        ]
    )


async def end_offset(cluster: Cluster, partition: TopicPartition) -> int:
    """Where the partition's log ends; -1 where there is no such partition any more."""
    try:
        leader = cluster.partition(partition.topic, partition.partition)
        return (await settled(leader.offset_for_time(LATEST_TIMESTAMP, Isolation.READ_UNCOMMITTED))).offset
    except TreecastError:
        return -1


async def view_group(cluster: Cluster, group_id: str) -> GroupView:
    description = await cluster.group_home(group_id).describe(group_id)
    return GroupView(description, await view_offsets(cluster, group_id))


async def view_groups(cluster: Cluster) -> list[GroupView]:
    """All groups by id."""
    listed = await cluster.list_groups()
    return [await view_group(cluster, group_id) for group_id in sorted(entry.group_id for entry in listed)]


def view_process() -> ProcessView:
    times = os.times()
    return ProcessView(
        resident_bytes=_resident_bytes(),
        cpu_seconds=times.user + times.system,
        open_files=len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
