"""SyncGroup of a classic group: the leader sends the assignments, and each member gets its own once they are
on disk."""

from __future__ import annotations

from treecast.middleware.broker.values import MemberIdentity, Synced, SyncGroup
from treecast.middleware.model.errors import Fault, TreecastError

from .effects import AssignmentWritten, EmptyWritten, TakeOverWritten, Write, Written
from .group import Group
from .state import Event, State, step


def sync(group: Group, request: SyncGroup, waiter: int, now: float) -> None:
    """Answers `waiter` with its assignment once the leader's assignment is on disk."""
    try:
        _sync(group, request, waiter, now)
    except TreecastError as refused:
        group.effects.answer(waiter, refused)


def _sync(group: Group, request: SyncGroup, waiter: int, now: float) -> None:
    member = group.find(MemberIdentity(request.member_id, request.instance_id, request.generation))
    # Refused before the protocol is compared while joins are collected: a group that came from the new
    # protocol has not elected one, and its members may sync with what that group answered to their joins.
    following = step(group.state, Event.SYNC)
    if request.protocol_type not in (None, group.protocol_type):
        raise TreecastError(Fault.INCONSISTENT_PROTOCOL)
    if request.protocol not in (None, group.protocol):
        raise TreecastError(Fault.INCONSISTENT_PROTOCOL)
    group.timeouts.synced(member.member_id)
    if following is State.STABLE:
        group.timeouts.prolong(member, now)
        group.effects.answer(waiter, Synced(group.protocol_type, group.protocol, member.assignment))
        return
    if member.sync_waiter is not None:
        group.effects.answer(member.sync_waiter, TreecastError(Fault.REBALANCE_IN_PROGRESS))
    member.sync_waiter = waiter
    if member.member_id == group.members.leader:
        given = dict(request.assignments)
        assignments = {m.member_id: given.get(m.member_id, b"") for m in group.members}
        written = AssignmentWritten(group.generation, assignments)
        group.effects.add(Write(group.record(assignments), written))


def written(group: Group, then: Written, error: TreecastError | None, now: float) -> None:
    """Takes the result of a `Write`: on disk, or `error`."""
    if isinstance(then, EmptyWritten) or then.generation != group.generation:
        return
    if error is not None:
        error = TreecastError(Fault.COORDINATOR_UNAVAILABLE, str(error))
    if isinstance(then, TakeOverWritten):
        _taken_over(group, then, error, now)
    elif group.state is State.COMPLETING and error is not None:
        group.answer_syncs(error, now)
        group.enter(step(group.state, Event.UNASSIGNED), now)
    elif group.state is State.COMPLETING:
        group.enter(step(group.state, Event.ASSIGNED), now)
        for member in group.members:
            member.assignment = then.assignments.get(member.member_id, b"")
        group.answer_syncs(None, now)
    group.complete_if_all_joined(now)


def _taken_over(group: Group, then: TakeOverWritten, error: TreecastError | None, now: float) -> None:
    member = group.members.get(then.member_id)
    if group.state is not State.STABLE or member is None or member.join_waiter != then.waiter:
        return  # a new round has begun and answers the waiter
    member.join_waiter = None
    group.timeouts.prolong(member, now)
    group.effects.answer(then.waiter, then.joined if error is None else error)
