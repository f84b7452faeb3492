"""Calls about what this broker does not have: share groups.

They (KIP-932) are answered as by a Kafka where they are turned off, so that their consumers say that the
cluster has none, instead of trying again for ever.
"""

from __future__ import annotations

from treecast.middleware.broker.access import Operation, ResourceKind
from treecast.middleware.model.errors import Fault

from .. import errors
from .. import versions as v
from .base import Context, Fields, Handler, Message, refuse_with_message

_NO_SHARES = "this broker has no share groups"


def share_group_heartbeat(ctx: Context, request: Message) -> Fields:
    return {"error_code": errors.UNSUPPORTED_VERSION, "error_message": _NO_SHARES}


def share_group_describe(ctx: Context, request: Message) -> Fields:
    return {"groups": [_undescribed(ctx, name) for name in request.group_ids]}


def _undescribed(ctx: Context, group_id: str) -> Fields:
    code, detail = errors.UNSUPPORTED_VERSION, _NO_SHARES
    if not ctx.may(Operation.DESCRIBE, ResourceKind.GROUP, group_id):
        code, detail = errors.GROUP_AUTHORIZATION_FAILED, Fault.FORBIDDEN_GROUP.value
    return {"group_id": group_id, "error_code": code, "error_message": detail}


def _refuse_describe(request: Message, code: int, detail: str) -> Fields:
    rows = [{"group_id": name, "error_code": code, "error_message": detail} for name in request.group_ids]
    return {"groups": rows}


HANDLERS = {
    v.SHARE_GROUP_HEARTBEAT: Handler(share_group_heartbeat, refuse_with_message),
    v.SHARE_GROUP_DESCRIBE: Handler(share_group_describe, _refuse_describe),
}
