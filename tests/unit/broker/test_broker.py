"""The broker as a whole, on a real data directory: starts, kills, deletions, housekeeping."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.unit.broker.house import COMMITTED, P0, UNCOMMITTED, House
from tests.unit.refusals import refusal

from treecast.middleware.broker import (
    GROUPS,
    TRANSACTIONS,
    CommittedOffset,
    ConfigChange,
    ConfigOperation,
    FetchWait,
    LongPolls,
    MemberIdentity,
    NewTopic,
)
from treecast.middleware.broker.directory import DataDirectoryError
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import Host, TopicPartition
from treecast.middleware.model.records import Record
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Change
from treecast.middleware.wire.record_batch import build_batch, read_header, read_records

# --- opening and closing


@pytest.mark.parametrize("end", ["restart", "kill"])
@pytest.mark.parametrize("fsync", list(FsyncPolicy))
async def test_what_was_acknowledged_is_there_again(house: House, end: str, fsync: FsyncPolicy) -> None:
    await house.restart(fsync=fsync)
    await house.create("t", 2)
    for number in range(10):
        answer = house.append(b"%d" % number)
        if asyncio.isfuture(answer):
            await answer
    await house.commit("g", 5)
    identity = await house.broker.cluster.new_producer()
    cluster_id = house.broker.cluster.cluster_id
    await getattr(house, end)()
    assert house.values() == [b"%d" % number for number in range(10)]
    assert await house.committed("g") == {P0: 5}
    assert house.broker.cluster.cluster_id == cluster_id
    assert house.broker.cluster.host == Host(1, "h")
    assert (await house.broker.cluster.new_producer()).producer_id > identity.producer_id


async def test_closing_twice_is_closing_once(house: House) -> None:
    await house.broker.close()
    await house.broker.close()
    with pytest.raises(RuntimeError, match="not started"):
        _ = house.broker.cluster
    await house.open()


async def test_a_second_broker_is_refused_and_the_first_goes_on(house: House) -> None:
    await house.create()
    with pytest.raises(DataDirectoryError, match="in use"):
        await House(house.path, house.clock).open()
    house.append(b"a")
    assert house.values() == [b"a"]


async def test_tables_that_are_no_database(house: House) -> None:
    await house.broker.close()
    for path in house.path.glob("tables.sqlite*"):
        path.unlink()
    (house.path / "tables.sqlite").write_bytes(b"x" * 8192)
    for _ in range(2):  # the lock is released each time
        with pytest.raises(DataDirectoryError, match="cannot be opened"):
            await house.open()
    (house.path / "tables.sqlite").unlink()
    await house.open()


async def test_closing_wakes_who_waits(house: House) -> None:
    await house.create()
    woken = asyncio.Event()
    FetchWait(LongPolls(asyncio.get_running_loop()), [house.leader()], UNCOMMITTED, 1, 3600.0, woken.set)
    leader = house.leader()
    await house.broker.close()
    await woken.wait()
    with refusal(Fault.LEADER_UNAVAILABLE):
        leader.read(0, 1, UNCOMMITTED, at_least_one=True)
    await house.open()


# --- topics and their directories


async def test_unknown_partitions(house: House) -> None:
    await house.create("t", 2)
    for name, index in [("t", 2), ("t", -1), ("u", 0)]:
        with refusal(Fault.UNKNOWN_TOPIC):
            house.leader(name, index)


async def test_a_deleted_topic_leaves_nothing(house: House) -> None:
    await house.create("t", 2)
    await house.create("u")
    house.append(b"a" * 200_000)
    await house.commit("g", 1)
    await house.commit("g", 2, TopicPartition("u", 0))
    read = house.leader().read(0, 1 << 20, UNCOMMITTED, at_least_one=True)
    woken = asyncio.Event()
    FetchWait(LongPolls(asyncio.get_running_loop()), [house.leader()], UNCOMMITTED, 1, 3600.0, woken.set)
    await house.broker.cluster.definitions.delete_topic("t")
    await woken.wait()
    data = b"".join(map(bytes, read.chunks))  # a fetch response that is being sent
    assert [r.value for r in read_records(data, 0, read_header(data, 0))] == [b"a" * 200_000]
    assert await house.committed("g") == {TopicPartition("u", 0): 2}
    with refusal(Fault.UNKNOWN_TOPIC):
        house.leader()
    house.append(b"a", "u")
    await house.restart()
    assert house.directories == {"u-0"}


async def test_a_topic_made_again_is_empty(house: House) -> None:
    for _ in range(3):
        await house.create()
        house.append(b"a")
        await house.broker.cluster.definitions.delete_topic("t")
    await house.create()
    assert house.values() == []
    await house.kill()
    assert house.values() == []


async def test_a_kill_between_definition_and_removal(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.create("t", 3)
    house.append(b"a")
    await house.commit("g", 1)
    parts: Any = house.broker._parts
    parts.partitions.remove = lambda topic, first: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        parts.registry.delete_topic("t").send(None)
    await house.kill()
    assert not house.broker.cluster.definitions.topics()
    await house.restart()
    assert (house.directories, await house.committed("g")) == (set(), {})


async def test_a_kill_between_directories_and_definition(house: House) -> None:
    parts: Any = house.broker._parts
    parts.tables.commit = None
    with pytest.raises(TypeError):
        await house.create("t", 2)
    (house.path / "logs" / "t-0").mkdir()
    (house.path / "logs" / "t-0" / ("0" * 20 + ".log")).write_bytes(b"of another time")
    await house.kill()
    assert not house.broker.cluster.definitions.topics()
    await house.create("t", 2)
    assert house.values() == []
    strays = [name for name in house.directories if name.endswith("-stray")]
    assert len(strays) == 1
    assert len(list((house.path / "logs" / strays[0]).iterdir())) == 1


async def test_a_defined_topic_gets_its_missing_directories(house: House) -> None:
    await house.create("t", 2)
    house.leader("t", 1).append(memoryview(bytearray(build_batch([Record(b"k", b"v", (), 1)]))), 1, None)
    await house.broker.close()
    for path in (house.path / "logs" / "t-1").iterdir():
        path.unlink()
    (house.path / "logs" / "t-1").rmdir()
    await house.open()
    assert house.leader("t", 1).log.end_offset == 0


async def test_the_loop_goes_on_while_many_partitions_are_made(house: House) -> None:
    making = asyncio.create_task(house.create("t", 100))
    turns = 0
    while not making.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 5
    making = asyncio.create_task(house.create("u", 100))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    assert set(house.broker.cluster.definitions.topics()) == {"t"}
    await house.restart()
    assert house.directories == set()
    assert len([house.broker.cluster.partition("t", index) for index in range(100)]) == 100


async def test_the_leader_epoch_of_a_partition_without_records_never_falls(house: House) -> None:
    await house.create()
    epochs = [house.leader().leader_epoch]
    for _ in range(2):
        await house.kill()
        epochs.append(house.leader().leader_epoch)
        await house.restart()
        epochs.append(house.leader().leader_epoch)
        await house.restart()
        epochs.append(house.leader().leader_epoch)
    assert epochs[0] == 0 < epochs[1] == epochs[2] == epochs[3] < epochs[4] == epochs[5] == epochs[6]
    await house.create("new")
    assert house.leader("new").leader_epoch == 0


async def test_topics_that_are_asked_for_together_are_answered_one_by_one(house: House) -> None:
    await house.create("there")
    definitions = house.broker.cluster.definitions
    asked = [NewTopic("a"), NewTopic("there"), NewTopic("b", 3), NewTopic("a"), NewTopic("c", 0)]
    answers = await definitions.create_topics(asked)
    faults = [answer.fault if isinstance(answer, TreecastError) else None for answer in answers]
    exists, wrong = Fault.TOPIC_EXISTS, Fault.INVALID_PARTITIONS
    assert faults == [None, exists, None, exists, wrong]
    assert set(definitions.topics()) == {"there", "a", "b"}
    (tried,) = await definitions.create_topics([NewTopic("d")], validate_only=True)
    assert not isinstance(tried, TreecastError)
    assert "d" not in definitions.topics()
    await house.restart()
    assert set(house.broker.cluster.definitions.topics()) == {"there", "a", "b"}


async def test_more_partitions_and_other_settings_reach_the_logs(house: House) -> None:
    definitions = house.broker.cluster.definitions
    await house.create("t", 1)
    first = house.leader()
    await definitions.create_partitions("t", 3)
    await definitions.alter_topic("t", [ConfigChange("max.message.bytes", ConfigOperation.SET, "50")])
    assert house.leader() is first
    for index in range(3):
        assert house.leader("t", index).log.config.max_message_bytes == 50
    with refusal(Fault.BATCH_TOO_LARGE):
        house.append(b"a")


# --- housekeeping


async def test_transactions_time_out(house: House) -> None:
    await house.create()
    producer = await house.transaction()
    house.append(b"a", tid="tx", producer=producer, base_sequence=0, transactional=True)
    house.append(b"b")
    house.clock.now += 61
    await house.keep_house()
    read = house.leader().read(0, 1 << 20, COMMITTED, at_least_one=True)
    assert (read.last_stable_offset, len(read.aborted)) == (3, 1)
    assert house.counters.broker.transactions_timed_out == 1


async def test_old_segments_go(house: House) -> None:
    await house.create(retention_ms="1000", segment_ms="500")
    house.append(b"old")
    house.clock.now += 0.6
    house.append(b"young")
    house.clock.now += 0.6
    await house.keep_house()
    assert house.leader().read(1, 1, UNCOMMITTED, at_least_one=True).log_start_offset == 1
    assert house.values(offset=1) == [b"young"]
    assert not list((house.path / "logs" / "t-0").glob("0" * 20 + ".log*"))


async def test_compacted_topics_keep_the_last_of_each_key(house: House) -> None:
    await house.create(cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0.01")
    for number in range(5):
        house.append(b"%d" % number)
        house.clock.now += 1
    for _ in range(2):  # only flushed records are compacted
        house.clock.now += 20
        await house.keep_house()
    assert house.values() == [b"3", b"4"]  # the last segment is never compacted
    assert house.counters.storage.compactions == 1


async def test_flushes_by_the_interval(house: House) -> None:
    await house.restart(fsync=FsyncPolicy.INTERVAL)
    await house.create()
    house.append(b"a")
    assert house.leader().log.flushed_offset == 0
    house.clock.now += 1.1
    await house.keep_house()
    assert house.leader().log.flushed_offset == 1


async def test_offsets_expire(house: House) -> None:
    await house.restart(offsets_retention_ms=1000)
    await house.create()
    await house.commit("g", 1)
    house.clock.now += 61
    await house.keep_house()
    assert await house.committed("g") == {}


async def test_it_says_when_it_wants_to_be_called_again(house: House) -> None:
    due = await house.broker.housekeeping(house.clock.now)
    assert house.clock.now < due <= house.clock.now + 1.0
    assert await house.broker.housekeeping(house.clock.now) == due
    house.clock.now -= 3600  # the clock was set back
    assert await house.broker.housekeeping(house.clock.now) <= house.clock.now + 1.0


async def test_a_chore_that_fails_keeps_no_other_from_its_turn(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await house.create(retention_ms="1000", segment_ms="500")
    house.append(b"old")
    house.clock.now += 5
    parts: Any = house.broker._parts
    monkeypatch.setattr(parts.transactions, "expire", lambda: 1 / 0)
    await house.keep_house()
    assert "chore=transactions" in caplog.text
    assert house.leader().log.start_offset == 1


# --- power loss


async def test_a_transaction_whose_marker_was_lost_is_aborted(house: House) -> None:
    """The tables kept the end of a transaction, but the log lost its marker."""
    await house.create()
    producer = await house.transaction()
    house.append(b"a", tid="tx", producer=producer, base_sequence=0, transactional=True)
    parts: Any = house.broker._parts
    value = json.loads(parts.tables.load("transactions")["tx"])
    value |= {"state": "CompleteCommit", "partitions": {}}
    parts.tables.write([Change("transactions", "tx", json.dumps(value).encode())])
    await house.kill()
    read = house.leader().read(0, 1 << 20, COMMITTED, at_least_one=True)
    assert (read.last_stable_offset, [t.first_offset for t in read.aborted]) == (2, [0])


async def test_open_transactions_outlive_a_kill(house: House) -> None:
    await house.create()
    producer = await house.transaction()
    house.append(b"a", tid="tx", producer=producer, base_sequence=0, transactional=True)
    await house.kill()
    assert house.values(isolation=COMMITTED) == []
    house.append(b"b", tid="tx", producer=producer, base_sequence=1, transactional=True)
    await house.broker.cluster.home(TRANSACTIONS, "tx").end("tx", producer, committed=True)
    assert house.values(isolation=COMMITTED) == [b"a", b"b"]


async def test_offsets_outside_a_transaction_are_refused(house: House) -> None:
    await house.create()
    producer = await house.transaction()
    home = house.broker.cluster.home(GROUPS, "g")
    offsets = {P0: CommittedOffset(1)}
    with refusal(Fault.NOT_IN_TRANSACTION):
        await home.commit_transaction_offsets("g", MemberIdentity(), "tx", producer, offsets)
    transactions = house.broker.cluster.home(TRANSACTIONS, "tx")
    await transactions.add_offsets("tx", producer, "g")
    assert await home.commit_transaction_offsets("g", MemberIdentity(), "tx", producer, offsets) == {}
    assert await house.committed("g") == {}
    await transactions.end("tx", producer, committed=True)
    assert await house.committed("g") == {P0: 1}
    with refusal(Fault.NOT_IN_TRANSACTION):
        await home.commit_transaction_offsets("g", MemberIdentity(), "tx", producer, offsets)
