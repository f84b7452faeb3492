"""ActionProfileMember and ActionProfileGroup (9.2)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from finsy.proto import p4r

from treecast.middleware.dataplane.p4.runtime import ActionCall, GroupEntry, GroupMember, MemberEntry

from .errors import Code, P4RuntimeError, invalid
from .matches import call_from, call_to
from .schema import Profile
from .store import DELETE, INSERT, Store, Undo


class MemberStore(Store[p4r.ActionProfileMember]):
    """Members of action profiles and selectors."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.ActionProfileMember, now: float) -> Undo:
        profile = self.schema.profiles.find(message.action_profile_id)
        if not message.member_id:
            raise invalid(f"{profile.name}: a member's id is above 0")
        if kind == INSERT:
            entry = MemberEntry(message.member_id, self._call(profile, message))
            self.control.profile(profile.name).insert_member(entry)
            return partial(self.control.profile(profile.name).delete_member, message.member_id)
        old = self.control.profile(profile.name).written_member(message.member_id)
        if kind == DELETE:
            self.control.profile(profile.name).delete_member(old.member)
            return partial(self.control.profile(profile.name).insert_member, old)
        entry = MemberEntry(message.member_id, self._call(profile, message))
        self.control.profile(profile.name).modify_member(entry)
        return partial(self.control.profile(profile.name).modify_member, old)

    def _call(self, profile: Profile, message: p4r.ActionProfileMember) -> ActionCall:
        call = call_from(self.schema, message.action, profile.name)
        if message.action.action_id not in profile.actions:
            raise invalid(f"{call.action} is no action of the tables of {profile.name}")
        return call

    def read(self, wanted: p4r.ActionProfileMember, now: float) -> Iterator[p4r.Entity]:
        for profile in self.schema.profiles.chosen(wanted.action_profile_id):
            for member in self.control.profile(profile.name).members():
                if wanted.action_profile_id and wanted.member_id not in (0, member.member):
                    continue
                message = p4r.ActionProfileMember(action_profile_id=profile.id, member_id=member.member)
                message.action.CopyFrom(call_to(self.schema, member.call))
                yield p4r.Entity(action_profile_member=message)


class GroupStore(Store[p4r.ActionProfileGroup]):
    """Groups of action selectors."""

    def write(self, kind: p4r.Update.Type.ValueType, message: p4r.ActionProfileGroup, now: float) -> Undo:
        profile = self.schema.profiles.find(message.action_profile_id)
        if not profile.with_selector:
            raise invalid(f"{profile.name} has no groups: it is no selector")
        if not message.group_id:
            raise invalid(f"{profile.name}: a group's id is above 0")
        if kind == INSERT:
            self.control.profile(profile.name).insert_group(group_from(profile, message))
            return partial(self.control.profile(profile.name).delete_group, message.group_id)
        old = self.control.profile(profile.name).written_group(message.group_id)
        if kind == DELETE:
            self.control.profile(profile.name).delete_group(old.group)
            return partial(self.control.profile(profile.name).insert_group, old)
        self.control.profile(profile.name).modify_group(group_from(profile, message))
        return partial(self.control.profile(profile.name).modify_group, old)

    def read(self, wanted: p4r.ActionProfileGroup, now: float) -> Iterator[p4r.Entity]:
        for profile in self.schema.profiles.chosen(wanted.action_profile_id):
            if not profile.with_selector:
                continue
            for group in self.control.profile(profile.name).groups():
                if wanted.action_profile_id and wanted.group_id not in (0, group.group):
                    continue
                yield p4r.Entity(action_profile_group=group_to(profile, group))


def group_from(profile: Profile, message: p4r.ActionProfileGroup) -> GroupEntry:
    """Returns a group as sent."""
    members = []
    for one in message.members:
        if one.weight < 1:
            raise invalid(f"{profile.name}, group {message.group_id}: the weight {one.weight} is not above 0")
        if one.WhichOneof("watch_kind") == "watch":
            raise P4RuntimeError(Code.UNIMPLEMENTED, f"{profile.name}: `watch` is obsolete, set watch_port")
        members.append(GroupMember(one.member_id, one.weight, one.watch_port))
    if len({one.member for one in members}) < len(members):
        raise invalid(f"{profile.name}, group {message.group_id}: a member comes twice")
    if message.max_size < 0:
        raise invalid(f"{profile.name}, group {message.group_id}: max_size is negative")
    return GroupEntry(message.group_id, tuple(members), message.max_size)


def group_to(profile: Profile, group: GroupEntry) -> p4r.ActionProfileGroup:
    """Returns the message of a group."""
    message = p4r.ActionProfileGroup(
        action_profile_id=profile.id, group_id=group.group, max_size=group.max_size
    )
    for member in group.members:
        one = message.members.add(member_id=member.member, weight=member.weight)
        if member.watch_port:
            one.watch_port = member.watch_port
    return message
