"""Members of a coordinator, written for tests: by both protocols, with the partitions that each one owns."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field

from tests.unit.broker.groups.host import Host, joining

from treecast.middleware.broker.groups.consumer.embedded import parse_assignment
from treecast.middleware.broker.groups.consumer.group import ConsumerGroup
from treecast.middleware.broker.values import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    Joined,
    MemberIdentity,
    Places,
    Synced,
    SyncGroup,
)

NOTHING: Places = frozenset()


def group_of(host: Host, group: str = "g") -> ConsumerGroup:
    """Returns the group's state machine after a check of its invariants."""
    found = host.coordinator.loaded.entries[group].group
    assert isinstance(found, ConsumerGroup), found
    found.check_invariants()
    return found


def beat(member_id: str, epoch: int = 0, group: str = "g", **how: object) -> ConsumerHeartbeat:
    """Makes a heartbeat; a joining one is complete. `how` overrides its fields."""
    values: dict[str, object] = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "client_id": "client",
        "client_host": "/127.0.0.1",
    }
    if epoch == 0:
        values |= {"rebalance_timeout_ms": 60_000, "topics": ("t",), "owned": NOTHING}
    return ConsumerHeartbeat(**{**values, **how})


@dataclass
class Member:
    """A member by the new protocol that does at once what the coordinator tells it."""

    host: Host
    member_id: str
    how: dict[str, object] = field(default_factory=dict)
    group: str = "g"
    epoch: int = 0
    owned: Places = NOTHING

    async def beats(self, **how: object) -> ConsumerHeartbeatAnswer:
        if self.epoch == 0:
            how = self.how | how
        else:
            how = {"owned": self.owned, "instance_id": self.how.get("instance_id")} | how
        request = beat(self.member_id, self.epoch, self.group, **how)
        answer = await self.host.coordinator.consumer_heartbeat(request)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment
        return answer

    async def leaves(self, epoch: int = -1) -> ConsumerHeartbeatAnswer:
        instance = self.how.get("instance_id")
        request = beat(self.member_id, epoch, self.group, instance_id=instance)
        return await self.host.coordinator.consumer_heartbeat(request)

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.member_id, None, self.epoch)

    @property
    def numbers(self) -> list[int]:
        return sorted(number for _, number in self.owned)


async def settle(*members: Member) -> None:
    """Sends heartbeats until nothing changes."""
    while True:
        before = [(member.epoch, member.owned) for member in members]
        for member in members:
            await member.beats()
        if before == [(member.epoch, member.owned) for member in members]:
            return


def subscription(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    """Encodes a subscription in version 1 of the embedded protocol."""
    out = struct.pack(">hi", 1, len(topics))
    for topic in topics:
        out += struct.pack(">h", len(topic)) + topic.encode()
    out += struct.pack(">i", -1) + struct.pack(">i", len(owned or {}))
    for topic, numbers in (owned or {}).items():
        out += struct.pack(">h", len(topic)) + topic.encode()
        out += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return out


@dataclass
class Classic:
    """A classic member. Eager: it owns nothing while it joins; cooperative: it reports what it owns.

    `names`: the assignors that it speaks, by preference. Its syncs name the protocol of its last join.
    """

    host: Host
    member_id: str = ""
    cooperative: bool = False
    group: str = "g"
    generation: int = -1
    owned: set[int] = field(default_factory=set)
    instance_id: str | None = None
    names: tuple[str, ...] = ()
    chosen: Joined | None = None

    @property
    def protocols(self) -> tuple[tuple[str, bytes], ...]:
        held = {"t": sorted(self.owned)} if self.owned and self.cooperative else None
        names = self.names or ("cooperative-sticky" if self.cooperative else "range",)
        return tuple((name, subscription("t", owned=held)) for name in names)

    def begin_join(self) -> asyncio.Task[Joined]:
        if not self.cooperative:
            self.owned = set()
        request = joining(self.member_id, self.group, protocols=self.protocols, instance_id=self.instance_id)
        return asyncio.create_task(self.host.coordinator.join(request))

    async def joins(self) -> Joined:
        return self.joined(await self.begin_join())

    def joined(self, joined: Joined) -> Joined:
        self.member_id, self.generation, self.chosen = joined.member_id, joined.generation, joined
        return joined

    async def syncs(self, assignments: tuple[tuple[str, bytes], ...] = ()) -> Synced:
        chosen = self.chosen
        assert chosen is not None, "it has not joined"
        request = SyncGroup(
            self.group,
            self.generation,
            self.member_id,
            self.instance_id,
            chosen.protocol_type,
            chosen.protocol,
            assignments,
        )
        synced = await self.host.coordinator.sync(request)
        self.owned = set(parse_assignment(synced.assignment).get("t", ()))
        return synced

    @property
    def identity(self) -> MemberIdentity:
        return MemberIdentity(self.member_id, self.instance_id, self.generation)

    async def beats(self) -> None:
        await self.host.coordinator.heartbeat(self.group, self.identity)

    @property
    def numbers(self) -> list[int]:
        return sorted(self.owned)
