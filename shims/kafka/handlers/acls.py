"""DescribeAcls, CreateAcls, DeleteAcls: SECURITY_DISABLED, as Kafka answers without an authorizer.

MirrorMaker 2 and admin tools accept this answer and continue. They would not accept a closed connection.
"""

from __future__ import annotations

from .. import errors
from .. import versions as v
from .base import Context, Fields, Handler, Message, refuse_with_message

_DETAIL = "no authorizer is configured on this broker"


def describe_acls(ctx: Context, request: Message) -> Fields:
    return {"error_code": errors.SECURITY_DISABLED, "error_message": _DETAIL, "resources": []}


def create_acls(ctx: Context, request: Message) -> Fields:
    return _refuse_create(request, errors.SECURITY_DISABLED, _DETAIL)


def delete_acls(ctx: Context, request: Message) -> Fields:
    return _refuse_delete(request, errors.SECURITY_DISABLED, _DETAIL)


def _refuse_create(request: Message, code: int, detail: str) -> Fields:
    return {"results": [{"error_code": code, "error_message": detail} for _ in request.creations]}


def _refuse_delete(request: Message, code: int, detail: str) -> Fields:
    row: Fields = {"error_code": code, "error_message": detail, "matching_acls": []}
    return {"filter_results": [row for _ in request.filters]}


HANDLERS = {
    v.DESCRIBE_ACLS: Handler(describe_acls, refuse_with_message),
    v.CREATE_ACLS: Handler(create_acls, _refuse_create),
    v.DELETE_ACLS: Handler(delete_acls, _refuse_delete),
}
