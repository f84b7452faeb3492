"""Drawn schedules of commits, kills, restarts and cuts, against a plain record of the answers."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.unit.relay.homes.town import TAKEOVER, Town, TownHost, until

from treecast.middleware.broker.groups.records import decode_offset
from treecast.middleware.broker.values import CommittedOffset, MemberIdentity
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.relay.homes import rows

GROUPS = ("g", "h", "k")
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
RETRIABLE = {
    Fault.COORDINATOR_UNAVAILABLE,
    Fault.COORDINATOR_LOADING,
    Fault.NOT_COORDINATOR,
}


class Schedule:
    """One client that commits rising offsets at any host, with a record of the answers."""

    def __init__(self, town: Town, seed: int) -> None:
        self.town = town
        self.rng = random.Random(seed)
        self.next = 0
        self.acknowledged: dict[tuple[str, TopicPartition], int] = {}
        self.attempted: dict[tuple[str, TopicPartition], set[int]] = {}
        town.slowest = 0.01
        town.lost_answers = 0.03

    def living(self) -> list[TownHost]:
        return [host for host in self.town.hosts.values() if not host.dead]

    async def commit(self) -> None:
        """Commits for three partitions at once."""
        every = [(group, partition) for group in GROUPS for partition in PARTITIONS]
        await asyncio.gather(*(self._commit(where) for where in self.rng.sample(every, 3)))

    async def _commit(self, where: tuple[str, TopicPartition]) -> None:
        self.next += 1
        offset = self.next
        self.attempted.setdefault(where, set()).add(offset)
        host = self.rng.choice(self.living())
        try:
            commits = {where[1]: CommittedOffset(offset)}
            assert await host.group.commit_offsets(where[0], MemberIdentity(), commits) == {}
        except TreecastError as error:
            _retriable(error)
        else:
            self.acknowledged[where] = offset

    async def look(self, host: TownHost) -> None:
        """No fetch returns an older offset than an acknowledged one."""
        for group in GROUPS:
            try:
                found = await host.group.fetch_offsets(group, PARTITIONS, require_stable=False)
            except TreecastError as error:
                _retriable(error)
                continue
            for partition in PARTITIONS:
                offset = found[partition].offset if partition in found else 0
                assert offset >= self.acknowledged.get((group, partition), 0), (group, partition, offset)
                assert not offset or offset in self.attempted[group, partition]

    async def kill(self) -> None:
        if len(self.living()) > 1:
            self.rng.choice(self.living()).kill()

    async def restart(self) -> None:
        dead = [host for host in self.town.hosts.values() if host.dead]
        if dead:
            await self.rng.choice(dead).restart()

    async def cut(self) -> None:
        one, other = self.rng.sample(sorted(self.town.hosts), 2)
        self.town.cut ^= {frozenset((one, other))}

    async def coordinator(self) -> None:
        if self.town.up and self.rng.random() < 0.5:
            await self.town.restart_coordinator()
        else:
            self.town.up = not self.town.up

    async def cut_off(self) -> None:
        host = self.rng.choice(list(self.town.hosts.values()))
        host.cut_off = not host.cut_off

    async def time(self) -> None:
        await self.town.pass_time(self.rng.choice((1.0, 5.0, TAKEOVER, TAKEOVER + 15)))

    async def heal(self) -> None:
        self.town.up = True
        self.town.cut.clear()
        for host in self.town.hosts.values():
            host.cut_off = False
            if host.dead:
                await host.restart()
        await self.town.pass_time(TAKEOVER + 15)
        await self.town.settle()


def _retriable(error: TreecastError) -> None:
    if error.fault not in RETRIABLE:
        raise error


async def three_hosts(town: Town) -> None:
    for name in "abc":
        await town.host(name)


@pytest.mark.parametrize("seed", range(12))
async def test_acknowledged_commits_survive_every_takeover(tmp_path: Path, seed: int) -> None:
    """While the coordinator is reachable, every fetch has all acknowledged commits."""
    town = Town(tmp_path, seed, patience=60.0)
    try:
        await three_hosts(town)
        schedule = Schedule(town, seed)
        deeds = [schedule.commit] * 6 + [schedule.kill, schedule.restart, schedule.cut, schedule.time]
        for _ in range(60):
            await schedule.rng.choice(deeds)()
            await schedule.look(schedule.rng.choice(schedule.living()))
        await schedule.heal()
        for host in schedule.living():
            await schedule.look(host)
        assert sum(len(rows.reports(host.tables)) for host in schedule.living()) == 0
    finally:
        await town.close()


@pytest.mark.parametrize("seed", range(100, 116))
async def test_what_is_not_merged_is_reported(tmp_path: Path, seed: int) -> None:
    """Hosts lose the coordinator. In the end each acknowledged commit is stored, or reported by the host that
    accepted it alone.
    """
    town = Town(tmp_path, seed)
    try:
        await three_hosts(town)
        schedule = Schedule(town, seed)
        faults = [schedule.kill, schedule.restart, schedule.cut, schedule.time]
        deeds = [schedule.commit] * 8 + faults + [schedule.coordinator, schedule.cut_off]
        for _ in range(60):
            await schedule.rng.choice(deeds)()
        await schedule.heal()
        await until(lambda: all(host.quiet for host in schedule.living()))  # all commits are accounted for
        reported = reports(town)
        for host in schedule.living():
            await agree(schedule, host, reported)
    finally:
        await town.close()


def reports(town: Town) -> set[tuple[str, int]]:
    """Returns (group, offset) of every reported commit."""
    return {
        (report.id, decode_offset(value).offset)
        for host in town.hosts.values()
        for report in rows.reports(host.tables)
        for key, value in report.items.items()
        if key[:1] == b"o" and value is not None
    }


async def agree(schedule: Schedule, host: TownHost, reported: set[tuple[str, int]]) -> None:
    for group in GROUPS:
        found = await host.group.fetch_offsets(group, PARTITIONS, require_stable=False)
        for partition in PARTITIONS:
            offset = found[partition].offset if partition in found else 0
            acknowledged = schedule.acknowledged.get((group, partition), 0)
            assert offset >= acknowledged or (group, acknowledged) in reported, (group, partition, offset)
