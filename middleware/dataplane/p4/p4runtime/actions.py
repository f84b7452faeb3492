"""The action of an entry: an action, a member or group of a profile, or a set of actions of its own."""

from __future__ import annotations

from finsy.proto import p4r

from treecast.middleware.dataplane.p4.runtime import (
    Action,
    ActionCall,
    GroupRef,
    MemberRef,
    OneShot,
    WeightedCall,
)

from .errors import Code, P4RuntimeError, invalid
from .matches import call_from, call_to
from .schema import Schema, Table

_DEFAULT_ONLY, _TABLE_ONLY = 2, 1


def action_from(schema: Schema, table: Table, sent: p4r.TableAction, *, default: bool, what: str) -> Action:
    """Returns the action of an entry, or of the default entry. It must have the form that the table uses."""
    kind = sent.WhichOneof("type")
    if kind is None:
        raise invalid(f"{what}: the action is missing")
    if default or not table.profile:
        if kind != "action":
            raise invalid(f"{what} takes an action, not a {kind.replace('_', ' ')}")
        return _call(schema, table, sent.action, default=default, what=what)
    if kind == "action_profile_member_id":
        return MemberRef(sent.action_profile_member_id)
    if not schema.profiles.find(table.profile).with_selector or kind == "action":
        raise invalid(f"{what} takes what its action profile has, not a {kind.replace('_', ' ')}")
    if kind == "action_profile_group_id":
        return GroupRef(sent.action_profile_group_id)
    return _one_shot(schema, table, sent.action_profile_action_set, what)


def _call(schema: Schema, table: Table, sent: p4r.Action, *, default: bool, what: str) -> ActionCall:
    call = call_from(schema, sent, what)
    scope = table.scopes.get(sent.action_id)
    if scope is None:
        raise invalid(f"{call.action} is no action of {what}")
    if scope == (_TABLE_ONLY if default else _DEFAULT_ONLY):
        place = "the default entry" if default else "entries"
        raise P4RuntimeError(Code.PERMISSION_DENIED, f"{call.action} is not for {place} of {what}")
    return call


def _one_shot(schema: Schema, table: Table, sent: p4r.ActionProfileActionSet, what: str) -> OneShot:
    if sent.action_selection_mode or sent.size_semantics:
        raise P4RuntimeError(
            Code.UNIMPLEMENTED, f"{what}: selection mode and size semantics are the selector's"
        )
    choices = []
    for one in sent.action_profile_actions:
        if one.weight < 1:
            raise invalid(f"{what}: the weight {one.weight} is not above 0")
        if one.WhichOneof("watch_kind") == "watch":
            raise P4RuntimeError(Code.UNIMPLEMENTED, f"{what}: `watch` is obsolete, set watch_port")
        call = _call(schema, table, one.action, default=False, what=what)
        choices.append(WeightedCall(call, one.weight, one.watch_port))
    if not choices:
        raise invalid(f"{what}: the set of actions is empty")
    return OneShot(tuple(choices))


def action_to(schema: Schema, action: Action) -> p4r.TableAction:
    """Returns the message of an entry's action."""
    if isinstance(action, ActionCall):
        return p4r.TableAction(action=call_to(schema, action))
    if isinstance(action, MemberRef):
        return p4r.TableAction(action_profile_member_id=action.member)
    if isinstance(action, GroupRef):
        return p4r.TableAction(action_profile_group_id=action.group)
    message = p4r.TableAction()
    for choice in action.choices:
        one = message.action_profile_action_set.action_profile_actions.add(weight=choice.weight)
        one.action.CopyFrom(call_to(schema, choice.call))
        if choice.watch_port:
            one.watch_port = choice.watch_port
    return message
