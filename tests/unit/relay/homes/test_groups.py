"""Groups whose home is on another host, or moves: forwarding, takeover, fencing, returning."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from tests.unit.broker.groups.host import fault_of, joining
from tests.unit.relay.homes.town import TAKEOVER, Town, TownHost, until

from treecast.middleware.api.entries import Change, HomeEntry, HomeKind, Kind, Position, Update, put
from treecast.middleware.broker.values import (
    CommittedOffset,
    Joined,
    MemberIdentity,
    MemberIdRequired,
    SyncGroup,
)
from treecast.middleware.model.errors import Fault
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.relay.homes import rows
from treecast.middleware.relay.homes.ports import HomeName, StoredHome
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOBODY = MemberIdentity()


async def committed(host: TownHost, group: str = "g") -> dict[TopicPartition, int]:
    found = await host.group.fetch_offsets(group, None, require_stable=False)
    return {where: value.offset for where, value in found.items()}


async def commit(host: TownHost, offset: int, where: TopicPartition = T0, group: str = "g") -> None:
    assert await host.group.commit_offsets(group, NOBODY, {where: CommittedOffset(offset)}) == {}


def join(host: TownHost, member_id: str = "", **how: object) -> asyncio.Task[Joined]:
    return asyncio.create_task(host.group.join(joining(member_id, **how)))


def sync(host: TownHost, joined: Joined, assignments=()) -> asyncio.Task:
    request = SyncGroup("g", joined.generation, joined.member_id, None, None, None, tuple(assignments))
    return asyncio.create_task(host.group.sync(request))


async def waits_at(home: TownHost) -> None:
    """Waits until a member waits there for the others."""
    await until(lambda: len(home.parts.groups.loaded.waiters) == 1)


# --- forwarding


async def test_the_first_who_asks_is_the_home_and_others_forward(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(b, 7)
    assert b.is_home("g")
    await commit(a, 8, T1)
    assert not a.is_home("g")
    assert await committed(a) == await committed(b) == {T0: 7, T1: 8}
    assert a.counters.homes.forwarded == 2
    assert b.counters.homes.served == 2


async def test_members_on_two_hosts_share_a_generation(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    first = await join(a)
    await sync(a, first, [(first.member_id, b"all")])
    second = join(b)
    await waits_at(a)
    me = MemberIdentity(first.member_id, None, first.generation)
    assert await fault_of(a.group.heartbeat("g", me)) is Fault.REBALANCE_IN_PROGRESS
    leading, joined = await join(a, first.member_id), await second
    assert (leading.generation, joined.generation) == (2, 2)
    assert [member.metadata for member in leading.members] == [b"meta"] * 2
    waiting = sync(b, joined)
    await sync(a, leading, [(joined.member_id, b"half")])
    assert (await waiting).assignment == b"half"
    described = await b.group.describe("g")
    assert (described.state, len(described.members)) == ("Stable", 2)
    left = [MemberIdentity(joined.member_id), MemberIdentity("nobody")]
    answers = await b.group.leave("g", left)
    assert [answer and answer.fault for answer in answers] == [None, Fault.UNKNOWN_MEMBER]


async def test_a_member_id_travels_with_the_refusal_that_gives_it(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    with pytest.raises(MemberIdRequired) as required:
        await join(b, require_known_member_id=True)
    assert (await join(b, required.value.member_id)).member_id == required.value.member_id


async def test_refusals_of_the_home_are_raised_here(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    assert await fault_of(b.group.heartbeat("g", MemberIdentity("x", None, 1))) is Fault.UNKNOWN_MEMBER
    refused = await b.group.commit_offsets("g", NOBODY, {T1: CommittedOffset(1, metadata="x" * 5000)})
    assert refused[T1].fault is Fault.OFFSET_METADATA_TOO_LARGE
    assert await fault_of(b.group.delete("never")) is Fault.GROUP_NOT_FOUND


async def test_a_client_that_leaves_cancels_its_join_at_the_home(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await sync(a, await join(a), [])
    waiting = join(b)
    await waits_at(a)
    waiting.cancel()
    await until(lambda: not a.parts.groups.loaded.waiters)


async def test_a_home_that_dies_while_a_member_waits(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await sync(a, await join(a), [])
    waiting = join(b)
    await waits_at(a)
    a.kill()
    assert await fault_of(waiting) is Fault.COORDINATOR_UNAVAILABLE


async def test_describing_gives_no_home(town: Town) -> None:
    a = await town.host("a")
    assert (await a.group.describe("g")).state == "Dead"
    assert not a.is_home("g")
    assert town.coordinator.stored.revision == 1  # the entry of the host


async def test_groups_are_listed_from_all_hosts(town: Town) -> None:
    a, b, c = await town.host("a"), await town.host("b"), await town.host("c")
    await commit(a, 1, group="ga")
    await commit(b, 1, group="gb")
    await commit(c, 1, group="gc")
    await town.settle()
    assert {g.group_id: g.state for g in await a.homes.list_groups()} == dict.fromkeys(
        ("ga", "gb", "gc"), "Empty"
    )
    town.cut.add(frozenset((a.host_id, c.host_id)))
    assert {g.group_id: g.state for g in await a.homes.list_groups()}["gc"] == "Unknown"


# --- the coordinator's store


async def test_a_commit_is_in_the_coordinators_store_when_it_is_answered(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 5)
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 5}
    assert b.counters.homes.taken_over == 1


async def test_only_the_home_answers_commits_and_heartbeats_by_a_call(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    assert a.homes.groups_at_once("g") is b.homes.groups_at_once("g") is None
    await commit(a, 5)
    at_once = a.homes.groups_at_once("g")
    assert at_once is not None
    assert b.homes.groups_at_once("g") is a.homes.groups_at_once("") is None
    answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    at_once.commit("g", NOBODY, {T0: CommittedOffset(6)}, lambda *found: answered.set_result(found))
    assert await answered == ({}, None)
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 6}
    assert b.homes.groups_at_once("g") is not None
    await a.restart()
    assert await committed(a) == {T0: 6}
    assert a.homes.groups_at_once("g") is None


async def test_the_writes_of_many_groups_are_one_call(town: Town) -> None:
    a = await town.host("a")
    for n in range(20):
        await commit(a, 1, group=f"g{n}")
    before = a.counters.homes.store_calls
    await asyncio.gather(*(commit(a, 2, group=f"g{n}") for n in range(20)))
    assert a.counters.homes.store_calls - before <= 2


async def test_a_deleted_group_is_forgotten_by_the_coordinator(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    await b.group.delete("g")
    await town.settle()
    assert not a.is_home("g")
    assert len(a.view.homes) == 0
    assert await committed(b) == {}
    assert b.is_home("g")  # the next host that asks becomes the home
    assert a.tables.load(rows.HOMES) == {}


async def test_topic_deletion_reaches_the_store(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    await commit(a, 1, TopicPartition("other", 0))
    await asyncio.gather(*(host.parts.groups.forget_topic("t") for host in (a, b)))
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {TopicPartition("other", 0): 1}


# --- without the coordinator


async def test_while_the_coordinator_is_away_the_home_goes_on_alone(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    await commit(a, 1, T1)
    await town.settle()
    town.up = False
    for offset in (2, 3, 4):
        await commit(b, offset)
    assert await committed(b) == {T0: 4, T1: 1}
    assert a.counters.homes.accepted_alone == 3
    assert a.counters.homes.store_lost == 1
    assert await fault_of(committed(b, "other")) is Fault.COORDINATOR_UNAVAILABLE
    await town.restart_coordinator()
    await until(lambda: a.homes.mirror.waiting == 0 and not a.tables.load(rows.ALONE))
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 4, T1: 1}


async def test_what_a_home_holds_is_reported_when_an_older_store_gave_it_away(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a store does not have what the home wrote."""

    async def nothing(name: HomeName, epoch: int) -> StoredHome:
        return StoredHome({})

    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    await town.settle()
    entries = [put(replace(home, host_id=b.host_id, epoch=1001)) for home in a.view.homes]
    kept = [change for change in a.view.entries() if change.kind is not Kind.HOME]
    monkeypatch.setattr(a.homes.keeper._coordinator, "get", nothing)
    a.view.apply(Update(True, Position("of the older store", 10**6), (*kept, *entries)))
    await until(lambda: a.counters.homes.given_up == 1)
    assert a.counters.homes.not_merged > 0


