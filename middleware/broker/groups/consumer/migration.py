"""Migration between the two group protocols: a group keeps its members, partitions and offsets (KIP-848).

Upgrade: the first member of the new protocol joins a group of classic consumers. Members keep the partitions
assigned by the last generation, and those they said they still held, until they rejoin without them.
Downgrade: the last member of the new protocol is gone. The classic members start a round of joins. Until it
is complete each member may also use its own former epoch, because these epochs differ.
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
    """Returns the group that replaces `classic`. `classic` becomes dead, and its waiters are told to rejoin.

    `new` creates a group with the given epoch. Raises GROUP_NOT_FOUND if the members are not consumers.
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
        # assigned partitions take precedence over partitions still held at joining
        for member, assigned, _ in members:
            member.assigned = group.topics.places(assigned) - taken
            taken |= member.assigned
        for member, _, owned in members:
            also = group.topics.places(owned) - taken
            taken |= also
            member.target = member.assigned
            member.assigned |= also
    except ValueError as error:
        raise TreecastError(
            Fault.GROUP_NOT_FOUND, f"a member's subscription or assignment cannot be read: {error}"
        ) from error
    for member, _, _ in members:
        member.epoch = member.previous_epoch = classic.generation
        group.members.add(member)
        group.effects.mark(member.member_id)
    group.effects.mark_group()
    group.resume(now)
    classic.upgrade(now)
    return group


def _upgraded(
    member: ClassicMember, protocol: str
) -> tuple[Member, dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Returns the member, its assigned partitions, and the partitions it held when it joined."""
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
    """Replaces `group`, which becomes dead, by the new group `classic`."""
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
            encode_assignment(group.topics.named(member.held), version),
        )
        adopted.former_epoch = member.epoch
        classic.members.add(adopted)
    classic.adopt(group.epoch, now)
    group.downgrade(now)
