"""The coordinator: waiting, cancelling, the timer, closing, and what a restart finds."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from treecast.middleware.broker.groups import GroupCoordinator, GroupSettings
from treecast.middleware.broker.groups import records as rows
from treecast.middleware.broker.values import (
    CommittedOffset,
    JoinGroup,
    MemberIdentity,
    MemberIdRequired,
    SyncGroup,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.storage.fsync import FsyncPolicy
from treecast.middleware.storage.tables import Change, Tables

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOBODY = MemberIdentity()
DAY = 86_400.0
START = 1_700_000_000.0


class Host:
    """A coordinator whose time stands still unless told; `restart` is what a kill leaves behind."""

    def __init__(self, path: Path, fsync: FsyncPolicy = FsyncPolicy.NEVER) -> None:
        self.path = path
        self.fsync = fsync
        self.now = START
        self.settings = GroupSettings(initial_rebalance_delay_ms=0)
        self.counters = BrokerCounters()
        self.seed = 0
        self.coordinator: GroupCoordinator

    async def start(self) -> GroupCoordinator:
        self.tables = Tables(self.path, self.fsync)
        self.seed += 1
        self.coordinator = GroupCoordinator(
            self.settings,
            self.tables,
            self.counters,
            clock=lambda: self.now,
            rng=random.Random(self.seed),
            timer=lambda: self.now - START,
        )
        await self.coordinator.start()
        return self.coordinator

    async def restart(self) -> GroupCoordinator:
        await self.coordinator.close()
        self.tables.close()
        return await self.start()

    def join(self, member_id: str = "", group: str = "g", **how: object) -> asyncio.Task:
        values = {
            "group_id": group,
            "member_id": member_id,
            "instance_id": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (("range", b"meta"),),
            "require_known_member_id": False,
        }
        return asyncio.create_task(self.coordinator.join(JoinGroup(**{**values, **how})))

    def sync(self, member_id: str, generation: int, assignments=(), group: str = "g") -> asyncio.Task:
        request = SyncGroup(group, generation, member_id, None, None, None, tuple(assignments))
        return asyncio.create_task(self.coordinator.sync(request))

    async def member(self, group: str = "g", **how: object) -> MemberIdentity:
        """A group of one, stable."""
        joined = await self.join(group=group, **how)
        assignments = [(m.member_id, b"all") for m in joined.members]
        await self.sync(joined.member_id, joined.generation, assignments, group)
        return MemberIdentity(joined.member_id, None, joined.generation)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.expire()


@pytest.fixture(params=[FsyncPolicy.NEVER, FsyncPolicy.BATCH], ids=["never", "batch"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path / "tables", request.param)


@pytest.fixture(autouse=True)
async def started(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    if "host" not in request.fixturenames:
        yield
        return
    host = request.getfixturevalue("host")
    await host.start()
    yield
    await host.coordinator.close()
    host.tables.close()


async def fault_of(awaitable) -> Fault:
    with pytest.raises(TreecastError) as refused:
        await awaitable
    return refused.value.fault


async def turns(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


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
    assert await coordinator.commit_offsets("", NOBODY, {T0: CommittedOffset(1)}) == {}, "as in Kafka"


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
    assert len(host.coordinator._groups) == 1
    host.passes(10)
    assert not host.coordinator._groups


async def test_a_cancelled_join_does_not_break_the_group(host) -> None:
    one = await host.member()
    gone = host.join()
    await turns()
    gone.cancel()
    await turns()
    first = host.join(one.member_id)
    joined = await first
    assert joined.generation == 2
    assert len(joined.members) == 2, "the member stays until its session is over"
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
    """With the loop's own clock: a session of the shortest kind ends without anybody asking."""
    tables = Tables(tmp_path / "tables", FsyncPolicy.NEVER)
    settings = GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=1)
    coordinator = GroupCoordinator(
        settings, tables, BrokerCounters(), clock=lambda: START, rng=random.Random(1)
    )
    await coordinator.start()
    request = JoinGroup("g", "", None, "c", "/h", 1, 1, "consumer", (("range", b""),), False)
    joined = await coordinator.join(request)
    for _ in range(2000):
        if not (await coordinator.describe("g")).members:
            break
        await asyncio.sleep(0.005)
    identity = MemberIdentity(joined.member_id, None, 1)
    assert await fault_of(coordinator.heartbeat("g", identity)) is Fault.UNKNOWN_MEMBER
    await coordinator.close()
    tables.close()


