"""Members of both protocols join, leave, die, stall and lose answers in any order; the daemon restarts.

Holds after every step: no two living members own the same partition, whatever protocol they speak. After the
last event every partition has a reader, and the group has the type that its members need.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from pathlib import Path

import pytest
from tests.unit.broker.groups.consumer.beat import NOTHING, Classic, Member, beat
from tests.unit.broker.groups.host import Host, turns

from treecast.middleware.broker.groups.consumer.assignors import Subscriber, uniform
from treecast.middleware.broker.groups.consumer.embedded import encode_assignment, parse_subscription
from treecast.middleware.broker.groups.consumer.group import ConsumerGroup
from treecast.middleware.broker.values import ConsumerHeartbeatAnswer, Joined, Places, Synced
from treecast.middleware.model.errors import Fault, TreecastError

STEPS, MOST = 120, 5
TOPIC = uuid.UUID(int=1)
GONE = {Fault.UNKNOWN_MEMBER, Fault.FENCED_MEMBER_EPOCH}
AWAY = {Fault.COORDINATOR_UNAVAILABLE, Fault.COORDINATOR_LOADING, Fault.NOT_COORDINATOR}


class New(Member):
    """A member by the new protocol. It may delay the release of partitions, and may lose answers."""

    told: Places | None = None  # the target, until the other partitions are released
    unsure = False  # an answer was lost: the next heartbeat and its answer are complete

    async def acts(self, rng: random.Random) -> None:
        if self.told is not None and rng.random() < 0.6:
            self.owned, self.told = self.told, None
        how: dict[str, object] = {"owned": self.owned} if self.epoch else {}
        if self.unsure and self.epoch:
            how |= {"rebalance_timeout_ms": 60_000, "topics": ("t",)}
        try:
            answer = await self.host.coordinator.consumer_heartbeat(beat(self.member_id, self.epoch, **how))
        except TreecastError as refused:
            if refused.fault in GONE:
                self.epoch, self.owned, self.told = 0, NOTHING, None
            elif refused.fault not in AWAY:
                raise
            return
        self.unsure = rng.random() < 0.1
        if not self.unsure:
            self._hears(answer)

    def _hears(self, answer: ConsumerHeartbeatAnswer) -> None:
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return
        if self.owned <= answer.assignment:
            self.owned, self.told = answer.assignment, None
        else:
            self.told = answer.assignment

    def holds(self) -> set[int]:
        return {number for _, number in self.owned}


class Old(Classic):
    """A member by the classic protocol. Its calls wait as long as the group makes them."""

    task: asyncio.Task[Joined | Synced] | None = None

    async def acts(self, rng: random.Random) -> None:
        if self.task is not None:
            if self.task.done():
                task, self.task = self.task, None
                self._took(task)
        elif self.generation < 0:
            self.task = self.begin_join()
        else:
            try:
                await self.beats()
            except TreecastError as refused:
                self._refused(refused.fault)

    def _took(self, task: asyncio.Task[Joined | Synced]) -> None:
        try:
            answer = task.result()
        except TreecastError as refused:
            self._refused(refused.fault)
            return
        if isinstance(answer, Joined):
            self.joined(answer)
            self.task = asyncio.create_task(self._sync(answer))
        elif not self.kept <= self.owned:
            self.task = self.begin_join()  # it has released partitions, and reports that

    async def _sync(self, joined: Joined) -> Synced:
        self.kept = set(self.owned)
        return await self.syncs(dealt(joined) if joined.leader == joined.member_id else ())

    def _refused(self, fault: Fault) -> None:
        if fault is Fault.UNKNOWN_MEMBER:
            self.member_id = ""
        if fault in (Fault.UNKNOWN_MEMBER, Fault.ILLEGAL_GENERATION):
            self.owned, self.generation = set(), -1
        elif fault is not Fault.REBALANCE_IN_PROGRESS and fault not in AWAY:
            raise TreecastError(fault)
        self.task = self.begin_join()

    def holds(self) -> set[int]:
        return self.owned


def dealt(joined: Joined) -> tuple[tuple[str, bytes], ...]:
    """Returns the leader's assignment. A partition that a member still owns moves in the next round only."""
    before = {m.member_id: held(m.metadata) for m in joined.members}
    members = {m.member_id: Subscriber(frozenset({TOPIC})) for m in joined.members}
    target = uniform(members, {TOPIC: 6}, before)
    taken = {place: who for who, places in before.items() for place in places}
    return tuple(
        (who, encode_assignment({"t": [n for t, n in places if taken.get((t, n), who) == who]}, 1))
        for who, places in target.items()
    )


