"""The partitions that a host opens: all of its topics if it is alone, else the led and the followed ones."""

from __future__ import annotations

import errno
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.broker.broker import Broker
from treecast.middleware.broker.followed import FollowedPartition
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.broker.settings import BrokerSettings
from treecast.middleware.broker.values import Isolation, NewTopic, PartitionRead, Topic
from treecast.middleware.model.counters import BrokerCounters, Counters, StorageCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import Host, ProducerIdentity, TopicPartition
from treecast.middleware.model.records import Record
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.settings import LogSettings
from treecast.middleware.wire.record_batch import build_batch, patch_batch, read_header

CONFIG = TopicConfig.of()
TOPIC = Topic("t", uuid.UUID(int=5), 4, CONFIG)
AGAIN = Topic("t", uuid.UUID(int=6), 4, CONFIG)


class NoGuard:
    def verify(self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition) -> None:
        return None


def opened(path: Path, unclean_epoch: int | None = None) -> LocalPartitions:
    def open_log(at: str, config: TopicConfig, claim: Callable[[], None] | None = None) -> PartitionLog:
        return PartitionLog.open(at, config, LogSettings(), StorageCounters(), 1000, claim=claim)

    path.mkdir(exist_ok=True)
    return LocalPartitions(
        path, open_log, Flusher(1), NoGuard(), BrokerCounters(), lambda: 1.0, unclean_epoch
    )


def batch(count: int = 1) -> bytes:
    return build_batch([Record(b"k", b"v", (), 1000) for _ in range(count)])


def produce(partitions: LocalPartitions, index: int, count: int = 1) -> None:
    partitions.get("t", index).append(memoryview(bytearray(batch(count))), 1, None)


class Waiter:
    def __init__(self) -> None:
        self.told: list[int | str] = []

    def grown(self, size: int) -> None:
        self.told.append(size)

    def foreseen(self, size: int) -> None:
        self.told.append(f"{size} foreseen")

    def gone(self) -> None:
        self.told.append("gone")


async def test_a_joined_host_has_what_it_leads_and_what_it_follows(tmp_path: Path) -> None:
    partitions = opened(tmp_path / "logs")
    await partitions.apply(
        TOPIC,
        dict.fromkeys(
            (
                1,
                3,
            ),
            0,
        ),
    )
    replica = partitions.follow(TOPIC, 0)
    assert partitions.follow(TOPIC, 0) is replica is partitions.replica("t", 0)
    assert [p.name.partition for p in partitions.led()] == [1, 3]
    assert [p.name.partition for p in partitions] == [1, 3, 0]
    produce(partitions, 3)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["t-0", "t-3"]
    for index in (0, 2):
        with pytest.raises(TreecastError) as caught:
            partitions.get("t", index)
        assert caught.value.fault is Fault.UNKNOWN_TOPIC
    partitions.remove(TOPIC)
    assert list(partitions) == []
    await partitions.close()
    assert list((tmp_path / "logs").iterdir()) == []