# --- life


async def test_before_it_has_loaded_it_serves_nothing(tmp_path) -> None:
    tables = Tables(tmp_path / "tables", FsyncPolicy.NEVER)
    coordinator = GroupCoordinator(
        GroupSettings(), tables, BrokerCounters(), clock=lambda: START, rng=random.Random(1)
    )
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
    await host.coordinator.close()
    assert await fault_of(joining) is Fault.NOT_COORDINATOR
    assert await fault_of(syncing) is Fault.NOT_COORDINATOR
    assert await fault_of(host.coordinator.heartbeat("g", one)) is Fault.COORDINATOR_UNAVAILABLE
    await host.coordinator.close()


async def test_who_has_just_given_up_needs_no_answer(host) -> None:
    await host.member()
    joining = host.join()
    await turns()
    joining.cancel()
    await host.coordinator.close()
    with pytest.raises(asyncio.CancelledError):
        await joining


async def test_closing_waits_for_what_is_being_written(host) -> None:
    task = asyncio.create_task(host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(5)}))
    await asyncio.sleep(0)
    await host.coordinator.close()
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


async def test_after_a_restart_a_round_begins_anew(host) -> None:
    """What had not become stable is as if it had not been: members of the last generation go on."""
    one = await host.member()
    joining = host.join()
    await turns()
    coordinator = await host.restart()
    assert await fault_of(joining) is Fault.NOT_COORDINATOR
    await coordinator.heartbeat("g", one)
    assert (await coordinator.describe("g")).state == "Stable"


async def test_offsets_are_there_after_a_restart(host) -> None:
    producer = ProducerIdentity(7, 0)
    await host.coordinator.commit_offsets(
        "g", NOBODY, {T0: CommittedOffset(5, 2, "note"), T1: CommittedOffset(6)}
    )
    await host.coordinator.commit_transaction_offsets("g", NOBODY, "tx", producer, {T1: CommittedOffset(9)})
    coordinator = await host.restart()
    found = await coordinator.fetch_offsets("g", [T0, T1, U0], require_stable=True)
    assert found[T0] == CommittedOffset(5, 2, "note")
    assert found[T1].fault is Fault.UNSTABLE_OFFSETS
    await coordinator.end_transaction_offsets("g", producer, committed=True)
    coordinator = await host.restart()
    assert (await coordinator.fetch_offsets("g", None, require_stable=True))[T1] == CommittedOffset(9)


async def test_the_order_of_commits_outlives_a_restart(host) -> None:
    producer = ProducerIdentity(7, 0)
    await host.coordinator.commit_transaction_offsets("g", NOBODY, "tx", producer, {T0: CommittedOffset(9)})
    await host.restart()
    await host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(5)})
    await host.restart()
    await host.coordinator.end_transaction_offsets("g", producer, committed=True)
    coordinator = await host.restart()
    assert await coordinator.fetch_offsets("g", [T0], require_stable=True) == {T0: CommittedOffset(5)}
    await coordinator.commit_transaction_offsets("g", NOBODY, "tx", producer, {T0: CommittedOffset(10)})
    await coordinator.end_transaction_offsets("g", producer, committed=True)
    assert await coordinator.fetch_offsets("g", [T0], require_stable=True) == {T0: CommittedOffset(10)}


async def test_fences_outlive_a_restart(host) -> None:
    await host.coordinator.end_transaction_offsets("g", ProducerIdentity(7, 4), committed=False)
    coordinator = await host.restart()
    assert coordinator.list_groups() == []
    late = coordinator.commit_transaction_offsets(
        "g", NOBODY, "tx", ProducerIdentity(7, 3), {T0: CommittedOffset(1)}
    )
    assert await fault_of(late) is Fault.INVALID_PRODUCER_EPOCH


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


# --- offsets


async def test_commits_of_one_turn_share_one_write(host, monkeypatch) -> None:
    writes: list[int] = []
    commit = host.tables.commit

    async def counting(changes: list[Change]) -> None:
        writes.append(len(changes))
        await commit(changes)

    monkeypatch.setattr(host.tables, "commit", counting)
    commits = [
        host.coordinator.commit_offsets(f"g{n % 10}", NOBODY, {T0: CommittedOffset(n)}) for n in range(50)
    ]
    await asyncio.gather(*commits)
    assert writes == [10], "one write, of each key the last"
    for n in range(10):
        found = await host.coordinator.fetch_offsets(f"g{n}", None, require_stable=True)
        assert found == {T0: CommittedOffset(40 + n)}
    assert host.counters.committed_offsets == 50


