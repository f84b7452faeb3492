"""Members of a group of type consumer that speak the classic protocol, during a migration to the new protocol
or back.

JoinGroup is answered at once. The generation is the member's epoch, there is no leader, and the assignment
follows from the target. Heartbeat answers tell members to rejoin. A classic member gives partitions up by
joining without them: an eager member before each join, a cooperative member when its sync requires it. After
Kafka's `GroupMetadataManager.classicGroupJoinToConsumerGroup` and related methods.
"""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.broker.groups.subscription import CONSUMER
from treecast.middleware.broker.values import (
    Joined,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
    Synced,
    SyncGroup,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.timers import NEVER

from .embedded import Subscription, encode_assignment, parse_subscription
from .group import ConsumerGroup
from .members import ClassicSide, Member
from .state import Event, Standing, step


def join(group: ConsumerGroup, request: JoinGroup, max_size: int, now: float) -> Joined:
    """Handles JoinGroup. MEMBER_ID_REQUIRED is raised as `MemberIdRequired`."""
    step(group.state, Event.JOIN)
    names = [name for name, _ in request.protocols]
    if request.protocol_type != CONSUMER or not names or not group.members.speaks(names):
        raise TreecastError(Fault.INCONSISTENT_PROTOCOL)
    try:
        subscription = parse_subscription(request.protocols[0][1])
    except ValueError as error:
        raise TreecastError(
            Fault.INCONSISTENT_PROTOCOL, f"the member's subscription cannot be read: {error}"
        ) from error
    member = _member(group, request, max_size, now)
    described, before = member.described(), member.subscription()
    _update(member, request, subscription)
    group.admit(member, described, before)
    group.settle(member, group.topics.places(subscription.owned), now)
    member.join_deadline = NEVER
    member.session_deadline = group.arm(now + request.session_timeout_ms / 1000)
    member.sync_deadline = group.arm(now + member.rebalance_timeout)
    return Joined(member.epoch, CONSUMER, names[0], "", member.member_id)


def _member(group: ConsumerGroup, request: JoinGroup, max_size: int, now: float) -> Member:
    """Returns the member that `request` joins as. Member ids of any origin are accepted, as in Kafka."""
    static = group.members.of_instance(request.instance_id)
    if request.member_id and request.instance_id is not None and static is not None:
        return group.members.find(request.member_id, request.instance_id)
    known = group.members.get(request.member_id)
    if known is not None:
        return known
    if static is None and len(group.members) >= max_size:
        raise TreecastError(Fault.GROUP_FULL)
    if not request.member_id and request.require_known_member_id:
        raise MemberIdRequired(group.new_member_id(request.client_id))
    if static is not None:
        return group.replace(static, group.new_member_id(request.instance_id or ""), now)
    if request.member_id and request.instance_id is not None:
        raise TreecastError(Fault.UNKNOWN_MEMBER)
    prefix = request.client_id if request.instance_id is None else request.instance_id
    return group.create(request.member_id or group.new_member_id(prefix), request.instance_id)


def _update(member: Member, request: JoinGroup, subscription: Subscription) -> None:
    member.client_id, member.client_host = request.client_id, request.client_host
    member.rebalance_timeout = max(request.rebalance_timeout_ms, 0) / 1000
    member.rack_id = subscription.rack_id
    member.topics, member.regex, member.assignor = subscription.topics, "", ""
    member.classic = ClassicSide(request.session_timeout_ms / 1000, request.protocols)
    member.revoke_deadline = NEVER


def sync(group: ConsumerGroup, request: SyncGroup, now: float) -> Synced:
    """Handles SyncGroup. Returns the partitions that the member may use."""
    step(group.state, Event.SYNC)
    member, classic = _classic(group, request.member_id, request.instance_id)
    group.check_epoch(member, request.generation)
    # a member that must give partitions up learns it from its assignment first, and then rejoins by itself.
    # Refused before the protocol is compared: a member that joined before the upgrade names the elected one.
    if group.epoch > member.epoch and member.standing is not Standing.UNREVOKED:
        _join_again(group, member, now)
        raise TreecastError(Fault.REBALANCE_IN_PROGRESS)
    protocol, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER) or request.protocol not in (None, protocol):
        raise TreecastError(Fault.INCONSISTENT_PROTOCOL)
    member.sync_deadline = NEVER
    member.session_deadline = group.arm(now + classic.session_timeout)
    version = parse_subscription(metadata).version
    return Synced(CONSUMER, protocol, encode_assignment(group.topics.named(member.assigned), version))


def heartbeat(group: ConsumerGroup, identity: MemberIdentity, now: float) -> None:
    """Handles Heartbeat. Raises REBALANCE_IN_PROGRESS if the member has to rejoin to make progress."""
    step(group.state, Event.HEARTBEAT)
    member, classic = _classic(group, identity.member_id, identity.instance_id)
    group.check_epoch(member, identity.generation)
    member.session_deadline = group.arm(now + classic.session_timeout)
    waits = member.standing is Standing.UNRELEASED
    if (
        member.epoch < group.epoch
        or member.standing is Standing.UNREVOKED
        or (waits and _can_take(group, member))
    ):
        _join_again(group, member, now)
        raise TreecastError(Fault.REBALANCE_IN_PROGRESS)


def leave(
    group: ConsumerGroup, identities: Sequence[MemberIdentity], now: float
) -> list[TreecastError | None]:
    """Handles LeaveGroup. Returns one answer per member."""
    answers: list[TreecastError | None] = []
    for identity in identities:
        try:
            step(group.state, Event.LEAVE)
            group.remove(_leaving(group, identity), now, identity.reason or "it left")
            answers.append(None)
        except TreecastError as refused:
            answers.append(refused)
    return answers


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    """Returns the member to remove. Administrators name static members of either protocol by instance id."""
    if identity.member_id:
        return _classic(group, identity.member_id, identity.instance_id)[0]
    found = group.members.of_instance(identity.instance_id)
    if found is None:
        raise TreecastError(Fault.UNKNOWN_MEMBER)
    return found


def _classic(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[Member, ClassicSide]:
    member = group.members.find(member_id, instance_id)
    if member.classic is None:
        raise TreecastError(Fault.UNKNOWN_MEMBER, "the member does not use the classic protocol")
    return member, member.classic


def _can_take(group: ConsumerGroup, member: Member) -> bool:
    """Whether all partitions of its target are free or its own."""
    return all(group.members.holder(place) in (None, member.member_id) for place in member.target)


def _join_again(group: ConsumerGroup, member: Member, now: float) -> None:
    """Starts the rebalance timeout for rejoining, when the member is first told to."""
    if member.join_deadline == NEVER:
        member.join_deadline = group.arm(now + member.rebalance_timeout)
