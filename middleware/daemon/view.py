"""A view of a daemon's topics, groups and process, for status, metrics and admin calls."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from treecast.middleware.broker import (
    EARLIEST_TIMESTAMP,
    GROUPS,
    LATEST_TIMESTAMP,
    Cluster,
    CommittedOffset,
    GroupDescription,
    Isolation,
    OffsetAtTime,
    Topic,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

T = TypeVar("T")
_AWAY = {Fault.LEADER_UNAVAILABLE, Fault.NOT_LEADER, Fault.TIMED_OUT}
_AT_ONCE = 256  # partitions handled before the loop gets a turn
_ASK_SECONDS = 2.0  # for all leaders together
_BOUNDS = (
    (EARLIEST_TIMESTAMP, Isolation.READ_UNCOMMITTED),
    (LATEST_TIMESTAMP, Isolation.READ_UNCOMMITTED),
    (LATEST_TIMESTAMP, Isolation.READ_COMMITTED),
)


class PartitionView(Struct, frozen=True):
    """One partition's log. Offsets are -1 if its leader cannot be asked; `size` in bytes, on this host."""

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
    """A group's committed offset, and the log's end. -1 if unknown."""

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
    """The process's resource use. Sizes in bytes."""

    resident_bytes: int
    cpu_seconds: float
    open_files: int
    open_files_limit: int


async def settled(value: T | Future[T]) -> T:
    """Returns the value, awaiting it if it is a future."""
    return await value if isinstance(value, asyncio.Future) else value


class _Asked:
    """A partition whose bounds were requested. One that another host leads answers later, or never."""

    def __init__(self, cluster: Cluster, topic: str, index: int) -> None:
        """Raises UNKNOWN_TOPIC if the partition does not exist."""
        self._index = index
        self._leader = cluster.partition(topic, index)
        self._answers: list[OffsetAtTime | Future[OffsetAtTime]] = []
        try:
            for timestamp, isolation in _BOUNDS:
                self._answers.append(self._leader.offset_for_time(timestamp, isolation))
        except TreecastError as error:
            _check_away(error)

    def waited_for(self) -> list[Future[OffsetAtTime]]:
        return [answer for answer in self._answers if isinstance(answer, asyncio.Future)]

    def view(self) -> PartitionView:
        """Returns the answers received so far."""
        offsets = [_offset(answer) for answer in self._answers]
        start, end, stable = offsets if len(offsets) == len(_BOUNDS) else (-1, -1, -1)
        return PartitionView(self._index, self._leader.leader_epoch, start, end, stable, self._leader.size)


def _offset(answer: OffsetAtTime | Future[OffsetAtTime]) -> int:
    if not isinstance(answer, asyncio.Future):
        return answer.offset
    if not answer.done():
        answer.cancel()
        return -1
    error = answer.exception()
    if error is None:
        return answer.result().offset
    _check_away(error)
    return -1


def _check_away(error: BaseException) -> None:
    """Raises any error but those of an unreachable leader."""
    if not isinstance(error, TreecastError) or error.fault not in _AWAY:
        raise error


async def _settle(asked: Sequence[_Asked]) -> None:
    """Waits for all together, for a limited time."""
    if waited_for := [answer for one in asked for answer in one.waited_for()]:
        await asyncio.wait(waited_for, timeout=_ASK_SECONDS)


async def view_topic(cluster: Cluster, topic: Topic) -> TopicView:
    asked = [_Asked(cluster, topic.name, index) for index in range(topic.partitions)]
    await _settle(asked)
    return TopicView(topic, tuple(one.view() for one in asked))


async def view_topics(cluster: Cluster, chosen: Mapping[str, Sequence[int]] | None = None) -> list[TopicView]:
    """Returns all topics by name, or the partitions in `chosen`. A topic deleted meanwhile is left out."""
    asked: list[tuple[Topic, list[_Asked]]] = []
    seen = _Turns()
    for name, topic in sorted(cluster.definitions.topics().items()):
        if chosen is not None and name not in chosen:
            continue
        try:
            partitions = []
            for index in range(topic.partitions) if chosen is None else chosen[name]:
                partitions.append(_Asked(cluster, name, index))
                await seen.another()
            asked.append((topic, partitions))
        except TreecastError:
            continue
    await _settle([one for _, partitions in asked for one in partitions])
    found = []
    for topic, partitions in asked:
        await seen.another()
        try:
            found.append(TopicView(topic, tuple([one.view() for one in partitions])))
        except TreecastError:
            continue
    return found


