"""Sets a group's committed offsets: to the logs' starts or ends, an offset, a time, or by a number of
records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.broker import (
    EARLIEST_TIMESTAMP,
    GROUPS,
    LATEST_TIMESTAMP,
    Cluster,
    CommittedOffset,
    Isolation,
    MemberIdentity,
    views_in,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

from .view import GroupView, OffsetView, settled, view_offsets


async def reset_offsets(
    cluster: Cluster, group: GroupView, request: pb.ResetGroupRequest
) -> tuple[Sequence[OffsetView], Sequence[OffsetView]]:
    """Returns the requested partitions' offsets before and after. Raises GROUP_NOT_EMPTY."""
    group_id = group.description.group_id
    if group.description.members:
        raise TreecastError(
            Fault.GROUP_NOT_EMPTY,
            f"group {group_id!r} has {len(group.description.members)} members; stop them, then reset",
        )
    before = {offset.partition: offset for offset in group.offsets}
    partitions = _partitions(cluster, before, request.topic)
    wanted = {
        partition: CommittedOffset(await _target(cluster, partition, before.get(partition), request))
        for partition in partitions
    }
    if request.dry_run:
        after = [await _imagined(cluster, p, offset.offset) for p, offset in wanted.items()]
    else:
        await _commit(cluster, group_id, wanted)
        after = list(await view_offsets(cluster, group_id, partitions))
    return [before[partition] for partition in partitions if partition in before], after


def _partitions(
    cluster: Cluster, committed: Mapping[TopicPartition, OffsetView], topic: str
) -> Sequence[TopicPartition]:
    """Returns all partitions of `topic`; without a topic, those with committed offsets of the group."""
    topics = cluster.definitions.topics()
    topics = {**topics, **views_in(topics)}
    if not topic:
        found = sorted(partition for partition in committed if partition.topic in topics)
        if not found:
            raise TreecastError(Fault.INVALID_REQUEST, "the group has no committed offsets; name a topic")
        return found
    if topic not in topics:
        raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no topic {topic!r}")
    return [TopicPartition(topic, index) for index in range(topics[topic].partitions)]


async def _target(
    cluster: Cluster, partition: TopicPartition, now: OffsetView | None, request: pb.ResetGroupRequest
) -> int:
    """Returns the requested offset, limited to the partition's log."""
    leader = cluster.partition(partition.topic, partition.partition)
    isolation = Isolation.READ_UNCOMMITTED
    start = (await settled(leader.offset_for_time(EARLIEST_TIMESTAMP, isolation))).offset
    end = (await settled(leader.offset_for_time(LATEST_TIMESTAMP, isolation))).offset
    match request.WhichOneof("target"):
        case "earliest":
            return start
        case "latest":
            return end
        case "offset":
            wanted = request.offset
        case "shift":
            wanted = (now.committed if now else start) + request.shift
        case "timestamp":
            found = (await settled(leader.offset_for_time(request.timestamp, isolation))).offset
            wanted = found if found >= 0 else end
        case _:
            raise TreecastError(Fault.INVALID_REQUEST, "name a target: earliest, latest, an offset or a time")
    return min(max(wanted, start), end)


async def _commit(cluster: Cluster, group_id: str, wanted: Mapping[TopicPartition, CommittedOffset]) -> None:
    refused = await cluster.home(GROUPS, group_id).commit_offsets(group_id, MemberIdentity(), wanted)
    for partition, error in refused.items():
        raise TreecastError(error.fault, f"{partition}: {error.detail}")


async def _imagined(cluster: Cluster, partition: TopicPartition, offset: int) -> OffsetView:
    leader = cluster.partition(partition.topic, partition.partition)
    end = await settled(leader.offset_for_time(LATEST_TIMESTAMP, Isolation.READ_UNCOMMITTED))
    return OffsetView(partition, offset, end.offset, "")
