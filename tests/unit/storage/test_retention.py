"""Which segments are removed, and when."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.invariants import check_invariants

Kit = Any


def test_by_time_of_the_largest_timestamp(kit: Kit, path: Path) -> None:
    batch = len(kit.batch())
    log = kit.open(path, kit.config(segment_bytes=2 * batch, retention_ms=1000))
    for timestamp in (1000, 5000, 1000, 1000, 9000, 1000, 9000):
        kit.append(log, kit.batch(timestamp=timestamp))
    assert log.held.bases == [0, 2, 4, 6]
    assert log.clean(6000) == 0
    assert log.clean(6001) == 2
    assert (log.start_offset, log.held.bases) == (4, [4, 6])
    assert log.counters.deleted_segments == 2
    check_invariants(log)


def test_the_last_segment_is_rolled_first_when_it_expires(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(retention_ms=1000))
    kit.append(log, kit.batch(3, timestamp=1000))
    assert log.clean(3000) == 1
    assert (log.start_offset, log.end_offset, log.size) == (3, 3, 0)
    assert log.clean(99_000) == 0
    assert kit.append(log, kit.batch()).base_offset == 3
    check_invariants(log)
    assert kit.open(path).start_offset == 3


def test_by_size(kit: Kit, path: Path) -> None:
    batch = len(kit.batch())
    log = kit.open(path, kit.config(segment_bytes=2 * batch, retention_bytes=5 * batch, retention_ms=-1))
    for _ in range(9):
        kit.append(log, kit.batch())
    assert log.clean(10**12) == 2
    assert (log.size, log.start_offset) == (5 * batch, 4)
    check_invariants(log)


def test_without_timestamps_the_file_s_own_time_counts(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(retention_ms=1000))
    kit.append(log, kit.batch(timestamp=-1))
    os.utime(log.held.active.file.path, (50, 50))
    assert log.clean(51_000) == 0
    assert log.clean(51_001) == 1


def test_compacted_topics_keep_what_is_old(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config({"cleanup.policy": "compact", "retention.ms": 1, "retention.bytes": 1}))
    kit.append(log, kit.batch())
    assert log.clean(10**12) == 0
    with pytest.raises(TreecastError) as refused:
        log.delete_before(1)
    assert refused.value.fault is Fault.POLICY_VIOLATION


def test_an_empty_policy_keeps_everything_that_is_not_deleted_by_hand(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config({"cleanup.policy": "", "retention.ms": 1, "retention.bytes": 1}))
    kit.append(log, kit.batch())
    assert log.clean(10**12) == 0
    assert log.delete_before(1) == 1


def test_delete_records(kit: Kit, path: Path) -> None:
    batch = len(kit.batch())
    log = kit.open(path, kit.config(segment_bytes=2 * batch))
    log.begin_epoch(1)
    for _ in range(7):
        kit.append(log, kit.batch())
    assert log.delete_before(5) == 5
    assert log.delete_before(2) == 5
    assert log.clean(1000) == 2
    assert (log.held.bases, log.start_offset) == ([4, 6], 5)
    assert log.delete_before(-1) == 7
    assert log.clean(1000) == 2
    assert (log.held.bases, log.start_offset, log.end_offset) == ([7], 7, 7)
    with pytest.raises(TreecastError) as refused:
        log.delete_before(8)
    assert refused.value.fault is Fault.OFFSET_OUT_OF_RANGE
    assert log.end_of_epoch(1) == (1, 7)
    check_invariants(log)


def test_files_go_in_two_steps(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(retention_ms=1000))
    kit.append(log, kit.batch(timestamp=1000))
    log.clean(3000)
    assert [p.name for p in path.glob("*0.log*")] == [f"{0:020d}.log.deleted"]
    log.remove_doomed()
    assert list(path.glob(f"{0:020d}.*")) == []


def test_time_is_over_for_a_quiet_segment_too(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(segment_ms=500), now_ms=1000)
    kit.append(log, kit.batch(timestamp=1000))
    log.clean(1500)
    assert log.held.bases == [0]
    log.clean(1501)
    assert log.held.bases == [0, 1]


def test_a_quick_look_at_old_segments_loads_no_index(kit: Kit, path: Path) -> None:
    batch = len(kit.batch())
    config = kit.config(segment_bytes=2 * batch, retention_ms=10_000)
    log = kit.open(path, config)
    for number in range(8):
        kit.append(log, kit.batch(timestamp=1000 + number))
    log.close()
    log = kit.open(path, config)
    assert [segment.max_timestamp for segment in log.held.all] == [1001, 1003, 1005, 1007]
    assert [segment.loaded is None for segment in log.held.all] == [True, True, True, False]