class _Turns:
    """Yields to the loop regularly during long work."""

    def __init__(self) -> None:
        self._count = 0

    async def another(self) -> None:
        self._count += 1
        if not self._count % _AT_ONCE:
            await asyncio.sleep(0)


class Listing(Struct, frozen=True):
    """Topics with some of their partitions, and totals."""

    listed: Sequence[TopicView]
    topics: int
    partitions: int
    size: int  # bytes of all logs on this host
    left_out: int  # partitions


async def list_partitions(cluster: Cluster, most: int) -> Listing:
    """Lists at most `most` partitions: first those with records on this host, then the others; by name."""
    chosen: dict[str, list[int]] = {}
    empty: list[tuple[str, int]] = []
    count = total = size = 0
    topics = sorted(cluster.definitions.topics().items())
    seen = _Turns()
    for name, topic in topics:
        total += topic.partitions
        for index in range(topic.partitions):
            await seen.another()
            stored = _stored(cluster, name, index)
            size += stored
            if stored and count < most:
                chosen.setdefault(name, []).append(index)
                count += 1
            elif not stored and len(empty) < most:
                empty.append((name, index))
    for name, index in empty[: most - count]:
        chosen.setdefault(name, []).append(index)
        count += 1
    for indexes in chosen.values():
        indexes.sort()
    return Listing(await view_topics(cluster, chosen), len(topics), total, size, total - count)


def _stored(cluster: Cluster, topic: str, index: int) -> int:
    try:
        return cluster.partition(topic, index).size
    except TreecastError:
        return 0  # deleted meanwhile, or without a leader


async def view_offsets(
    cluster: Cluster, group_id: str, partitions: Sequence[TopicPartition] | None = None
) -> tuple[OffsetView, ...]:
    """Returns a group's committed offsets, by topic and partition; unavailable ones are left out."""
    home = cluster.home(GROUPS, group_id)
    committed = await home.fetch_offsets(group_id, partitions, require_stable=False)
    return tuple(
        [
            OffsetView(partition, entry.offset, await end_offset(cluster, partition), entry.metadata)
            for partition, entry in sorted(committed.items())
            if isinstance(entry, CommittedOffset) and entry.offset >= 0
        ]
    )


async def end_offset(cluster: Cluster, partition: TopicPartition) -> int:
    """Returns the end of the partition's log; -1 if the partition no longer exists."""
    try:
        leader = cluster.partition(partition.topic, partition.partition)
        return (await settled(leader.offset_for_time(LATEST_TIMESTAMP, Isolation.READ_UNCOMMITTED))).offset
    except TreecastError:
        return -1


async def view_group(cluster: Cluster, group_id: str) -> GroupView:
    description = await cluster.home(GROUPS, group_id).describe(group_id)
    return GroupView(description, await view_offsets(cluster, group_id))


class GroupsListing(Struct, frozen=True):
    """Groups with committed offsets, and the numbers left out. The offsets of a group that was left out are
    not counted.
    """

    listed: Sequence[GroupView]
    groups_left_out: int
    offsets_left_out: int


async def list_groups(cluster: Cluster, here: Callable[[str], bool], most: int) -> GroupsListing:
    """Lists groups accepted by `here`, by id, within limits of groups and offsets. Skips a group whose home
    moved meanwhile.
    """
    found: list[GroupView] = []
    room, groups, offsets = most, 0, 0
    for group_id in sorted(entry.group_id for entry in await cluster.list_groups()):
        if not here(group_id):
            continue
        if room <= 0 or len(found) >= most:
            groups += 1
            continue
        try:
            group = await view_group(cluster, group_id)
        except TreecastError:
            continue
        found.append(GroupView(group.description, group.offsets[:room]))
        offsets += max(len(group.offsets) - room, 0)
        room -= len(group.offsets)
    return GroupsListing(found, groups, offsets)


def view_process() -> ProcessView:
    times, limit = os.times(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return ProcessView(
        resident_bytes=resident_bytes(),
        cpu_seconds=times.user + times.system,
        open_files=_open_files(limit),
        open_files_limit=limit,
    )


def _open_files(limit: int) -> int:
    """Returns the number of open files; 0 if unknown; `limit` if no descriptor is left to count with."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError as error:
        return limit if error.errno == errno.EMFILE else 0


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