def held(metadata: bytes) -> frozenset[tuple[uuid.UUID, int]]:
    return frozenset((TOPIC, number) for number in parse_subscription(metadata).owned.get("t", ()))


class Crowd:
    def __init__(self, host: Host, rng: random.Random, *, cooperative: bool) -> None:
        self.host, self.rng, self.cooperative = host, rng, cooperative
        self.members: list[New | Old] = []
        self.names = 0

    async def step(self) -> None:
        kind = self.rng.choices(
            ["act", "new", "old", "leave", "die", "restart", "wait"], [60, 4, 4, 4, 2, 2, 6]
        )[0]
        if kind in ("new", "old") and len(self.members) < MOST:
            self.names += 1
            if kind == "new":
                self.members.append(New(self.host, f"new-{self.names}"))
            else:
                self.members.append(Old(self.host, cooperative=self.cooperative))
        elif kind == "restart":
            await self.host.restart()
        elif kind == "wait":
            await self.all_act()
            self.host.passes(1.0)
        elif self.members and kind in ("leave", "die"):
            await self.goes(self.rng.choice(self.members), leaves=kind == "leave")
        elif self.members:
            await self.rng.choice(self.members).acts(self.rng)
        await turns(2)
        self.check()

    async def goes(self, member: New | Old, *, leaves: bool) -> None:
        self.members = [one for one in self.members if one is not member]
        if isinstance(member, Old) and member.task is not None:
            member.task.cancel()
        try:
            if leaves and isinstance(member, New) and member.epoch > 0:
                await member.leaves()
            elif leaves and isinstance(member, Old) and member.member_id:
                await self.host.coordinator.leave("g", [member.identity])
        except TreecastError as refused:
            if refused.fault is not Fault.UNKNOWN_MEMBER:
                raise

    async def all_act(self) -> None:
        for member in list(self.members):
            await member.acts(self.rng)
            await turns(2)
            self.check()

    def check(self) -> None:
        holders: dict[int, New | Old] = {}
        for member in self.members:
            for number in member.holds():
                assert number not in holders, f"{number} is held by {holders[number]} and {member}"
                holders[number] = member
        entry = self.host.coordinator.loaded.entries.get("g")
        if entry is not None:
            entry.group.check_invariants()

    def settled(self) -> bool:
        numbers = sorted(number for member in self.members for number in member.holds())
        quiet = all(not isinstance(m, Old) or m.task is None for m in self.members)
        return quiet and numbers == list(range(6))

    async def settle(self) -> None:
        for _ in range(400):
            await self.all_act()
            self.host.passes(0.5)
            if self.settled():
                return
        raise AssertionError(f"the group does not settle: {[member.holds() for member in self.members]}")


@pytest.mark.parametrize("cooperative", [False, True], ids=["eager", "cooperative"])
@pytest.mark.parametrize("seed", range(20))
async def test_no_partition_has_two_readers(tmp_path: Path, seed: int, cooperative: bool) -> None:
    host = Host(tmp_path / "tables.sqlite")
    host.topics.make("t", 6)
    await host.start()
    crowd = Crowd(host, random.Random(seed), cooperative=cooperative)
    for _ in range(STEPS):
        await crowd.step()
    if not crowd.members:
        crowd.members.append(New(host, "last"))
    await crowd.settle()
    group = host.coordinator.loaded.entries["g"].group
    assert isinstance(group, ConsumerGroup) == any(isinstance(member, New) for member in crowd.members)
    await host.coordinator.loaded.close()
    host.tables.close()