async def test_a_partition_costs_no_files_before_it_is_written(tmp_path: Path) -> None:
    partitions = opened(tmp_path / "logs")
    await partitions.create(TOPIC, 0)
    assert list((tmp_path / "logs").iterdir()) == []
    for partition in partitions.led():
        log = partition.log
        assert not log.has_files
        assert log.durability.covered()
        assert not log.flush_needed
        assert (log.start_offset, log.stable_offset, log.end_offset, log.size) == (0, 0, 0, 0)
        assert log.read(0, 100, 0, at_least_one=True) == ([], 0)
        assert log.offset_for_time(0, 0) is log.max_timestamp_offset() is None
        assert log.held.aborted_between(0, 1) == []
        assert log.end_of_epoch(0) == (-1, -1)
        log.clean(1 << 60)
        log.roll(1)
        log.flush(1, checkpoint=True)
        assert log.delete_before(-1) == 0
    assert list((tmp_path / "logs").iterdir()) == []
    produce(partitions, 2, 3)
    assert sorted(path.name for path in (tmp_path / "logs").glob("*/*")) == [
        "00000000000000000000.log",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    await partitions.close()
    partitions = opened(tmp_path / "logs")
    partitions.open(TOPIC)
    assert [partition.log.end_offset for partition in partitions.led()] == [0, 0, 3, 0]
    assert [partition.log.has_files for partition in partitions.led()] == [False, False, True, False]
    await partitions.close()


async def test_what_is_in_the_way_of_files_is_told_and_tried_again(tmp_path: Path) -> None:
    partitions = opened(tmp_path / "logs")
    await partitions.create(TOPIC, 0)
    (tmp_path / "logs" / "t-1").write_text("in the way")
    with pytest.raises(TreecastError) as caught:
        produce(partitions, 1)
    assert caught.value.fault is Fault.STORAGE
    (tmp_path / "logs" / "t-1").unlink()
    produce(partitions, 1)
    assert partitions.get("t", 1).log.end_offset == 1
    await partitions.close()


async def test_what_was_followed_is_led_and_the_other_way_round(tmp_path: Path) -> None:
    partitions = opened(tmp_path / "logs")
    await partitions.apply(TOPIC, dict.fromkeys((0,), 0))
    produce(partitions, 0, 3)
    data = bytes(
        partitions.get("t", 0).read(0, 1000, Isolation.READ_UNCOMMITTED, at_least_one=True).chunks[0]
    )
    replica = partitions.follow(TOPIC, 1)
    replica.append_replicated(data, [read_header(data, 0)], 1)
    before, waiter = partitions.get("t", 0), Waiter()
    before.watch(waiter, Isolation.READ_UNCOMMITTED)
    await partitions.apply(TOPIC, dict.fromkeys((1,), 0))
    assert waiter.told == ["gone"]
    with pytest.raises(TreecastError) as caught:
        before.read(0, 1, Isolation.READ_UNCOMMITTED, at_least_one=True)
    assert caught.value.fault is Fault.NOT_LEADER
    produce(partitions, 1)
    assert partitions.get("t", 1).log.end_offset == 4
    followed = partitions.replica("t", 0)
    assert followed is not None
    assert followed.log.end_offset == 3
    await partitions.close()


class Reader:
    """Waits at a replica, and reads when it is woken."""

    def __init__(self, replica: FollowedPartition, offset: int) -> None:
        self.replica, self.offset = replica, offset
        self.found: list[PartitionRead] = []

    def grown(self, size: int) -> None:
        self.found.append(self.read(1 << 20))

    def foreseen(self, size: int) -> None:
        self.grown(size)

    def gone(self) -> None:
        raise AssertionError("the replica should be open")

    def read(self, max_bytes: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> PartitionRead:
        return self.replica.read(self.offset, max_bytes, isolation, at_least_one=True)


async def test_who_waits_at_a_replica_reads_what_has_just_come_without_the_file(tmp_path: Path) -> None:
    partitions = opened(tmp_path / "logs")
    replica = partitions.follow(TOPIC, 0)
    for number in range(3):
        data = bytearray(batch(2))
        patch_batch(data, 0, 2 * number, 0)
        reader = Reader(replica, 2 * number)
        replica.watch(reader, Isolation.READ_UNCOMMITTED)
        replica.append_replicated(bytes(data), [read_header(data, 0)], 1)
        replica.unwatch(reader)
        (fresh,) = reader.found
        assert fresh.chunks == [bytes(data)]
        assert reader.read(1).size == len(data)  # a limit below the batch's size still returns one batch
        assert reader.read(1 << 20, Isolation.READ_COMMITTED).size == len(data)
        replica.forget_fresh()
        from_file = reader.read(1 << 20)
        assert b"".join(map(bytes, from_file.chunks)) == bytes(data)
        assert (fresh.size, fresh.high_watermark, fresh.last_stable_offset, fresh.log_start_offset) == (
            from_file.size,
            from_file.high_watermark,
            from_file.last_stable_offset,
            from_file.log_start_offset,
        )
    await partitions.close()


@pytest.mark.parametrize("refused", [False, True])
async def test_who_waits_at_a_replica_is_answered_before_the_disk_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    partitions = opened(tmp_path / "logs")
    replica = partitions.follow(TOPIC, 0)
    data = batch(2)
    headers = [read_header(data, 0)]
    at_end, committed = Reader(replica, 0), Waiter()
    replica.watch(at_end, Isolation.READ_UNCOMMITTED)
    replica.watch(committed, Isolation.READ_COMMITTED)
    replica.show(data, headers)
    replica.unwatch(at_end)
    (shown,) = at_end.found
    assert shown.chunks == [data]
    assert shown.high_watermark == replica.readable_end == 2
    assert (replica.log.end_offset, replica.log.size, committed.told) == (0, 0, [])
    if refused:

        def full(*given: object) -> int:
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(Disk, "write", full)
        with pytest.raises(TreecastError):
            replica.append_replicated(data, headers, 1)
    else:
        replica.append_replicated(data, headers, 1)
        assert committed.told == [len(data)]
    replica.forget_fresh()
    assert replica.readable_end == replica.log.end_offset == (0 if refused else 2)
    await partitions.close()


async def test_what_cannot_follow_is_not_shown(tmp_path: Path) -> None:
    partitions = opened(tmp_path / "logs")
    replica = partitions.follow(TOPIC, 0)
    replica.append_replicated(batch(2), [read_header(batch(2), 0)], 1)
    waiter = Waiter()
    replica.show(batch(2), [read_header(batch(2), 0)])  # nobody waits, so the data is not checked
    replica.watch(waiter, Isolation.READ_UNCOMMITTED)
    with pytest.raises(TreecastError) as caught:
        replica.show(batch(2), [read_header(batch(2), 0)])
    assert caught.value.fault is Fault.CORRUPT_BATCH
    assert (waiter.told, replica.readable_end) == ([], 2)
    await partitions.close()


async def test_a_directory_of_an_older_topic_of_the_same_name_is_put_aside(tmp_path: Path) -> None:
    partitions = opened(tmp_path / "logs")
    await partitions.apply(TOPIC, dict.fromkeys((0,), 0))
    produce(partitions, 0)
    partitions.follow(TOPIC, 1)
    await partitions.close()
    partitions = opened(tmp_path / "logs")
    await partitions.apply(AGAIN, dict.fromkeys((0,), 0))
    assert partitions.get("t", 0).log.end_offset == 0
    produce(partitions, 0)
    partitions.follow(AGAIN, 1)
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == [f"{AGAIN.topic_id.hex}.0-stray", f"{AGAIN.topic_id.hex}.1-stray", "t-0", "t-1"]
    await partitions.close()


async def test_a_log_that_was_not_closed_in_order_goes_on_in_a_new_epoch(tmp_path: Path) -> None:
    partitions = opened(tmp_path / "logs")
    await partitions.apply(TOPIC, dict.fromkeys((0,), 0))
    produce(partitions, 0)
    partitions.abandon()
    partitions = opened(tmp_path / "logs", unclean_epoch=7)
    partitions.open(
        TOPIC,
        dict.fromkeys(
            (
                0,
                1,
            ),
            0,
        ),
    )  # partition 1 was lost
    await partitions.apply(
        TOPIC,
        dict.fromkeys(
            (
                0,
                1,
                2,
            ),
            0,
        ),
    )  # partition 2 is new
    assert [partitions.get("t", index).leader_epoch for index in (0, 1, 2)] == [7, 7, 0]
    produce(partitions, 0)
    assert partitions.get("t", 0).end_of_epoch(0) == (0, 1)
    partitions.abandon()
    partitions = opened(tmp_path / "logs", unclean_epoch=3)
    partitions.open(TOPIC, dict.fromkeys((0,), 0))
    assert partitions.get("t", 0).leader_epoch == 8
    partitions.abandon()


async def test_readers_of_a_replica_are_woken_once_for_a_chunk(tmp_path: Path) -> None:
    partitions = opened(tmp_path / "logs")
    await partitions.apply(TOPIC, dict.fromkeys((0,), 0))
    for _ in range(5):
        produce(partitions, 0, 2)
    chunk = partitions.get("t", 0).read(0, 10_000, Isolation.READ_UNCOMMITTED, at_least_one=True).chunks[0]
    data = bytes(chunk)  # type: ignore[arg-type]
    headers = [read_header(data, n * len(data) // 5) for n in range(5)]
    replica = partitions.follow(TOPIC, 1)
    waiter, committed = Waiter(), Waiter()
    replica.watch(waiter, Isolation.READ_UNCOMMITTED)
    replica.watch(committed, Isolation.READ_COMMITTED)
    replica.append_replicated(data, headers, 1)
    assert waiter.told == committed.told == [len(data)]
    assert replica.truncate(3, 1) == 2
    assert waiter.told == committed.told == [len(data), 0]
    replica.restart(50, 1)
    found = replica.read(50, 1000, Isolation.READ_COMMITTED, at_least_one=True)
    assert (found.high_watermark, found.log_start_offset, found.size) == (50, 50, 0)
    partitions.drop(TOPIC, 1)
    assert waiter.told[-1] == "gone"
    assert partitions.replica("t", 1) is None
    await partitions.close()


async def test_a_broker_that_was_killed_leads_in_a_new_epoch(
    tmp_path: Path, clock: Callable[[], float]
) -> None:
    async def started() -> Broker:
        broker = Broker(
            BrokerSettings(data=tmp_path / "d"),
            Host(1, "a"),
            Counters(),
            clock=clock,
            rng=random.Random(1),
        )
        await broker.start()
        return broker

    broker: Any = await started()
    await broker.cluster.definitions.create_topic(NewTopic("t", 1))
    assert broker.cluster.partition("t", 0).leader_epoch == 0
    await broker.close()
    broker = await started()
    assert broker.cluster.partition("t", 0).leader_epoch == 0
    broker._parts.abandon()
    broker = await started()
    assert broker.cluster.partition("t", 0).leader_epoch == 3  # the third start
    await broker.close()
