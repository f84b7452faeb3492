"""Offsets of logs (by time, by leader epoch) and the offsets that groups have committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from treecast.middleware.broker import GROUPS, NOBODY, CommittedOffset, Isolation, MemberIdentity
from treecast.middleware.broker.access import Operation, ResourceKind
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

from .. import errors
from .. import versions as v
from ..internal import visible_partition
from .base import (
    Context,
    Fields,
    Handler,
    Message,
    by_topic,
    known_partition,
    paced,
    refuse_at_top,
    settled,
    unknown_partition,
)

_OLDEST_TIMESTAMP = -2  # the smallest of ListOffsets 1-6: -2 earliest, -1 latest
# The smallest from a version on: -3 the largest timestamp (KIP-734), -4 the earliest on this host's disk
# (KIP-405), -5 the last in remote storage (KIP-1005), -6 the first that is not there yet (KIP-1023).
_OLDEST_TIMESTAMPS = ((11, -6), (9, -5), (8, -4), (7, -3))
_EARLIEST = -2
_EARLIEST_LOCAL = -4

PartitionRow = tuple[TopicPartition, Fields]


def topic_rows(rows: Iterable[PartitionRow]) -> list[Fields]:
    return [{"name": name, "partitions": partitions} for name, partitions in by_topic(rows)]


def _each(request: Message) -> Iterator[tuple[Message, Message]]:
    """Yields every partition of a request, with its topic."""
    return ((topic, partition) for topic in request.topics for partition in topic.partitions)


def refuse_partitions(request: Message, code: int, detail: str) -> Fields:
    """As `Handler.refuse`, for messages with topics `name` and partitions `partition_index`."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": code}
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


# --- ListOffsets


async def list_offsets(ctx: Context, request: Message) -> Fields:
    """Returns the offset for a time or of an end of the log, under the requested isolation level."""
    if request.isolation_level not in (0, 1):
        raise TreecastError(Fault.INVALID_REQUEST, f"isolation level {request.isolation_level}")
    isolation = Isolation(request.isolation_level)
    rows: list[PartitionRow] = []
    async for topic, asked in paced(ctx, _each(request)):
        partition = TopicPartition(topic.name, asked.partition_index)
        rows.append((partition, await _offset_row(ctx, partition, asked, isolation)))
    return {"topics": topic_rows(rows)}


async def _offset_row(
    ctx: Context, partition: TopicPartition, asked: Message, isolation: Isolation
) -> Fields:
    row = {"partition_index": partition.partition}
    oldest = next((time for since, time in _OLDEST_TIMESTAMPS if ctx.version >= since), _OLDEST_TIMESTAMP)
    if asked.timestamp < oldest:
        return row | {"error_code": errors.UNSUPPORTED_VERSION}
    # Without remote storage all is on disk, and the answer to what is asked of it is that there is none.
    remote = asked.timestamp < _EARLIEST_LOCAL
    time = _EARLIEST if asked.timestamp <= _EARLIEST_LOCAL else asked.timestamp
    try:
        ctx.check(Operation.DESCRIBE, ResourceKind.TOPIC, partition.topic)
        leader = visible_partition(ctx.cluster, partition.topic, partition.partition)
        leader.check_leader_epoch(asked.current_leader_epoch)
        found = await settled(leader.offset_for_time(time, isolation))
    except TreecastError as error:
        return row | {"error_code": ctx.code(error)}
    if remote:
        return row | {"error_code": errors.NONE, "timestamp": -1, "offset": -1, "leader_epoch": -1}
    return row | {
        "error_code": errors.NONE,
        "timestamp": found.timestamp,
        "offset": found.offset,
        "leader_epoch": found.leader_epoch,
    }


# --- OffsetForLeaderEpoch


async def offset_for_leader_epoch(ctx: Context, request: Message) -> Fields:
    rows: list[PartitionRow] = []
    async for topic, asked in paced(ctx, _each(request)):
        partition = TopicPartition(topic.topic, asked.partition)
        rows.append((partition, await _epoch_row(ctx, partition, asked)))
    return {"topics": [{"topic": name, "partitions": partitions} for name, partitions in by_topic(rows)]}


async def _epoch_row(ctx: Context, partition: TopicPartition, asked: Message) -> Fields:
    row = {"partition": partition.partition}
    try:
        ctx.check(Operation.DESCRIBE, ResourceKind.TOPIC, partition.topic)
        leader = visible_partition(ctx.cluster, partition.topic, partition.partition)
        leader.check_leader_epoch(asked.current_leader_epoch)
        epoch, end_offset = await settled(leader.end_of_epoch(asked.leader_epoch))
    except TreecastError as error:
        return row | {"error_code": ctx.code(error)}
    return row | {"error_code": errors.NONE, "leader_epoch": epoch, "end_offset": end_offset}


def _refuse_epochs(request: Message, code: int, detail: str) -> Fields:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [{"partition": row.partition, "error_code": code} for row in topic.partitions],
            }
            for topic in request.topics
        ]
    }


# --- OffsetCommit


async def split_commits(
    ctx: Context, request: Message
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, TreecastError]]:
    """Returns the commits of a request, and the errors of partitions that are not there or that the client
    may not read."""
    commits: dict[TopicPartition, CommittedOffset] = {}
    refused: dict[TopicPartition, TreecastError] = {}
    async for topic, row in paced(ctx, _each(request)):
        partition = TopicPartition(topic.name, row.partition_index)
        if not ctx.may(Operation.READ, ResourceKind.TOPIC, topic.name):
            refused[partition] = ctx.refusal(Operation.READ, ResourceKind.TOPIC, topic.name)
        elif known_partition(ctx.cluster, partition):
            commits[partition] = CommittedOffset(
                row.committed_offset, row.committed_leader_epoch, row.committed_metadata or ""
            )
        else:
            refused[partition] = unknown_partition(partition)
    return commits, refused