async def test_what_was_accepted_alone_survives_a_kill_of_the_home(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    await town.settle()
    town.up = False
    await commit(a, 2)
    await a.restart()
    assert await committed(a) == {T0: 2}
    town.up = True
    await until(lambda: not a.tables.load(rows.ALONE))
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 2}


async def test_a_commit_that_got_lost_on_its_way_to_the_store_is_not_answered(town: Town) -> None:
    """The home stores the commit and is killed before the coordinator has it; another host takes over."""
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    asked, held = asyncio.Event(), asyncio.Event()
    put = a.homes.mirror._coordinator.put

    async def hold(writes):
        asked.set()
        await held.wait()
        return await put(writes)

    a.homes.mirror._coordinator.put = hold
    waiting = asyncio.create_task(commit(b, 2))
    await until(asked.is_set)
    a.kill()
    assert await fault_of(waiting) is Fault.COORDINATOR_UNAVAILABLE
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 1}


# --- takeover


async def test_an_old_home_that_returns_gives_up_what_it_accepted_alone(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    await town.settle()
    a.cut_off = True
    await commit(a, 99)
    await town.pass_time(TAKEOVER + 10)
    town.cut.add(frozenset((a.host_id, b.host_id)))
    await commit(b, 2)
    assert await committed(a) == {T0: 99}
    town.cut.clear()
    a.cut_off = False
    await town.pass_time(2)
    assert await committed(a) == await committed(b) == {T0: 2}
    assert not a.is_home("g")
    await until(lambda: a.quiet)  # what it accepted alone is compared with the store
    (report,) = rows.reports(a.tables)
    assert (report.id, len(report.items)) == ("g", 1)
    assert a.counters.homes.not_merged == 1
    assert b.counters.homes.not_merged == 0


async def test_an_old_home_that_was_down_leaves_its_rows_behind(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    await commit(b, 2)
    await a.restart()
    await town.settle()
    assert await committed(a) == {T0: 2}
    assert a.tables.load("offsets") == {}
    assert rows.reports(a.tables) == []


async def test_an_old_home_that_does_not_know_yet_cannot_commit(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    a.cut_off = True
    await town.pass_time(TAKEOVER + 10)
    town.cut.add(frozenset((a.host_id, b.host_id)))
    await commit(b, 2)
    a._watching.cancel()  # its view stays behind
    a.cut_off = False
    assert await fault_of(a.group.commit_offsets("g", NOBODY, {T0: CommittedOffset(3)})) in (
        Fault.NOT_COORDINATOR,
        Fault.COORDINATOR_UNAVAILABLE,
    )
    town.cut.clear()
    assert await committed(a) == {T0: 2}


async def test_what_was_accepted_alone_is_reported_when_the_store_refuses_it(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 1)
    await town.settle()
    a.cut_off = True
    await commit(a, 99)
    await town.pass_time(TAKEOVER + 10)
    town.cut.add(frozenset((a.host_id, b.host_id)))
    await commit(b, 2)
    a._watching.cancel()  # it learns of the new home from the store's refusal
    a.cut_off = False
    await until(lambda: rows.reports(a.tables) and a.quiet)
    assert [len(report.items) for report in rows.reports(a.tables)] == [1]
    assert not a.is_home("g")
    assert a.tables.load(rows.ALONE) == {}


async def test_homes_counted_as_true_are_forgotten(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    assert await committed(a, "asked-for-only") == {}
    await commit(a, 1)
    for _ in range(2):
        await a.homes.tidy()
    await town.settle()
    assert [home.id for home in b.view.homes] == ["g"]
    assert not a.is_home("asked-for-only")
    assert await committed(b, "asked-for-only") == {}


async def test_a_group_in_a_cluster_has_a_name(town: Town) -> None:
    a = await town.host("a")
    assert await fault_of(commit(a, 1, group="")) is Fault.INVALID_GROUP


async def test_who_waits_at_a_home_that_moves_is_told(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    patient = {"session_timeout_ms": 1_000_000, "rebalance_timeout_ms": 1_000_000}
    first = await join(a, **patient)
    await sync(a, first, [])
    waiting = join(a, **patient)
    await waits_at(a)
    a.cut_off = True
    await town.pass_time(TAKEOVER + 10)
    town.cut.add(frozenset((a.host_id, b.host_id)))
    await commit(b, 2)
    assert not waiting.done()
    a.cut_off = False
    await town.settle()
    assert await fault_of(waiting) is Fault.NOT_COORDINATOR


async def test_a_generation_goes_on_rising_at_the_next_home(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    joined = await join(a)
    await sync(a, joined, [(joined.member_id, b"x")])
    await commit_as(a, joined, 3)
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    me = MemberIdentity(joined.member_id, None, joined.generation)
    assert await fault_of(b.group.heartbeat("g", me)) is Fault.UNKNOWN_MEMBER
    again = await join(b)
    assert again.generation == joined.generation + 1
    assert await committed(b) == {T0: 3}


async def commit_as(host: TownHost, joined: Joined, offset: int) -> None:
    me = MemberIdentity(joined.member_id, None, joined.generation)
    assert await host.group.commit_offsets("g", me, {T0: CommittedOffset(offset)}) == {}


async def test_a_restart_keeps_members_where_nobody_took_over(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    joined = await join(b)
    await sync(b, joined, [(joined.member_id, b"x")])
    await b.restart()
    me = MemberIdentity(joined.member_id, None, joined.generation)
    await a.group.heartbeat("g", me)
    assert (await a.group.describe("g")).state == "Stable"


async def test_a_call_that_names_an_old_epoch_is_refused_and_the_home_found_again(town: Town) -> None:
    a, b, c = await town.host("a"), await town.host("b"), await town.host("c")
    await commit(a, 1)
    await committed(c)
    c._watching.cancel()
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    await commit(b, 2)
    await a.restart()
    await until(lambda: not a.is_home("g") and a.quiet)
    assert await committed(c) == {T0: 2}
    assert a.counters.homes.not_home == 1


# --- a coordinator that lost its store


@pytest.mark.parametrize("down", [False, True])
async def test_homes_that_the_coordinator_lost_are_found_again_with_what_they_have(
    town: Town, down: bool
) -> None:
    a = await town.host("a")
    await commit(a, 5)
    joined = await join(a, group_id="members")
    await town.settle()
    if down:
        a.kill()
    await town.lose_store()
    await (a.restart() if down else a.attach())
    await until(lambda: {home.id for home in a.view.homes} == {"g", "members"} and not a.behind and a.quiet)
    assert await committed(a) == {T0: 5}
    assert rows.reports(a.tables) == []
    b = await town.host("b")
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 5}
    assert joined.generation == 1


async def test_a_group_that_was_deleted_meanwhile_does_not_come_back(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(a, 5)
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 5}
    await b.group.delete("g")
    await town.settle()
    await a.restart()
    await town.settle()
    assert await committed(a) == {}
    assert a.tables.load("offsets") == {}


# --- a host that was alone before


async def test_groups_of_a_host_that_was_alone_become_the_clusters(town: Town) -> None:
    a = await town.host("a")
    await alone(a, {"g": 1, "h": 2})
    await a.start(attach=True)
    await until(lambda: a.is_home("g") and a.is_home("h"))
    assert await committed(a, "h") == {T0: 2}
    await town.settle()
    b = await town.host("b")
    a.kill()
    await town.pass_time(TAKEOVER + 10)
    assert await committed(b) == {T0: 1}
    assert await committed(b, "h") == {T0: 2}


async def test_a_group_of_the_same_name_in_the_cluster_wins(town: Town) -> None:
    a, b = await town.host("a"), await town.host("b")
    await commit(b, 5)
    await alone(a, {"g": 1})
    await a.start(attach=True)
    await until(lambda: rows.reports(a.tables))
    assert await committed(a) == {T0: 5}
    assert [report.id for report in rows.reports(a.tables)] == ["g"]


async def alone(host: TownHost, groups: dict[str, int]) -> None:
    """Stops the host, and commits on it without a fabric."""
    await host.stop()
    tables = Tables(host.town.path / f"{host.name}.sqlite", FsyncPolicy.NEVER)
    host.tables = tables
    coordinator = host._parts().groups
    await coordinator.loaded.start()
    for group, offset in groups.items():
        await coordinator.commit_offsets(group, NOBODY, {T0: CommittedOffset(offset)})
    await coordinator.loaded.close()
    tables.close()


async def test_homes_of_other_things_are_no_concern_of_groups(town: Town) -> None:
    a = await town.host("a")
    for number, kind in enumerate((HomeKind.SHARE, HomeKind.REPLICAS)):
        home = HomeEntry(kind, "workers/jobs", a.host_id, 1)
        change = Change(Kind.HOME, f"{number}", home)
        a.view.apply(Update(False, Position(a.view.position.history, a.view.position.revision), (change,)))
    await commit(a, 1, group="g")
    assert [group.group_id for group in await a.homes.list_groups()] == ["g"]
