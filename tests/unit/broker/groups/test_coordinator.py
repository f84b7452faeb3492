"""The coordinator: waiting, cancelling, the timer, closing, and its state after a restart."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.unit.broker.groups.host import NOBODY, START, T0, fault_of, turns

from treecast.middleware.broker.groups import GroupCoordinator, GroupSettings, LoadedGroups
from treecast.middleware.broker.groups import records as rows
from treecast.middleware.broker.values import (
    CommittedOffset,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables

# --- membership


async def test_two_members_share_a_generation(host) -> None:
    one = await host.member()
    second = host.join()
    await turns()
    assert await fault_of(host.coordinator.heartbeat("g", one)) is Fault.REBALANCE_IN_PROGRESS
    first = host.join(one.member_id)
    joined, leading = await second, await first
    assert joined.generation == leading.generation == 2
    waiting = host.sync(joined.member_id, 2)
    await turns()
    assert not waiting.done()
    await host.sync(one.member_id, 2, [(joined.member_id, b"half")])
    assert (await waiting).assignment == b"half"


async def test_member_ids_are_of_kafkas_form(host) -> None:
    with pytest.raises(MemberIdRequired) as required:
        await host.join(require_known_member_id=True)
    prefix, _, rest = required.value.member_id.partition("-")
    assert prefix == "client"
    assert len(rest) == 36
    assert (await host.join(required.value.member_id)).member_id == required.value.member_id


@pytest.mark.parametrize("timeout", [5_999, 1_800_001])
async def test_session_timeouts_are_bounded(host, timeout) -> None:
    assert await fault_of(host.join(session_timeout_ms=timeout)) is Fault.INVALID_SESSION_TIMEOUT


async def test_a_group_needs_a_name(host) -> None:
    coordinator = host.coordinator
    assert await fault_of(host.join(group="")) is Fault.INVALID_GROUP
    assert await fault_of(coordinator.heartbeat("", NOBODY)) is Fault.INVALID_GROUP
    assert await fault_of(coordinator.leave("", [])) is Fault.INVALID_GROUP
    assert await coordinator.commit_offsets("", NOBODY, {T0: CommittedOffset(1)}) == {}, "Kafka allows it"


async def test_nothing_is_known_of_a_group_that_was_never_named(host) -> None:
    coordinator = host.coordinator
    assert await fault_of(host.join("somebody")) is Fault.UNKNOWN_MEMBER
    assert await fault_of(host.sync("somebody", 1)) is Fault.UNKNOWN_MEMBER
    assert await fault_of(coordinator.heartbeat("g", NOBODY)) is Fault.UNKNOWN_MEMBER
    (left,) = await coordinator.leave("g", [MemberIdentity("somebody")])
    assert left.fault is Fault.UNKNOWN_MEMBER
    late = MemberIdentity("somebody", None, 3)
    assert await fault_of(coordinator.commit_offsets("g", late, {})) is Fault.ILLEGAL_GENERATION
    assert (await coordinator.describe("g")).state == "Dead"
    assert await fault_of(coordinator.delete("g")) is Fault.GROUP_NOT_FOUND
    assert await fault_of(coordinator.delete_offsets("g", [T0])) is Fault.GROUP_NOT_FOUND
    assert await coordinator.fetch_offsets("g", None, require_stable=True) == {}
    assert coordinator.list_groups() == []


async def test_refused_joins_leave_nothing_behind(host) -> None:
    assert await fault_of(host.join(protocols=())) is Fault.INCONSISTENT_PROTOCOL
    with pytest.raises(MemberIdRequired):
        await host.join(require_known_member_id=True)
    assert len(host.coordinator.loaded.entries) == 1
    host.passes(10)
    assert not host.coordinator.loaded.entries


async def test_a_cancelled_join_does_not_break_the_group(host) -> None:
    one = await host.member()
    gone = host.join()
    await turns()
    gone.cancel()
    await turns()
    first = host.join(one.member_id)
    joined = await first
    assert joined.generation == 2
    assert len(joined.members) == 2, "the member stays until its session ends"
    host.passes(10)
    assert len((await host.coordinator.describe("g")).members) == 0


async def test_a_cancelled_sync_does_not_break_the_group(host) -> None:
    one = await host.member()
    second = host.join()
    await turns()
    await host.join(one.member_id)
    joined = await second
    waiting = host.sync(joined.member_id, 2)
    await turns()
    waiting.cancel()
    await turns()
    await host.sync(one.member_id, 2, [(joined.member_id, b"x")])
    assert (await host.sync(joined.member_id, 2)).assignment == b"x"


async def test_the_last_to_leave_is_answered_when_it_is_on_disk(host) -> None:
    one = await host.member()
    assert await host.coordinator.leave("g", [one]) == [None]
    record = rows.decode_group(host.tables.load(rows.GROUPS)["g"])
    assert record.members == ()
    assert record.generation == 2


async def test_the_timer_runs_by_itself(tmp_path) -> None:
    """With the loop's own clock, a short session ends without a request."""
    tables = Tables(tmp_path / "tables", FsyncPolicy.NEVER)
    settings = GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=1)
    loaded = LoadedGroups(settings, tables, BrokerCounters(), clock=lambda: START, rng=random.Random(1))
    coordinator = GroupCoordinator(loaded)
    await coordinator.loaded.start()
    request = JoinGroup("g", "", None, "c", "/h", 1, 1, "consumer", (("range", b""),), False)
    joined = await coordinator.join(request)
    for _ in range(2000):
        if not (await coordinator.describe("g")).members:
            break
        await asyncio.sleep(0.005)
    identity = MemberIdentity(joined.member_id, None, 1)
    assert await fault_of(coordinator.heartbeat("g", identity)) is Fault.UNKNOWN_MEMBER
    await coordinator.loaded.close()
    tables.close()


