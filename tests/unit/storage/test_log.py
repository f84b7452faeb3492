"""Appending, rolling, reading: each rule of the log once."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.segment import SharedFiles
from treecast.middleware.wire.record_batch import read_header, read_records

Kit = Any


def test_offsets_and_leader_epoch_are_patched_in_place(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    log.begin_epoch(7)
    kit.append(log, kit.batch(3))
    stored, data = kit.append_bytes(log, kit.batch(2) + kit.batch(4))
    assert (stored.base_offset, stored.next_offset, stored.log_append_time) == (3, 9, -1)
    first, second = kit.headers(data)
    assert (first.base_offset, second.base_offset) == (3, 5)
    assert (first.leader_epoch, second.leader_epoch) == (7, 7)
    assert kit.read_all(log)[-len(data) :] == data
    assert log.counters.appended_batches == 3
    assert log.counters.appended_records == 9
    check_invariants(log)


def test_one_write_per_append(kit: Kit, path: Path) -> None:
    disk = kit.FaultyDisk()
    log = kit.open(path, disk=disk)
    kit.append(log, kit.batch())
    before = disk.calls
    kit.append(log, kit.batch(5), kit.batch(5), kit.batch(5))
    assert disk.calls == before + 1


def test_log_append_time_is_stamped(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config({"message.timestamp.type": "LogAppendTime"}))
    stored, data = kit.append_bytes(log, kit.batch(3, timestamp=5), now_ms=123_456)
    assert stored.log_append_time == 123_456
    header = read_header(data, 0)
    assert [record.timestamp for record in read_records(data, 0, header)] == [123_456] * 3
    assert log.offset_for_time(123_000, log.end_offset) == (0, 123_456, 0)
    check_invariants(log)


def test_an_append_larger_than_a_segment_is_refused(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(segment_bytes=200))
    with pytest.raises(TreecastError) as refused:
        kit.append(log, kit.batch(value=b"x" * 300))
    assert refused.value.fault is Fault.BATCH_TOO_LARGE
    assert log.end_offset == 0


def test_headers_that_are_not_those_of_the_bytes_are_refused(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    data = bytearray(kit.batch() * 2)
    with pytest.raises(TreecastError):
        log.append(memoryview(data), [read_header(data, 0)], 0)
    with pytest.raises(TreecastError):
        log.append(memoryview(b""), [], 0)
    assert log.end_offset == log.size == 0


def test_rolls_by_size(kit: Kit, path: Path) -> None:
    batch = kit.batch()
    log = kit.open(path, kit.config(segment_bytes=3 * len(batch)))
    for _ in range(7):
        kit.append(log, batch)
    assert log.held.bases == [0, 3, 6]
    assert log.counters.rolled_segments == 2
    check_invariants(log)


def test_rolls_by_time_between_timestamps(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(segment_ms=1000))
    for timestamp in (5000, 5500, 6000, 6001, 6002, 7002):
        kit.append(log, kit.batch(timestamp=timestamp), now_ms=10**9)
    assert log.held.bases == [0, 3, 5]
    check_invariants(log)


def test_old_records_do_not_get_a_segment_each(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(segment_ms=1000))
    for timestamp in range(0, 900, 100):
        kit.append(log, kit.batch(timestamp=timestamp), now_ms=10**12)
    assert log.held.bases == [0]


@pytest.mark.parametrize("seed", range(5))
def test_the_writer_keeps_the_indexes_that_a_scan_builds(kit: Kit, path: Path, seed: int) -> None:
    """It does in place what `SegmentIndexes.note` does."""
    luck, interval = random.Random(seed), 100 * seed
    log = kit.open(path, kit.config({"index.interval.bytes": interval}))
    for _ in range(60):
        batches = [kit.batch(luck.randrange(1, 4), timestamp=luck.randrange(1000)) for _ in range(3)]
        kit.append(log, *batches[: luck.randrange(1, 4)])
        if luck.randrange(4) == 0:
            kept = log.held.active.indexes
            built = log.held.active.rebuild_indexes(log.held.active.size, interval)
            assert built.offsets.data == kept.offsets.data
            assert built.times.data == kept.times.data
            assert (built.max_timestamp, built.max_timestamp_offset) == (
                kept.max_timestamp,
                kept.max_timestamp_offset,
            )
            assert (built.unindexed, built.after) == (kept.unindexed, kept.after)
    assert log.held.active.first_timestamp == log.held.active.oldest_timestamp() >= 0


def test_rolls_by_full_index(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config({"segment.index.bytes": 40, "index.interval.bytes": 0}))
    for number in range(20):
        kit.append(log, kit.batch(timestamp=1000 + number))
    assert len(log.held.all) > 5
    assert all(segment.indexes.size <= 80 for segment in log.held.all)
    check_invariants(log)


def test_compacted_topics_roll_after_the_compaction_lag(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config({"cleanup.policy": "compact", "max.compaction.lag.ms": 10}))
    kit.append(log, kit.batch(timestamp=100))
    kit.append(log, kit.batch(timestamp=111))
    assert log.held.bases == [0, 1]


def test_an_offset_inside_a_batch_returns_the_whole_batch(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    kit.append(log, kit.batch(10))
    kit.append(log, kit.batch(10))
    chunks, _ = log.read(15, 1 << 20, log.end_offset, at_least_one=True)
    assert [header.base_offset for header in kit.headers(b"".join(map(bytes, chunks)))] == [10]


def test_at_least_one_batch_however_large(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    kit.append(log, kit.batch(value=b"x" * 1000))
    kit.append(log, kit.batch())
    assert log.read(0, 100, log.end_offset, at_least_one=False) == ([], 0)
    chunks, size = log.read(0, 100, log.end_offset, at_least_one=True)
    assert size == len(b"".join(map(bytes, chunks))) > 1000
    assert len(kit.headers(b"".join(map(bytes, chunks)))) == 1


def test_a_read_goes_on_in_the_next_segment(kit: Kit, path: Path) -> None:
    batch = kit.batch()
    log = kit.open(path, kit.config(segment_bytes=2 * len(batch)))
    for _ in range(9):
        kit.append(log, batch)
    chunks, size = log.read(1, 5 * len(batch), log.end_offset, at_least_one=True)
    assert [header.base_offset for header in kit.headers(b"".join(map(bytes, chunks)))] == [1, 2, 3, 4, 5]
    assert size == 5 * len(batch)


@pytest.mark.parametrize("interval", [0, 300, 4096])
def test_a_reader_gets_the_same_by_the_index_from_memory_and_from_its_file(
    kit: Kit, path: Path, interval: int
) -> None:
    log = log_of_many_sizes(kit, path, interval)
    found = kit.read_in_order(log, 5_000)
    assert sum(map(len, found)) == log.size
    log.close()
    again = kit.open(path, kit.config({"index.interval.bytes": interval}))
    again.roll(1000)
    assert kit.read_in_order(again, 5_000) == found


def test_where_a_read_ends_is_known_without_a_look_at_the_log(kit: Kit, path: Path) -> None:
    """The whole file is damaged, and the index alone gives the right end."""
    log = log_of_many_sizes(kit, path, 0)
    found = kit.read_in_order(log, 5_000)
    (path / "00000000000000000000.log").write_bytes(bytes(log.size))
    position = 0
    for data in found[:-1]:
        after = kit.headers(data)[-1].next_offset
        end = log.held.active.end_within(position, 5_000, log.size, at_least_one=True)
        assert end == (position + len(data), after)
        position += len(data)


def log_of_many_sizes(kit: Kit, path: Path, interval: int) -> PartitionLog:
    log: PartitionLog = kit.open(path, kit.config({"index.interval.bytes": interval}))
    sizes = random.Random(interval)
    for _ in range(200):
        kit.append(log, *[kit.batch(value=b"x" * sizes.randrange(1_000)) for _ in range(3)])
    return log


def test_a_batch_larger_than_was_asked_for_may_end_its_segment(kit: Kit, path: Path) -> None:
    """The room left for the next segment is negative, and its index is empty."""
    batch = kit.batch()
    log = kit.open(path, kit.config(segment_bytes=len(batch)))
    for _ in range(3):
        kit.append(log, batch)
    for offset in range(3):
        chunks, size = log.read(offset, 1, log.end_offset, at_least_one=True)
        assert [header.base_offset for header in kit.headers(b"".join(map(bytes, chunks)))] == [offset]
        assert size == len(batch)


def test_nothing_at_or_after_the_limit(kit: Kit, path: Path) -> None:
    batch = kit.batch(5)
    log = kit.open(path, kit.config(segment_bytes=2 * len(batch)))
    for _ in range(6):
        kit.append(log, batch)
    chunks, _ = log.read(0, 1 << 20, 15, at_least_one=True)
    assert [header.base_offset for header in kit.headers(b"".join(map(bytes, chunks)))] == [0, 5, 10]
    assert log.read(15, 1 << 20, 15, at_least_one=True) == ([], 0)
    assert log.read(20, 1 << 20, 15, at_least_one=True) == ([], 0)
    assert log.read(30, 1 << 20, 1 << 40, at_least_one=True) == ([], 0)


@pytest.mark.parametrize("offset", [-1, 31, 4])
def test_offsets_outside_the_log_are_refused(kit: Kit, path: Path, offset: int) -> None:
    log = kit.open(path)
    kit.append(log, kit.batch(30))
    log.delete_before(5)
    with pytest.raises(TreecastError) as refused:
        log.read(offset, 100, 100, at_least_one=True)
    assert refused.value.fault is Fault.OFFSET_OUT_OF_RANGE


def test_what_was_read_outlives_the_log(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(segment_bytes=300_000))
    for _ in range(4):
        kit.append(log, kit.batch(value=b"x" * 200_000))
    chunks, size = log.read(0, 500_000, log.end_offset, at_least_one=True)
    log.clean(10**15)
    assert log.start_offset == 4
    log.remove_doomed()
    log.close()
    data = b"".join(map(bytes, chunks))
    assert len(data) == size
    assert [header.base_offset for header in kit.headers(data)] == [0, 1]


def test_few_files_are_open_however_many_logs(kit: Kit, tmp_path: Path) -> None:
    shared = SharedFiles(open_files=8)
    logs = [kit.open(tmp_path / f"t-{number}", shared=shared) for number in range(50)]
    for _ in range(3):
        for log in logs:
            kit.append(log, kit.batch())
    assert shared.pool.open_files <= 8
    assert all(len(kit.records(log)) == 3 for log in logs)
    for log in logs:
        log.close()
    assert shared.pool.open_files == 0


def test_close_then_open_checks_nothing_and_knows_all(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(segment_bytes=500))
    for number in range(10):
        kit.append(log, kit.batch(3, timestamp=1000 * number))
    log.begin_epoch(3)
    kit.append(log, kit.batch(3, timestamp=100))
    log.delete_before(4)
    before = (log.start_offset, log.end_offset, log.held.bases, log.size, log.leader_epoch)
    newest = log.max_timestamp_offset()
    log.close()
    log = kit.open(path, kit.config(segment_bytes=500))
    assert (log.start_offset, log.end_offset, log.held.bases, log.size, log.leader_epoch) == before
    assert log.report.checked_bytes == log.report.truncated_bytes == log.report.rebuilt_indexes == 0
    assert log.max_timestamp_offset() == newest
    assert log.flushed_offset == log.end_offset
    check_invariants(log)
    stamps = {name: os.stat(path / name).st_mtime_ns for name in os.listdir(path)}
    log.close()
    assert {name: os.stat(path / name).st_mtime_ns for name in os.listdir(path)} == stamps


def test_end_of_epoch(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    assert log.end_of_epoch(0) == (-1, -1)
    kit.append(log, kit.batch(5))
    log.begin_epoch(2)
    kit.append(log, kit.batch(5))
    log.begin_epoch(5)
    kit.append(log, kit.batch(5))
    assert [log.end_of_epoch(epoch) for epoch in range(7)] == [
        (0, 5),
        (0, 5),
        (2, 10),
        (2, 10),
        (2, 10),
        (5, 15),
        (-1, -1),
    ]
    assert log.end_of_epoch(-1) == (-1, -1)


def test_delete_leaves_the_files_to_their_owner(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    kit.append(log, kit.batch())
    log.delete()
    log.close()
    assert (path / "00000000000000000000.log").exists()
    assert log.shared.pool.open_files == 0
