"""Homes on a data directory that was restored to an older state, noticed by the coordinator or not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.broker.groups.consumer.beat import beat
from tests.unit.broker.groups.host import Topics, fault_of
from tests.unit.relay.homes.test_groups import T0, T1, commit, committed, join, sync
from tests.unit.relay.homes.test_schedules import Schedule, three_hosts
from tests.unit.relay.homes.test_transactions import P0, P1, begun, init, state
from tests.unit.relay.homes.town import TAKEOVER, Copy, Town, TownHost, until

from treecast.middleware.broker.groups.records import decode_offset
from treecast.middleware.broker.transactions.state import State
from treecast.middleware.broker.values import MemberIdentity
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.relay.homes import rows
from treecast.middleware.relay.homes.ports import Alone, StoredHome, Version
from treecast.middleware.relay.homes.rows import HomeRow

NOTICED = pytest.mark.parametrize("noticed", [True, False])


async def restored(host: TownHost, copy: Copy, *, noticed: bool) -> None:
    """Kills the host, puts the copy in the place of its directory, and starts it with its stored view."""
    if not host.dead:
        host.kill()
    host.restore(copy, noticed=noticed)
    host.sees_first = False
    await host.restart()


def coordinators_epoch(town: Town, key: str = "g:g") -> int:
    return next(home.epoch for home in town.hosts[1].view.homes if home.key == key)


@NOTICED
@pytest.mark.parametrize("asks_first", ["a", "b"])
async def test_an_old_directory_serves_what_the_store_has(town: Town, noticed: bool, asks_first: str) -> None:
    hosts = {name: await town.host(name) for name in "ab"}
    a, b = hosts["a"], hosts["b"]
    await commit(a, 100)
    await commit(a, 1, T1)
    copy = a.copy()
    await commit(b, 900)
    await a.parts.groups.delete_offsets("g", [T1])
    await restored(a, copy, noticed=noticed)
    assert await committed(hosts[asks_first]) == {T0: 900}
    await town.settle()
    assert await committed(a) == await committed(b) == {T0: 900}
    assert coordinators_epoch(town) == (2 if noticed else 1)
    assert a.counters.homes.reloaded == 1
    assert rows.reports(a.tables) == []
    await commit(b, 901)
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 901}


@NOTICED
async def test_nothing_is_served_before_the_store_was_asked(town: Town, noticed: bool) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 100)
    copy = a.copy()
    await commit(a, 900)
    a.kill()
    a.restore(copy, noticed=noticed)
    a.sees_first = False
    town.slowest = 0.05
    await a.restart()
    assert not a.is_home("g")
    answers = await asyncio.gather(*(committed(host) for host in (a, b, a, b)))
    assert answers == [{T0: 900}] * 4


async def test_the_coordinator_goes_away_after_it_has_noticed(town: Town) -> None:
    """The host never uses the old rows, also not after another start, until the coordinator is back."""
    a = await town.host("a")
    await commit(a, 100)
    copy = a.copy()
    await commit(a, 900)
    await restored(a, copy, noticed=True)
    town.up = False
    assert await fault_of(committed(a)) is Fault.COORDINATOR_UNAVAILABLE
    await a.restart()
    assert await fault_of(committed(a)) is Fault.COORDINATOR_UNAVAILABLE
    town.up = True
    await a.attach()
    assert await committed(a) == {T0: 900}
    assert rows.reports(a.tables) == []


@NOTICED
@pytest.mark.parametrize("starts", [1, 2])
async def test_a_start_without_the_coordinator_overwrites_nothing_newer(
    town: Town, noticed: bool, starts: int
) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 100)
    await commit(a, 7, T1)
    await town.settle()
    copy = a.copy()
    for offset in (700, 800, 900):
        await commit(a, offset)
    town.up = False
    await restored(a, copy, noticed=noticed)
    assert await committed(a) == {T0: 100, T1: 7}
    for offset in range(101, 111):  # more writes than the store has
        await commit(a, offset)
    await commit(a, 7, T1)
    for _ in range(starts - 1):
        await a.restart()
        assert await committed(a) == {T0: 110, T1: 7}
    town.up = True
    await a.attach()
    await until(lambda: a.is_home("g") and a.quiet and not a.homes.mirror.waiting)
    assert await committed(a) == await committed(b) == {T0: 900, T1: 7}
    (report,) = rows.reports(a.tables)
    assert {decode_offset(value).offset for value in report.items.values() if value is not None} == {110, 7}
    assert a.counters.homes.not_merged == 2
    assert a.tables.load(rows.ALONE) == {}


async def test_a_host_that_started_alone_is_compared_before_it_sends(town: Town) -> None:
    """After a power failure that took the last rows, the directory is the latest, and behind the store."""
    a = await town.host("a")
    await commit(a, 100)
    await town.settle()
    copy = a.copy()
    await commit(a, 900)
    a.kill()
    a.restore(copy, noticed=False)
    town.up = False
    await a.restart()
    assert await committed(a) == {T0: 100}
    town.up = True
    await a.attach()
    await until(lambda: a.counters.homes.reloaded)
    assert await committed(a) == {T0: 900}
    assert rows.reports(a.tables) == []
    assert a.counters.homes.not_merged == 0


@NOTICED
async def test_what_was_accepted_alone_before_the_copy_and_sent_after_it_is_not_reported(
    town: Town, noticed: bool
) -> None:
    a = await town.host("a")
    await commit(a, 1)
    town.up = False
    await commit(a, 2)
    await commit(a, 3, T1)
    copy = a.copy()
    town.up = True
    await until(lambda: not a.homes.mirror.away)
    await commit(a, 4)
    await restored(a, copy, noticed=noticed)
    assert await committed(a) == {T0: 4, T1: 3}
    assert rows.reports(a.tables) == []
    assert a.counters.homes.not_merged == 0
    await until(lambda: not a.tables.load(rows.ALONE))


async def test_what_only_the_old_directory_has_is_kept(town: Town) -> None:
    """It was accepted alone before the copy, and what came after the copy never reached the store either."""
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    town.up = False
    await commit(a, 2)
    copy = a.copy()
    await commit(a, 3)
    a.kill()
    town.up = True
    await restored(a, copy, noticed=True)
    assert await committed(a) == await committed(b) == {T0: 2}
    assert rows.reports(a.tables) == []
    await until(lambda: not a.homes.mirror.waiting and a.quiet)
    assert a.tables.load(rows.ALONE) == {}
    await a.restart()
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 2}


async def test_what_the_next_home_wrote_meanwhile_counts(town: Town) -> None:
    """The old directory has more writes than the store, and another home has been there since."""
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    await town.settle()
    town.up = False
    for offset in (2, 3, 4):
        await commit(a, offset)
    copy = a.copy()
    a.kill()
    town.up = True
    await town.pass_time(TAKEOVER + 10)
    await commit(b, 5)
    b.kill()
    a.sees_first = False
    await a.restart()
    await town.pass_time(TAKEOVER + 10)
    await commit(a, 6)
    a.kill()
    await restored(a, copy, noticed=True)
    assert await committed(a) == {T0: 6}
    (report,) = rows.reports(a.tables)
    assert [decode_offset(value).offset for value in report.items.values() if value is not None] == [4]


@NOTICED
async def test_a_home_that_moved_meanwhile(town: Town, noticed: bool) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 100)
    copy = a.copy()
    await commit(a, 900)
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    await commit(b, 950)
    await restored(a, copy, noticed=noticed)
    assert await committed(a) == await committed(b) == {T0: 950}
    await until(lambda: not a.tables.load("offsets"))
    assert rows.reports(a.tables) == []


async def test_a_home_that_moved_away_and_back_since_the_copy(town: Town) -> None:
    """The items accepted alone in the copied epoch reached the store before the home moved."""
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    town.up = False
    await commit(a, 2)
    copy = a.copy()
    await commit(a, 3)
    town.up = True
    await until(lambda: not a.homes.mirror.away and a.quiet)
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    await commit(b, 4)
    b.kill()
    await a.restart()
    await town.pass_time(TAKEOVER + 10)
    await commit(a, 5)
    await restored(a, copy, noticed=True)
    assert await committed(a) == {T0: 5}
    assert rows.reports(a.tables) == []


@NOTICED
@pytest.mark.parametrize("alone", [True, False])
async def test_a_group_that_was_deleted_meanwhile_does_not_come_back(
    town: Town, noticed: bool, alone: bool
) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 100)
    await commit(a, 100, group="gone")
    await town.settle()
    if alone:
        town.up = False
        await commit(a, 101)
        await commit(a, 101, group="gone")
    copy = a.copy()
    town.up = True
    await until(lambda: not a.homes.mirror.away and a.quiet)
    await asyncio.gather(*(a.group.delete(group) for group in ("g", "gone")))
    await town.settle()
    await commit(a, 5, T1)
    await restored(a, copy, noticed=noticed)
    assert await committed(b) == {T1: 5}
    await town.settle()
    await until(lambda: a.quiet)
    assert await committed(a, "gone") == await committed(b, "gone") == {}
    assert [report.id for report in rows.reports(a.tables)].count("g") == alone


@NOTICED
async def test_members_join_again(town: Town, noticed: bool) -> None:
    """The store has the later generation, without its members."""
    a = await town.host("a")
    first = await join(a)
    await sync(a, first, [(first.member_id, b"x")])
    copy = a.copy()
    await a.group.leave("g", [MemberIdentity(first.member_id)])
    second = await join(a)
    await sync(a, second, [(second.member_id, b"x")])
    await restored(a, copy, noticed=noticed)
    me = MemberIdentity(first.member_id, None, first.generation)
    assert await fault_of(a.group.heartbeat("g", me)) is Fault.UNKNOWN_MEMBER
    assert (await join(a)).generation == second.generation + 1


@NOTICED
async def test_members_of_a_consumer_group_continue_from_the_store(town: Town, noticed: bool) -> None:
    topics = Topics()
    topics.make("t", 4)
    a = await town.host("a")
    a.parts.groups.loaded.look_at(topics)
    await a.group.consumer_heartbeat(beat("one", 0))
    copy = a.copy()
    two = await a.group.consumer_heartbeat(beat("two", 0))
    await restored(a, copy, noticed=noticed)
    a.parts.groups.loaded.look_at(topics)
    described = await a.group.describe("g")
    assert {member.member_id for member in described.members} == {"one", "two"}
    assert (
        await a.group.consumer_heartbeat(beat("two", two.member_epoch, owned=two.assignment))
    ).member_epoch


@NOTICED
async def test_offsets_of_a_topic_that_was_deleted_meanwhile_do_not_come_back(
    town: Town, noticed: bool
) -> None:
    """The host learns of the deletion while its homes are not loaded yet."""
    a = await town.host("a")
    await commit(a, 100)
    await commit(a, 1, TopicPartition("other", 0))
    copy = a.copy()
    await commit(a, 900)
    town.slowest = 0.05
    await restored(a, copy, noticed=noticed)
    assert not a.is_home("g")
    await a.homes.forget_topic("t")
    await until(lambda: a.is_home("g") and a.quiet and a.homes._adopting.done())
    assert await committed(a) == {TopicPartition("other", 0): 1}
    await a.restart()
    assert await committed(a) == {TopicPartition("other", 0): 1}


# --- transactions


@pytest.fixture
def partitions(town: Town) -> None:
    town.add_partitions(P0, P1)


@NOTICED
@pytest.mark.usefixtures("partitions")
async def test_an_epoch_of_a_producer_does_not_come_back(town: Town, noticed: bool) -> None:
    a, b = await town.host("a"), await town.host("b")
    await begun(a, P0)
    copy = a.copy()
    for _ in range(3):
        last = await init(a)
    await restored(a, copy, noticed=noticed)
    assert await init(b) == ProducerIdentity(last.producer_id, last.epoch + 1)


@NOTICED
@pytest.mark.usefixtures("partitions")
async def test_a_decided_transaction_without_its_markers_is_completed(town: Town, noticed: bool) -> None:
    """The old directory has it open, and would abort what was acknowledged as committed."""
    a, b = await town.host("a"), await town.host("b")
    producer = await begun(a, P0, P1)
    copy = a.copy()
    town.partitions[P1].refuses = TreecastError(Fault.LEADER_UNAVAILABLE)
    await b.transaction.end("tx", producer, committed=True)
    a.kill()
    town.partitions[P1].refuses = None
    await restored(a, copy, noticed=noticed)
    await until(lambda: a.quiet and state(a) is State.COMPLETE_COMMIT)
    for partition in (P0, P1):
        ((who, how, _),) = town.partitions[partition].markers
        assert (who, how) == (producer, True)


@NOTICED
@pytest.mark.usefixtures("partitions")
async def test_an_open_transaction_that_the_old_directory_does_not_know_goes_on(
    town: Town, noticed: bool
) -> None:
    a, b = await town.host("a"), await town.host("b")
    await init(a)
    copy = a.copy()
    producer = await begun(b, P0)
    await restored(a, copy, noticed=noticed)
    assert await b.transaction.add_partitions("tx", producer, [P1]) == {}
    await b.transaction.end("tx", producer, committed=True)
    assert [how for _, how, _ in town.partitions[P0].markers] == [True]


# --- a drawn schedule


class Copies(Schedule):
    """Also copies directories and restores them, one run and several runs old."""

    def __init__(self, town: Town, seed: int) -> None:
        super().__init__(town, seed)
        self.copies: list[tuple[TownHost, Copy]] = []

    async def copy(self) -> None:
        host = self.rng.choice(self.living())
        self.copies.append((host, host.copy()))

    async def restore(self) -> None:
        if self.copies and len(self.living()) > 1:
            host, copy = self.rng.choice(self.copies)
            await restored(host, copy, noticed=self.rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(200, 212))
async def test_acknowledged_commits_survive_old_directories(tmp_path: Path, seed: int) -> None:
    """While the coordinator is reachable, every fetch has all acknowledged commits."""
    town = Town(tmp_path, seed, patience=60.0)
    try:
        await three_hosts(town)
        schedule = Copies(town, seed)
        faults = [schedule.kill, schedule.restart, schedule.cut, schedule.time]
        deeds = [schedule.commit] * 6 + faults + [schedule.copy, schedule.restore]
        for _ in range(60):
            await schedule.rng.choice(deeds)()
            await schedule.look(schedule.rng.choice(schedule.living()))
        await schedule.heal()
        for host in schedule.living():
            await schedule.look(host)
            assert rows.reports(host.tables) == []
    finally:
        await town.close()


# --- rows and versions


def test_a_version_covers_the_writes_of_its_own_history() -> None:
    version = Version(100).taken_over(2)
    later = Version(150, version.takeovers)
    assert later.covers(1, 100)
    assert not later.covers(1, 101)  # a home that was cut off wrote on, and the next one wrote other things
    assert later.covers(2, 150)
    assert not later.covers(2, 151)
    assert later.taken_over(2) == later
    assert later.taken_over(3).takeovers == ((2, 100), (3, 150))
    recreated = Version().taken_over(7)  # after its deletion
    assert not recreated.covers(2, 1)
    assert not HomeRow(2, 150).is_ahead(Version(1, recreated.takeovers))


def test_rows_ahead_of_the_store() -> None:
    assert HomeRow(1, 12).is_ahead(Version(11))
    assert not HomeRow(1, 12).is_ahead(Version(12))
    assert not HomeRow(1, 12, base=11).is_ahead(Version(10))
    assert not HomeRow(1, 12).is_ahead(Version(11, ((2, 10),)))
    assert HomeRow(2, 12).is_ahead(Version(11, ((2, 10),)))


def test_which_items_are_in_the_store() -> None:
    stored = StoredHome({b"same": b"1"}, Version(10))
    row = HomeRow(1, 12, base=8)
    assert row.is_stored(Alone(b"1", 12), b"same", stored)
    assert row.is_stored(Alone(b"2", 8), b"other", stored)
    assert not row.is_stored(Alone(b"2", 9), b"other", stored)  # written over rows that were old already
    assert not row.is_stored(Alone(b"2", 11), b"other", stored)
    assert not HomeRow(1, 12).is_stored(Alone(b"2"), b"other", stored)  # from an earlier version
