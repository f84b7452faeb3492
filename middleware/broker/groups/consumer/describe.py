"""Descriptions of members for administrators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from treecast.middleware.broker.values import ConsumerMemberState, GroupMember, Places

from .embedded import encode_assignment
from .members import Member


def describe_member(member: Member, named: Callable[[Places], Mapping[str, Sequence[int]]]) -> GroupMember:
    """Describes a member with all that it holds. This includes partitions that it has yet to give up.

    `named` as in `SubscribedTopics`.
    """
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        b"",
        encode_assignment(named(member.held), 0),
        ConsumerMemberState(
            member.epoch,
            member.rack_id,
            tuple(sorted(member.topics)),
            member.regex,
            member.held,
            member.target,
            member.classic is not None,
        ),
    )
