"""JoinGroup of a classic group: who is admitted to the next generation, and who is answered at once.

New members, members that join again, and static members that have restarted (KIP-345, KIP-394, KIP-814).
"""

from __future__ import annotations

from treecast.middleware.broker.values import Joined, JoinGroup, MemberIdRequired
from treecast.middleware.model.errors import Fault, TreecastError

from .effects import TakeOverWritten, Write
from .group import Group
from .members import Member
from .state import Event, State, step


def join(group: Group, request: JoinGroup, waiter: int, now: float) -> None:
    """Admits `waiter` to the next generation, or answers it at once."""
    try:
        _join(group, request, waiter, now)
    except TreecastError as refused:
        group.effects.answer(waiter, refused)
    group.complete_if_all_joined(now)


def _join(group: Group, request: JoinGroup, waiter: int, now: float) -> None:
    step(group.state, Event.JOIN)
    known = group.members.get(request.member_id) or group.members.of_instance(request.instance_id)
    if not _has_room_for(group, known):
        group.timeouts.reserved.pop(request.member_id, None)
        if known is not None:
            group.remove(known, now, "the group is full")
        raise TreecastError(Fault.GROUP_FULL)
    if not _speaks_with(group, request):
        raise TreecastError(Fault.INCONSISTENT_PROTOCOL)
    if not request.member_id:
        _join_without_id(group, request, waiter, now)
    elif request.member_id in group.timeouts.reserved:
        if request.instance_id is not None:
            raise TreecastError(Fault.INVALID_REQUEST, "the member id belongs to a dynamic member")
        _add(group, request.member_id, request, waiter, now)
    else:
        _rejoin(group, request, waiter, now)


def _has_room_for(group: Group, known: Member | None) -> bool:
    """While the group collects joins, only waiting members count, so the last to rejoin are shed."""
    if group.state is State.EMPTY:
        return True
    if group.state is State.PREPARING:
        waits = known is not None and known.join_waiter is not None
        return waits or group.members.joined() < group.settings.max_size
    return known is not None or len(group.members) < group.settings.max_size


def _speaks_with(group: Group, request: JoinGroup) -> bool:
    names = [name for name, _ in request.protocols]
    if group.state is State.EMPTY:
        return bool(request.protocol_type and names)
    return request.protocol_type == group.protocol_type and group.members.agree_on(names)


def _join_without_id(group: Group, request: JoinGroup, waiter: int, now: float) -> None:
    prefix = request.client_id if request.instance_id is None else request.instance_id
    member_id = group.new_member_id(prefix)
    former = group.members.of_instance(request.instance_id)
    if former is not None:
        _take_over(group, former, member_id, request, waiter, now)
    elif request.require_known_member_id and request.instance_id is None:
        step(group.state, Event.RESERVE)
        group.timeouts.reserved[member_id] = group.timeouts.arm(now + request.session_timeout_ms / 1000)
        raise MemberIdRequired(member_id)
    else:
        _add(group, member_id, request, waiter, now)


def _add(group: Group, member_id: str, request: JoinGroup, waiter: int, now: float) -> None:
    following = step(group.state, Event.JOIN)
    group.timeouts.reserved.pop(member_id, None)
    if not group.members:
        group.protocol_type = request.protocol_type
    group.timeouts.round.grow()
    member = Member.of(member_id, request)
    member.join_waiter = waiter
    group.members.add(member)
    group.timeouts.prolong(member, now)
    group.effects.note("member joins", member_id, request.reason)
    group.enter(following, now)


def _rejoin(group: Group, request: JoinGroup, waiter: int, now: float) -> None:
    """Handles a rejoin. Starts a new generation only if something may have changed."""
    member = group.members.find(request.member_id, request.instance_id)
    leads = member.member_id == group.members.leader
    changed = member.protocols != request.protocols or (leads and group.state is State.STABLE)
    following = step(group.state, Event.CHANGE if changed else Event.REJOIN)
    if following is not State.PREPARING:
        # The answer to its join may have been lost: repeat the current generation.
        group.timeouts.prolong(member, now)
        group.effects.answer(waiter, group.joined(member))
        return
    group.effects.note("member joins again", member.member_id, request.reason)
    group.members.update(member, request)
    if member.join_waiter is not None:  # a newer join replaces the first; its waiter may retry
        group.effects.answer(member.join_waiter, TreecastError(Fault.REBALANCE_IN_PROGRESS))
    member.join_waiter = waiter
    group.enter(following, now)


def _take_over(
    group: Group, member: Member, member_id: str, request: JoinGroup, waiter: int, now: float
) -> None:
    """Replaces a static member by its restarted instance (KIP-345)."""
    former_id, former_leader = member.member_id, group.members.leader
    group.effects.answer_both(member, TreecastError(Fault.FENCED_INSTANCE))
    group.members.rename(member, member_id)
    if former_id in group.timeouts.unsynced:
        group.timeouts.unsynced.remove(former_id)
        group.timeouts.unsynced.add(member_id)
    group.members.update(member, request)
    group.effects.note("static member restarts", member_id, request.reason)
    same = group.members.elected_protocol() == group.protocol
    following = step(group.state, Event.TAKE_OVER if same else Event.CHANGE)
    member.join_waiter = waiter
    group.timeouts.prolong(member, now)
    if following is State.STABLE:
        joined = _after_take_over(group, member, former_leader, request.can_skip_assignment)
        written = TakeOverWritten(group.generation, waiter, member_id, joined)
        group.effects.add(Write(group.record(), written))
    group.enter(following, now)


def _after_take_over(group: Group, member: Member, former_leader: str, can_skip: bool) -> Joined:
    """Returns the join answer for a restarted leader, which must not assign in a stable generation.

    From JoinGroup 9 on, the answer says so (KIP-814). Older versions name the former member as leader.
    """
    leads = member.member_id == group.members.leader
    return Joined(
        group.generation,
        group.protocol_type,
        group.protocol,
        group.members.leader if can_skip else former_leader,
        member.member_id,
        group.members.metadata(group.protocol) if leads and can_skip else (),
        skip_assignment=leads and can_skip,
    )
