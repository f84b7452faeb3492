"""Between the two group protocols: a group goes on with its members, partitions and offsets (KIP-848).

Up: the first member of the new protocol joins a group of classic consumers. What the last generation
assigned, and what members said that they still held, is theirs until they join again without it. Down: the
last member of the new protocol is gone. The classic members begin a round, and until it is complete what they
say in their epochs counts, as they are of different ones.
"""

from __future__ import annotations

from collections.abc import Callable

from treecast.middleware.broker.groups.group import Group
from treecast.middleware.broker.groups.members import Member as ClassicMember
from treecast.middleware.broker.groups.subscription import CONSUMER
from treecast.middleware.broker.values import Place
from treecast.middleware.model.errors import Fault, TreecastError

from .embedded import encode_assignment, parse_assignment, parse_subscription
from .group import ConsumerGroup
from .members import ClassicSide, Member


def upgrade(classic: Group, new: Callable[[int], ConsumerGroup], now: float) -> ConsumerGroup:
    """The group that goes on in place of `classic`, which is dead then; who waits there is told to join
    again.

    `new` makes a group of that epoch. GROUP_NOT_FOUND where its members are no consumers.
    """
    if classic.members and classic.protocol_type != CONSUMER:
        raise TreecastError(
            Fault.GROUP_NOT_FOUND,
            f"the group is one of members of type {classic.protocol_type}, not of consumers",
        )
    group = new(classic.generation)
    taken: set[Place] = set()
    try:
        members = [_upgraded(member, classic.protocol) for member in classic.members]
        # what was assigned counts before what somebody still held while it joined
        for member, assigned, _ in members:
            member.assigned = group.places(assigned) - taken
            taken |= member.assigned
        for member, _, owned in members:
            also = group.places(owned) - taken
            taken |= also
            member.target = member.assigned
            member.assigned |= also
    except ValueError as error:
        raise TreecastError(
            Fault.GROUP_NOT_FOUND, f"a member's subscription or assignment makes no sense: {error}"
        ) from error
    for member, _, _ in members:
        member.epoch = member.previous_epoch = classic.generation
        group.members.add(member)
        group.mark(member.member_id)
    group.mark_group()
    group.resume(now)
    classic.upgrade(now)
    return group


def _upgraded(
    member: ClassicMember, protocol: str
) -> tuple[Member, dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """The member, what it was assigned, and what it held when it joined."""
    name = protocol if protocol in member.names else member.protocols[0][0]
    subscription = parse_subscription(member.metadata(name))
    upgraded = Member(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout,
        subscription.topics,
        classic=ClassicSide(member.session_timeout, member.protocols),
    )
    return upgraded, dict(parse_assignment(member.assignment)), dict(subscription.owned)


def downgrade(group: ConsumerGroup, classic: Group, now: float) -> None:
    """`classic`, which is new, goes on in place of `group`, which is dead then."""
    for member in group.members:
        assert member.classic is not None
        version = parse_subscription(member.classic.protocols[0][1]).version
        adopted = ClassicMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.classic.session_timeout,
            member.rebalance_timeout,
            member.classic.protocols,
            encode_assignment(group.named(member.held), version),
        )
        adopted.former_epoch = member.epoch
        classic.members.add(adopted)
    classic.adopt(group.epoch, now)
    group.downgrade(now)