async def test_the_answer_to_a_commit_names_what_is_refused(host) -> None:
    long = CommittedOffset(1, metadata="x" * 4097)
    refused = await host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(1), T1: long})
    assert {p: error.fault for p, error in refused.items()} == {T1: Fault.OFFSET_METADATA_TOO_LARGE}
    assert set(await host.coordinator.fetch_offsets("g", None, require_stable=True)) == {T0}


async def test_a_cancelled_commit_is_written_all_the_same(host) -> None:
    task = asyncio.create_task(host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(5)}))
    await asyncio.sleep(0)
    task.cancel()
    await host.coordinator._journal.drain()
    assert await host.coordinator.fetch_offsets("g", None, require_stable=True) == {T0: CommittedOffset(5)}


async def test_a_disk_that_refuses(host, monkeypatch) -> None:
    one = await host.member()

    async def refuse(changes: list[Change]) -> None:
        raise TreecastError(Fault.STORAGE, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(host.tables, "commit", refuse)
        commit = host.coordinator.commit_offsets("g", one, {T0: CommittedOffset(5)})
        assert await fault_of(commit) is Fault.STORAGE
        joining = host.join(one.member_id)
        assert await fault_of(host.sync(one.member_id, (await joining).generation)) is (
            Fault.COORDINATOR_UNAVAILABLE
        )
    assert await host.coordinator.fetch_offsets("g", None, require_stable=True) == {}
    assert (await host.join(one.member_id)).generation == 3
    assert (await host.sync(one.member_id, 3)).assignment == b""


async def test_a_simple_consumers_group_has_no_protocol(host) -> None:
    await host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(5)})
    (listing,) = host.coordinator.list_groups()
    assert (listing.group_id, listing.protocol_type, listing.state) == ("g", "", "Empty")
    coordinator = await host.restart()
    assert coordinator.list_groups() == [listing]


async def test_deleting_a_group(host) -> None:
    one = await host.member()
    await host.coordinator.commit_offsets("g", one, {T0: CommittedOffset(5)})
    assert await fault_of(host.coordinator.delete("g")) is Fault.GROUP_NOT_EMPTY
    await host.coordinator.leave("g", [one])
    await host.coordinator.delete("g")
    assert host.coordinator.list_groups() == []
    coordinator = await host.restart()
    assert coordinator.list_groups() == []
    assert await coordinator.fetch_offsets("g", None, require_stable=True) == {}


async def test_a_commit_on_its_way_does_not_survive_the_deletion(host) -> None:
    await host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(5)})
    late = asyncio.create_task(host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(6)}))
    await asyncio.sleep(0)
    await host.coordinator.delete("g")
    await late
    assert host.coordinator.list_groups() == []
    coordinator = await host.restart()
    assert coordinator.list_groups() == []


async def test_deleting_offsets(host) -> None:
    subscription = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\0"
    one = await host.member(protocols=(("range", subscription),))
    offsets = {T0: CommittedOffset(5), U0: CommittedOffset(6)}
    await host.coordinator.commit_offsets("g", one, offsets)
    refused = await host.coordinator.delete_offsets("g", [T0, U0])
    assert {p: error.fault for p, error in refused.items()} == {T0: Fault.GROUP_SUBSCRIBED}
    coordinator = await host.restart()
    assert set(await coordinator.fetch_offsets("g", None, require_stable=True)) == {T0}
    await coordinator.leave("g", [one])
    assert await coordinator.delete_offsets("g", [T0]) == {}
    assert await coordinator.fetch_offsets("g", None, require_stable=True) == {}


async def test_offsets_go_with_their_topic(host) -> None:
    for group in ("g", "h"):
        offsets = {T0: CommittedOffset(5), T1: CommittedOffset(5), U0: CommittedOffset(6)}
        await host.coordinator.commit_offsets(group, NOBODY, offsets)
    await host.coordinator.forget_topic("t")
    coordinator = await host.restart()
    for group in ("g", "h"):
        assert set(await coordinator.fetch_offsets(group, None, require_stable=True)) == {U0}


# --- retention