# --- life


async def test_before_it_has_loaded_it_serves_nothing(tmp_path) -> None:
    tables = Tables(tmp_path / "tables", FsyncPolicy.NEVER)
    settings, clock = GroupSettings(), lambda: START
    loaded = LoadedGroups(settings, tables, BrokerCounters(), clock=clock, rng=random.Random(1))
    coordinator = GroupCoordinator(loaded)
    assert await fault_of(coordinator.describe("g")) is Fault.COORDINATOR_LOADING
    with pytest.raises(TreecastError):
        coordinator.list_groups()
    tables.close()


async def test_closing_answers_all_who_wait(host) -> None:
    one = await host.member()
    joining = host.join()
    other = await host.member("other")
    follower = host.join(group="other")
    await turns()
    await host.join(other.member_id, group="other")
    syncing = host.sync((await follower).member_id, 2, group="other")
    await turns()
    await host.coordinator.loaded.close()
    assert await fault_of(joining) is Fault.NOT_COORDINATOR
    assert await fault_of(syncing) is Fault.NOT_COORDINATOR
    assert await fault_of(host.coordinator.heartbeat("g", one)) is Fault.COORDINATOR_UNAVAILABLE
    await host.coordinator.loaded.close()


async def test_who_has_just_given_up_needs_no_answer(host) -> None:
    await host.member()
    joining = host.join()
    await turns()
    joining.cancel()
    await host.coordinator.loaded.close()
    with pytest.raises(asyncio.CancelledError):
        await joining


async def test_closing_waits_for_what_is_being_written(host) -> None:
    task = asyncio.create_task(host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(5)}))
    await asyncio.sleep(0)
    await host.coordinator.loaded.close()
    assert len(host.tables.load(rows.OFFSETS)) == 1
    assert await task == {}


# --- a restart


async def test_after_a_restart_members_go_on(host) -> None:
    one = await host.member()
    described = await host.coordinator.describe("g")
    coordinator = await host.restart()
    assert await coordinator.describe("g") == described
    host.passes(9)
    await coordinator.heartbeat("g", one)
    host.passes(9)
    assert await coordinator.commit_offsets("g", one, {T0: CommittedOffset(1)}) == {}
    assert (await host.sync(one.member_id, 1)).assignment == b"all"
    host.passes(10)
    assert (await coordinator.describe("g")).state == "Empty"


async def test_a_restart_drops_an_open_round(host) -> None:
    """The restart drops a round that was not complete; members of the last generation go on."""
    one = await host.member()
    joining = host.join()
    await turns()
    coordinator = await host.restart()
    assert await fault_of(joining) is Fault.NOT_COORDINATOR
    await coordinator.heartbeat("g", one)
    assert (await coordinator.describe("g")).state == "Stable"


async def test_a_static_member_restarts_after_the_daemon_did(host) -> None:
    joined = await host.join(instance_id="one")
    await host.sync(joined.member_id, joined.generation, [(joined.member_id, b"all")])
    await host.restart()
    again = await host.join(instance_id="one", can_skip_assignment=True)
    assert again.generation == 1
    assert again.skip_assignment
    coordinator = await host.restart()
    await coordinator.heartbeat("g", MemberIdentity(again.member_id, "one", 1))
    former = MemberIdentity(joined.member_id, "one", 1)
    assert await fault_of(coordinator.heartbeat("g", former)) is Fault.FENCED_INSTANCE
