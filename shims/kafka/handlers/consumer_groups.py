"""The new group protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.broker import (
    GROUPS,
    Cluster,
    ConsumerHeartbeat,
    ConsumerMemberState,
    GroupDescription,
    GroupMember,
    GroupType,
    Places,
)
from treecast.middleware.broker.access import Operation, ResourceKind
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId

from .. import errors
from .. import versions as v
from .base import Context, Fields, Handler, Message, paced

_MEMBER_IDS_OF_CLIENTS = 1  # from this version on a joining member chooses its own id (KIP-1082)
_CLASSIC, _CONSUMER = 0, 1  # member types


async def consumer_group_heartbeat(ctx: Context, request: Message) -> Fields:
    if ctx.version >= _MEMBER_IDS_OF_CLIENTS and not request.member_id:
        raise TreecastError(Fault.INVALID_REQUEST, "the member id is missing")
    for topic in request.subscribed_topic_names or ():
        ctx.check(Operation.DESCRIBE, ResourceKind.TOPIC, topic)
    heartbeat = ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=ctx.client_id or "",
        client_host=ctx.client_host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if request.subscribed_topic_names is None else tuple(request.subscribed_topic_names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
    )
    answer = await ctx.cluster.home(GROUPS, request.group_id).consumer_heartbeat(heartbeat)
    assignment = answer.assignment
    return {
        "error_code": errors.NONE,
        "error_message": None,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "heartbeat_interval_ms": answer.heartbeat_interval_ms,
        "assignment": None if assignment is None else {"topic_partitions": _rows(assignment)},
    }


def _owned(topics: Sequence[Message] | None) -> Places | None:
    if topics is None:
        return None
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)


def _by_topic(places: Places) -> dict[TopicId, list[int]]:
    found: dict[TopicId, list[int]] = {}
    for topic, number in sorted(places):
        found.setdefault(topic, []).append(number)
    return found


def _rows(places: Places) -> list[Fields]:
    return [{"topic_id": topic, "partitions": numbers} for topic, numbers in _by_topic(places).items()]


def _refuse_heartbeat(request: Message, code: int, detail: str) -> Fields:
    return {"error_code": code, "error_message": detail, "member_id": request.member_id}


async def consumer_group_describe(ctx: Context, request: Message) -> Fields:
    """Describes groups. Classic groups get GROUP_ID_NOT_FOUND; admin clients then use DescribeGroups."""
    asked = bool(request.include_authorized_operations)
    groups = paced(ctx, request.group_ids)
    return {"groups": [await _described(ctx, group_id, asked) async for group_id in groups]}


async def _described(ctx: Context, group_id: str, asked: bool) -> Fields:
    try:
        ctx.check(Operation.DESCRIBE, ResourceKind.GROUP, group_id)
        group = await ctx.cluster.home(GROUPS, group_id).describe(group_id)
        if group.group_type is not GroupType.CONSUMER:
            raise TreecastError(Fault.GROUP_NOT_FOUND, f"there is no group {group_id!r} of type consumer")
    except TreecastError as error:
        return _undescribed(group_id, ctx.code(error), error.detail)
    operations = ctx.operations(asked, ResourceKind.GROUP, group_id)
    return _row(ctx.cluster, group) | {"authorized_operations": operations}


def _row(cluster: Cluster, group: GroupDescription) -> dict[str, object]:
    return {
        "error_code": errors.NONE,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.protocol,
        "members": [
            _member(cluster, member, member.consumer)
            for member in group.members
            if member.consumer is not None
        ],
    }


def _member(cluster: Cluster, member: GroupMember, state: ConsumerMemberState) -> Fields:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": state.rack_id or None,
        "member_epoch": state.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": state.topics,
        "subscribed_topic_regex": state.regex or None,
        "assignment": {"topic_partitions": _named(cluster, state.assigned)},
        "target_assignment": {"topic_partitions": _named(cluster, state.target)},
        "member_type": _CLASSIC if state.classic else _CONSUMER,
    }


def _named(cluster: Cluster, places: Places) -> list[Fields]:
    """Returns the rows of `places` with topic names, without deleted topics."""
    rows: list[Fields] = []
    for topic_id, numbers in _by_topic(places).items():
        try:
            name = cluster.definitions.topic_by_id(topic_id).name
        except TreecastError:
            continue
        rows.append({"topic_id": topic_id, "topic_name": name, "partitions": numbers})
    return rows


def _undescribed(group_id: str, code: int, detail: str) -> Fields:
    return {"error_code": code, "error_message": detail, "group_id": group_id}


def _refuse_describe(request: Message, code: int, detail: str) -> Fields:
    return {"groups": [_undescribed(group_id, code, detail) for group_id in request.group_ids]}


HANDLERS = {
    v.CONSUMER_GROUP_HEARTBEAT: Handler(consumer_group_heartbeat, _refuse_heartbeat),
    v.CONSUMER_GROUP_DESCRIBE: Handler(consumer_group_describe, _refuse_describe),
}
