"""Committed offsets at the coordinator: writing, deleting, a restart, retention and a kill."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.broker.groups.host import DAY, NOBODY, T0, T1, U0, Host, fault_of

from treecast.middleware.broker.values import (
    CommittedOffset,
    MemberIdRequired,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage.tables import Change

# --- commits


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
    assert writes == [10], "one write with the last value of each key"
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
    await host.coordinator.loaded.journal.drain()
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


async def test_a_group_whose_last_offset_was_deleted_stays_until_housekeeping(host) -> None:
    await host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(5)})
    assert await host.coordinator.delete_offsets("g", [T0]) == {}
    assert [(group.group_id, group.state) for group in host.coordinator.list_groups()] == [("g", "Empty")]
    assert (await host.coordinator.describe("g")).state == "Empty"
    assert await host.coordinator.delete_offsets("g", [T0]) == {}
    await host.coordinator.expire_offsets()
    assert host.coordinator.list_groups() == []
    assert (await host.coordinator.describe("g")).state == "Dead"


async def test_such_a_group_can_be_deleted(host) -> None:
    await host.coordinator.commit_offsets("g", NOBODY, {T0: CommittedOffset(5)})
    await host.coordinator.delete_offsets("g", [T0])
    await host.coordinator.delete("g")
    assert host.coordinator.list_groups() == []


async def test_offsets_go_with_their_topic(host) -> None:
    for group in ("g", "h"):
        offsets = {T0: CommittedOffset(5), T1: CommittedOffset(5), U0: CommittedOffset(6)}
        await host.coordinator.commit_offsets(group, NOBODY, offsets)
    await host.coordinator.forget_topic("t")
    coordinator = await host.restart()
    for group in ("g", "h"):
        assert set(await coordinator.fetch_offsets(group, None, require_stable=True)) == {U0}


# --- a restart


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
    """KIP-211: the age of the commit does not count. The time of leaving survives a restart."""
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
from treecast.middleware.broker.groups import GroupCoordinator, GroupSettings, LoadedGroups
from treecast.middleware.broker.values import CommittedOffset, MemberIdentity
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables

async def main():
    tables = Tables(Path(sys.argv[1]), FsyncPolicy(sys.argv[2]))
    loaded = LoadedGroups(GroupSettings(), tables, BrokerCounters(), clock=time.time, rng=random.Random(1))
    await loaded.start()
    coordinator = GroupCoordinator(loaded)
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
    """Runs a process that commits 1, 2, 3, ... and kills it. Returns the last acknowledged value."""
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
        assert len(offsets) == 1, "a commit is stored whole or not at all"
        assert acknowledged <= offsets.pop() <= acknowledged + 1
    await coordinator.loaded.close()
    host.tables.close()