async def commit_answer(
    ctx: Context, request: Message, refused: Mapping[TopicPartition, TreecastError]
) -> Fields:
    """Returns each partition of the request with its error code."""
    rows: list[PartitionRow] = []
    async for topic, asked in paced(ctx, _each(request)):
        partition = TopicPartition(topic.name, asked.partition_index)
        error = refused.get(partition)
        code = errors.NONE if error is None else ctx.code(error)
        rows.append((partition, {"partition_index": asked.partition_index, "error_code": code}))
    return {"topics": topic_rows(rows)}


async def offset_commit(ctx: Context, request: Message) -> Fields:
    commits, refused = await split_commits(ctx, request)
    member = MemberIdentity(
        request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )
    home = ctx.cluster.home(GROUPS, request.group_id)
    return await commit_answer(
        ctx, request, refused | dict(await home.commit_offsets(request.group_id, member, commits))
    )


# --- OffsetFetch


async def offset_fetch(ctx: Context, request: Message) -> Fields:
    """Answers for one group up to version 7, for many from version 8 on (KIP-709)."""
    if ctx.version >= 8:
        groups = paced(ctx, request.groups)
        rows = [await _group_row(ctx, group, request.require_stable) async for group in groups]
        return {"groups": rows}
    ctx.check(Operation.DESCRIBE, ResourceKind.GROUP, request.group_id)
    topics = await _committed(ctx, request.group_id, request.topics, request.require_stable, NOBODY)
    return {"error_code": errors.NONE, "topics": topics}


async def _group_row(ctx: Context, group: Message, require_stable: bool) -> Fields:
    try:
        ctx.check(Operation.DESCRIBE, ResourceKind.GROUP, group.group_id)
        member = MemberIdentity(group.member_id or "", None, group.member_epoch)  # from version 9 on
        topics = await _committed(ctx, group.group_id, group.topics, require_stable, member)
    except TreecastError as error:
        return {"group_id": group.group_id, "error_code": ctx.code(error), "topics": []}
    return {"group_id": group.group_id, "error_code": errors.NONE, "topics": topics}


async def _committed(
    ctx: Context,
    group_id: str,
    topics: Sequence[Message] | None,
    require_stable: bool,
    member: MemberIdentity,
) -> list[Fields]:
    """Returns what the group has committed for `topics`, or for all topics if None."""
    asked = None
    if topics is not None:
        asked = [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]
    home = ctx.cluster.home(GROUPS, group_id)
    found = await home.fetch_offsets(group_id, asked, require_stable=require_stable, member=member)
    wanted = asked if asked is not None else [one for one in found if _may_see(ctx, one)]
    rows = [(partition, _committed_row(ctx, partition, found)) async for partition in paced(ctx, wanted)]
    return topic_rows(rows)


def _may_see(ctx: Context, partition: TopicPartition) -> bool:
    return ctx.may(Operation.DESCRIBE, ResourceKind.TOPIC, partition.topic)


def _committed_row(
    ctx: Context, partition: TopicPartition, found: Mapping[TopicPartition, CommittedOffset | TreecastError]
) -> Fields:
    row = {
        "partition_index": partition.partition,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": errors.NONE,
    }
    if not _may_see(ctx, partition):
        refusal = ctx.refusal(Operation.DESCRIBE, ResourceKind.TOPIC, partition.topic)
        return row | {"error_code": ctx.code(refusal)}
    committed = found.get(partition)
    if isinstance(committed, TreecastError):
        return row | {"error_code": ctx.code(committed)}
    if committed is None:
        return row
    return row | {
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }


def _refuse_fetch(request: Message, code: int, detail: str) -> Fields:
    """Puts the error at the top (version 2 on), per group (8 on) and per partition (for version 1)."""
    groups = [{"group_id": group.group_id, "error_code": code, "topics": []} for group in request.groups]
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code}
                for index in topic.partition_indexes
            ],
        }
        for topic in request.topics or ()
    ]
    return {"error_code": code, "groups": groups, "topics": topics}


# --- OffsetDelete


async def offset_delete(ctx: Context, request: Message) -> Fields:
    asked = [
        TopicPartition(topic.name, row.partition_index)
        for topic in request.topics
        for row in topic.partitions
    ]
    missing = {
        one: ctx.refusal(Operation.READ, ResourceKind.TOPIC, one.topic)
        for one in asked
        if not ctx.may(Operation.READ, ResourceKind.TOPIC, one.topic)
    }
    missing |= {
        one: unknown_partition(one)
        for one in asked
        if one not in missing and not known_partition(ctx.cluster, one)
    }
    home = ctx.cluster.home(GROUPS, request.group_id)
    refused = await home.delete_offsets(request.group_id, [one for one in asked if one not in missing])
    return {"error_code": errors.NONE} | dict(await commit_answer(ctx, request, missing | dict(refused)))


HANDLERS = {
    v.LIST_OFFSETS: Handler(list_offsets, refuse_partitions),
    v.OFFSET_FOR_LEADER_EPOCH: Handler(offset_for_leader_epoch, _refuse_epochs),
    v.OFFSET_COMMIT: Handler(offset_commit, refuse_partitions),
    v.OFFSET_FETCH: Handler(offset_fetch, _refuse_fetch),
    v.OFFSET_DELETE: Handler(offset_delete, refuse_at_top),
}
