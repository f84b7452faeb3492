"""The consumer group APIs: classic membership, and the admin view of groups."""

from __future__ import annotations

from collections.abc import Awaitable

from treecast.middleware.broker import (
    GROUPS,
    GroupDescription,
    GroupListing,
    GroupType,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
    SyncGroup,
)
from treecast.middleware.broker.access import Operation, ResourceKind
from treecast.middleware.model.errors import Fault, TreecastError

from .. import errors
from .. import versions as v
from .base import (
    Context,
    Fields,
    Handler,
    Message,
    paced,
    refuse_at_top,
)

_DEAD = "Dead"


def _member(request: Message) -> MemberIdentity:
    return MemberIdentity(request.member_id, request.group_instance_id, request.generation_id)


# --- JoinGroup


async def join_group(ctx: Context, request: Message) -> Fields:
    """Answers when the next generation is complete. From version 4 on, a first join gets an id (KIP-394)."""
    timeout = request.session_timeout_ms
    join = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=ctx.client_host,
        session_timeout_ms=timeout,
        rebalance_timeout_ms=request.rebalance_timeout_ms if ctx.version >= 1 else timeout,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        require_known_member_id=ctx.version >= 4 and request.group_instance_id is None,
        can_skip_assignment=ctx.version >= 9,
        reason=request.reason or "",
    )
    try:
        joined = await ctx.cluster.home(GROUPS, request.group_id).join(join)
    except MemberIdRequired as required:
        return _not_joined(ctx.version, ctx.code(required), required.member_id)
    return {
        "error_code": errors.NONE,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in joined.members
        ],
    }


def _not_joined(version: int, code: int, member_id: str) -> Fields:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_name": None if version >= 7 else "",
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


def _refuse_join(request: Message, code: int, detail: str) -> Fields:
    return _not_joined(0, code, request.member_id)


# --- SyncGroup, Heartbeat, LeaveGroup


async def sync_group(ctx: Context, request: Message) -> Fields:
    if ctx.version >= 5 and None in (request.protocol_type, request.protocol_name):  # KIP-559
        raise TreecastError(Fault.INCONSISTENT_PROTOCOL)
    sync = SyncGroup(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((row.member_id, row.assignment) for row in request.assignments),
    )
    synced = await ctx.cluster.home(GROUPS, request.group_id).sync(sync)
    return {
        "error_code": errors.NONE,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


async def heartbeat(ctx: Context, request: Message) -> Fields:
    await ctx.cluster.home(GROUPS, request.group_id).heartbeat(request.group_id, _member(request))
    return {"error_code": errors.NONE}


async def leave_group(ctx: Context, request: Message) -> Fields:
    """Removes one member up to version 2, many from version 3 on (KIP-345)."""
    home = ctx.cluster.home(GROUPS, request.group_id)
    if ctx.version < 3:
        (answer,) = await home.leave(request.group_id, [MemberIdentity(request.member_id)])
        if answer is not None:
            raise answer
        return {"error_code": errors.NONE}
    asked = [
        MemberIdentity(row.member_id, row.group_instance_id, reason=row.reason or "")
        for row in request.members
    ]
    answers = await home.leave(request.group_id, asked)
    return {
        "error_code": errors.NONE,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "error_code": errors.NONE if answer is None else ctx.code(answer),
            }
            for member, answer in zip(asked, answers, strict=True)
        ],
    }


# --- admin requests


async def describe_groups(ctx: Context, request: Message) -> Fields:
    asked = bool(request.include_authorized_operations)
    rows: list[Fields] = []
    async for group_id in paced(ctx, request.groups):
        try:
            ctx.check(Operation.DESCRIBE, ResourceKind.GROUP, group_id)
            described = await ctx.cluster.home(GROUPS, group_id).describe(group_id)
            _check_classic(ctx, described)
        except TreecastError as error:
            rows.append(_undescribed(group_id, ctx.code(error), error.detail))
        else:
            operations = ctx.operations(asked, ResourceKind.GROUP, group_id)
            rows.append(_described(described, operations))
    return {"groups": rows}


def _check_classic(ctx: Context, group: GroupDescription) -> None:
    """Raises GROUP_NOT_FOUND, from version 6 on, if `group` is not a live classic group (KIP-1043)."""
    if ctx.version >= 6 and (group.state == _DEAD or group.group_type is not GroupType.CLASSIC):
        raise TreecastError(Fault.GROUP_NOT_FOUND, f"there is no classic group {group.group_id!r}")


def _described(group: GroupDescription, operations: int) -> Fields:
    if group.group_type is not GroupType.CLASSIC:  # before version 6 such a group is reported as dead
        group = GroupDescription(group.group_id, _DEAD, "", "", ())
    return {
        "error_code": errors.NONE,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
        "authorized_operations": operations,
    }


def _undescribed(group_id: str, code: int, detail: str) -> Fields:
    dead = code == errors.GROUP_ID_NOT_FOUND
    return {
        "error_code": code,
        "error_message": detail,
        "group_id": group_id,
        "group_state": _DEAD if dead else "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def _refuse_describe(request: Message, code: int, detail: str) -> Fields:
    return {"groups": [_undescribed(group_id, code, detail) for group_id in request.groups]}


async def list_groups(ctx: Context, request: Message) -> Fields:
    """Lists all groups, or those in the requested states (KIP-518) and of the requested types (KIP-848)."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    listings = await ctx.cluster.list_groups()
    found = [one for one in listings if _wanted(one, states, types) and _may_see(ctx, one.group_id)]
    return {"error_code": errors.NONE, "groups": [_listed(one) for one in found]}


def _may_see(ctx: Context, group_id: str) -> bool:
    if ctx.may(Operation.DESCRIBE, ResourceKind.CLUSTER):
        return True
    return ctx.may(Operation.DESCRIBE, ResourceKind.GROUP, group_id)


def _wanted(group: GroupListing, states: set[str], types: set[str]) -> bool:
    return (not states or group.state.lower() in states) and (not types or group.group_type.value in types)


def _listed(group: GroupListing) -> Fields:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state,
        "group_type": group.group_type.value,
    }


def _refuse_list(request: Message, code: int, detail: str) -> Fields:
    return {"error_code": code, "groups": []}


async def delete_groups(ctx: Context, request: Message) -> Fields:
    rows: list[Fields] = []
    async for group_id in paced(ctx, request.groups_names):
        code = await _code_of(ctx, _delete(ctx, group_id))
        rows.append({"group_id": group_id, "error_code": code})
    return {"results": rows}


async def _delete(ctx: Context, group_id: str) -> None:
    ctx.check(Operation.DELETE, ResourceKind.GROUP, group_id)
    await ctx.cluster.home(GROUPS, group_id).delete(group_id)


async def _code_of(ctx: Context, action: Awaitable[None]) -> int:
    try:
        await action
    except TreecastError as error:
        return ctx.code(error)
    return errors.NONE


def _refuse_delete(request: Message, code: int, detail: str) -> Fields:
    return {"results": [{"group_id": group_id, "error_code": code} for group_id in request.groups_names]}


HANDLERS = {
    v.JOIN_GROUP: Handler(join_group, _refuse_join),
    v.SYNC_GROUP: Handler(sync_group, refuse_at_top),
    v.HEARTBEAT: Handler(heartbeat, refuse_at_top),
    v.LEAVE_GROUP: Handler(leave_group, refuse_at_top),
    v.DESCRIBE_GROUPS: Handler(describe_groups, _refuse_describe),
    v.LIST_GROUPS: Handler(list_groups, _refuse_list),
    v.DELETE_GROUPS: Handler(delete_groups, _refuse_delete),
}
