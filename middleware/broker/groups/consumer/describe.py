"""Descriptions of members for administrators."""

from __future__ import annotations

from collections.abc import Callable

from treecast.middleware.broker.values import ConsumerMemberState, GroupMember, Places
from treecast.middleware.model.identity import TopicId

from .embedded import encode_assignment
from .members import Member

NameOf = Callable[[TopicId], str | None]


def named(places: Places, name_of: NameOf) -> dict[str, list[int]]:
    """Returns partition numbers by topic name, without those of deleted topics."""
    found: dict[str, list[int]] = {}
    names: dict[TopicId, str | None] = {}
    for topic, number in sorted(places):
        if topic not in names:
            names[topic] = name_of(topic)
        name = names[topic]
        if name is not None:
            found.setdefault(name, []).append(number)
    return found


def describe_member(member: Member, name_of: NameOf) -> GroupMember:
    """Describes a member with all that it holds. This includes partitions that it has yet to give up."""
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        b"",
        encode_assignment(named(member.held, name_of), 0),
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
