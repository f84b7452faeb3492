"""DescribeAcls, CreateAcls, DeleteAcls: the rules of the store of identities, as Kafka's ACLs (KIP-140).

While there are no users nothing is asked of rules, and the answer is SECURITY_DISABLED, as Kafka's without an
authorizer. MirrorMaker 2 and admin tools accept this answer and continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treecast.middleware.broker.access import Rule, with_rules, without_rules
from treecast.middleware.model.errors import TreecastError

from .. import errors
from .. import versions as v
from ..acl_codes import matcher, resource_of, row_of, rule_of
from .base import MOST_ROWS, TOO_MANY_ROWS, Context, Fields, Handler, Message, refuse_with_message

_DETAIL = "no user exists, so that no rules are asked: `treecast users add NAME --admin` adds one"


def _rules(ctx: Context) -> Sequence[Rule]:
    return ctx.log_in.identities.content.rules


# --- DescribeAcls


def describe_acls(ctx: Context, request: Message) -> Fields:
    if not ctx.log_in.identities.closed:
        return {"error_code": errors.SECURITY_DISABLED, "error_message": _DETAIL, "resources": []}
    wanted = matcher(request)
    resources: dict[tuple[object, ...], dict[str, object]] = {}
    rows: dict[tuple[object, ...], list[Fields]] = {}
    for rule in _rules(ctx):
        if wanted(rule):
            place = (rule.kind, rule.pattern, rule.name)
            resources.setdefault(place, resource_of(rule))
            rows.setdefault(place, []).append(row_of(rule))
    found = [fields | {"acls": rows[place]} for place, fields in resources.items()]
    return {"error_code": errors.NONE, "error_message": None, "resources": found}


# --- CreateAcls


def create_acls(ctx: Context, request: Message) -> Fields:
    """Adds the rules that are valid, all at once."""
    if not ctx.log_in.identities.closed:
        return _refuse_create(request, errors.SECURITY_DISABLED, _DETAIL)
    read = [_read(rule_of, row) for row in request.creations]
    rules = [one for one in read if isinstance(one, Rule)]
    if rules:
        ctx.log_in.identities.change(with_rules(rules))
    return {"results": [_created(ctx, one) for one in read]}


def _read(read: Callable[[Message], Rule], row: Message) -> Rule | TreecastError:
    try:
        return read(row)
    except TreecastError as error:
        return error


def _created(ctx: Context, one: Rule | TreecastError) -> Fields:
    if isinstance(one, TreecastError):
        return {"error_code": ctx.code(one), "error_message": one.detail}
    return {"error_code": errors.NONE, "error_message": None}


def _refuse_create(request: Message, code: int, detail: str) -> Fields:
    return {"results": [{"error_code": code, "error_message": detail} for _ in request.creations]}


# --- DeleteAcls


def delete_acls(ctx: Context, request: Message) -> Fields:
    """Removes the rules that pass one of the filters, and says for each filter which these were."""
    if not ctx.log_in.identities.closed:
        return _refuse_delete(request, errors.SECURITY_DISABLED, _DETAIL)
    if len(request.filters) > MOST_ROWS:  # each looks at all rules
        return _refuse_delete(request, errors.INVALID_REQUEST, TOO_MANY_ROWS)
    found = [_matching(ctx, row) for row in request.filters]
    gone = [rule for one in found if not isinstance(one, TreecastError) for rule in one]
    if gone:
        ctx.log_in.identities.change(without_rules(gone))
    return {"filter_results": [_deleted(ctx, one) for one in found]}


def _matching(ctx: Context, row: Message) -> list[Rule] | TreecastError:
    try:
        wanted = matcher(row)
    except TreecastError as error:
        return error
    return [rule for rule in _rules(ctx) if wanted(rule)]


def _deleted(ctx: Context, one: list[Rule] | TreecastError) -> Fields:
    if isinstance(one, TreecastError):
        return {"error_code": ctx.code(one), "error_message": one.detail, "matching_acls": []}
    gone = [resource_of(rule) | row_of(rule) | {"error_code": errors.NONE} for rule in one]
    return {"error_code": errors.NONE, "error_message": None, "matching_acls": gone}


def _refuse_delete(request: Message, code: int, detail: str) -> Fields:
    row: Fields = {"error_code": code, "error_message": detail, "matching_acls": []}
    return {"filter_results": [row for _ in request.filters]}


HANDLERS = {
    v.DESCRIBE_ACLS: Handler(describe_acls, refuse_with_message),
    v.CREATE_ACLS: Handler(create_acls, _refuse_create),
    v.DELETE_ACLS: Handler(delete_acls, _refuse_delete),
}