async def test_offsets_without_a_group_expire_by_age(host) -> None:
    await host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(5)})
    host.passes(4 * DAY)
    await host.coordinator.commit_offsets("g", NOBODY, {T1: CommittedOffset(5)})
    host.passes(3 * DAY)
    await host.coordinator.expire_offsets()
    assert set(await host.coordinator.fetch_offsets("g", None, require_stable=True)) == {T1}
    host.passes(4 * DAY)
    await host.coordinator.expire_offsets()
    assert host.coordinator.list_groups() == []
    assert host.counters.expired_offsets == 2
    coordinator = await host.restart()
    assert coordinator.list_groups() == []


async def test_offsets_of_an_empty_group_expire_after_the_last_member_left(host) -> None:
    """KIP-211: not by the age of the commit. The time that counts outlives a restart."""
    one = await host.member(session_timeout_ms=1_800_000)
    await host.coordinator.commit_offsets("g", one, {T0: CommittedOffset(5)})
    for _ in range(8 * 96):
        host.passes(DAY / 96)
        await host.coordinator.heartbeat("g", one)
    await host.coordinator.expire_offsets()
    await host.coordinator.leave("g", [one])
    host.passes(6 * DAY)
    await host.restart()
    await host.coordinator.expire_offsets()
    assert set(await host.coordinator.fetch_offsets("g", None, require_stable=True)) == {T0}
    host.passes(1 * DAY)
    await host.coordinator.expire_offsets()
    assert host.coordinator.list_groups() == []


async def test_a_group_at_work_loses_only_topics_it_no_longer_reads(host) -> None:
    subscription = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\0"
    one = await host.member(protocols=(("range", subscription),), session_timeout_ms=1_800_000)
    await host.coordinator.commit_offsets("g", one, {T0: CommittedOffset(5), U0: CommittedOffset(5)})
    for _ in range(7 * 96):
        host.passes(DAY / 96)
        await host.coordinator.heartbeat("g", one)
    await host.coordinator.expire_offsets()
    assert set(await host.coordinator.fetch_offsets("g", None, require_stable=True)) == {T0}


async def test_an_empty_group_without_offsets_goes_and_one_about_to_have_members_stays(host) -> None:
    one = await host.member()
    await host.coordinator.leave("g", [one])
    with pytest.raises(MemberIdRequired) as required:
        await host.join(require_known_member_id=True)
    await host.coordinator.expire_offsets()
    assert len(host.coordinator.list_groups()) == 1
    host.passes(10)
    await host.coordinator.expire_offsets()
    assert host.coordinator.list_groups() == []
    assert await fault_of(host.join(required.value.member_id)) is Fault.UNKNOWN_MEMBER


# --- a kill


_KILLED = """
import asyncio, random, sys, time
from pathlib import Path
from treecast.middleware.broker.groups import GroupCoordinator, GroupSettings
from treecast.middleware.broker.values import CommittedOffset, MemberIdentity
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.fsync import FsyncPolicy
from treecast.middleware.storage.tables import Tables

async def main():
    tables = Tables(Path(sys.argv[1]), FsyncPolicy(sys.argv[2]))
    coordinator = GroupCoordinator(
        GroupSettings(), tables, BrokerCounters(), clock=time.time, rng=random.Random(1)
    )
    await coordinator.start()
    number = 0
    while True:
        number += 1
        where = {TopicPartition("t", partition): CommittedOffset(number) for partition in range(3)}
        await asyncio.gather(
            *(coordinator.commit_offsets(group, MemberIdentity(), where) for group in ("g", "h"))
        )
        print(number, flush=True)

asyncio.run(main())
"""


def killed_while_committing(path: Path, fsync: str) -> int:
    """Lets another process commit 1, 2, 3, ... and kills it; answers the last that was acknowledged."""
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(path), fsync], stdout=subprocess.PIPE)
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(50)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout if line.endswith(b"\n")]
    process.stdout.close()
    process.wait()
    return acknowledged[-1]


@pytest.mark.parametrize("fsync", ["never", "batch"])
async def test_a_kill_loses_nothing_acknowledged(tmp_path, fsync) -> None:
    acknowledged = killed_while_committing(tmp_path / "tables", fsync)
    host = Host(tmp_path / "tables")
    coordinator = await host.start()
    for group in ("g", "h"):
        found = await coordinator.fetch_offsets(group, None, require_stable=True)
        offsets = {value.offset for value in found.values()}
        assert len(found) == 3
        assert len(offsets) == 1, "a commit is written whole"
        assert acknowledged <= offsets.pop() <= acknowledged + 1
    await coordinator.close()
    host.tables.close()
