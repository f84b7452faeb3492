"""Answers about a classic group for its members and for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treecast.middleware.broker.values import GroupDescription, GroupMember, Joined

from .members import Member
from .state import State

if TYPE_CHECKING:
    from .group import Group


def joined(group: Group, member: Member) -> Joined:
    """Returns the current generation as the join answer for `member`."""
    leads = member.member_id == group.members.leader and group.state is State.COMPLETING
    return Joined(
        group.generation,
        group.protocol_type,
        group.protocol,
        group.members.leader,
        member.member_id,
        group.members.metadata(group.protocol) if leads else (),
    )


def joined_after_take_over(group: Group, member: Member, former_leader: str, can_skip: bool) -> Joined:
    """Returns the join answer for a restarted leader, which must not assign in a stable generation.

    From JoinGroup 9 on, the answer says so (KIP-814). Older versions name the former member as leader.
    """
    leads = member.member_id == group.members.leader
    members = group.members.metadata(group.protocol) if leads and can_skip else ()
    leader = group.members.leader if can_skip else former_leader
    return Joined(
        group.generation,
        group.protocol_type,
        group.protocol,
        leader,
        member.member_id,
        members,
        skip_assignment=leads and can_skip,
    )


def description(group: Group) -> GroupDescription:
    """Returns the group for DescribeGroups. Metadata and assignments appear only in a stable generation."""
    stable = group.state is State.STABLE
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members
    )
    protocol = group.protocol if stable else ""
    return GroupDescription(
        group.group_id, group.state.value, group.protocol_type, protocol, members, epoch=group.generation
    )
