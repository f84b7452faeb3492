"""A disk that refuses: the log keeps its state, reports the fault, and works again when the disk does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.power import ForgetfulDisk

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.recovery import UNFORCED_FILE
from treecast.middleware.storage.settings import FsyncPolicy, LogSettings

Kit = Any


def refused(kit: Kit, log: Any, *batches: bytes) -> str:
    with pytest.raises(TreecastError) as error:
        kit.append(log, *batches)
    assert error.value.fault is Fault.STORAGE
    return error.value.detail


@pytest.mark.parametrize("room", [0, 1, 11, 61, 100, 149])
def test_a_full_disk(kit: Kit, path: Path, room: int) -> None:
    disk = kit.FaultyDisk()
    log = kit.open(path, disk=disk)
    kit.append(log, kit.batch(3))
    before, size = kit.read_all(log), log.size
    disk.room = room
    assert "No space left" in refused(kit, log, kit.batch(1), kit.batch(1))
    assert (log.end_offset, log.size) == (3, size)
    assert os.path.getsize(path / "00000000000000000000.log") == size
    assert log.counters.write_errors == 1
    assert kit.read_all(log) == before
    check_invariants(log)
    disk.room = None
    assert kit.append(log, kit.batch(1)).base_offset == 3
    check_invariants(log)


def test_a_torn_append_that_cannot_be_taken_back_is_taken_back_later(kit: Kit, path: Path) -> None:
    disk = kit.FaultyDisk()
    log = kit.open(path, disk=disk)
    kit.append(log, kit.batch(3))
    disk.room, disk.fail = 120, {"truncate"}
    refused(kit, log, kit.batch(1), kit.batch(1))
    assert os.path.getsize(path / "00000000000000000000.log") == log.size + 120
    disk.room = None
    refused(kit, log, kit.batch(1))
    disk.fail = set()
    kit.append(log, kit.batch(1))
    check_invariants(log)
    assert len(kit.records(log)) == 4


def test_a_short_write_is_not_an_error(kit: Kit, path: Path) -> None:
    class Stuttering(type(kit.FaultyDisk())):  # type: ignore[misc]
        def write(self, descriptor: int, data: Any, position: int) -> int:
            return super().write(descriptor, memoryview(data)[:50], position)  # type: ignore[no-any-return]

    log = kit.open(path, disk=Stuttering())
    kit.append(log, kit.batch(20))
    assert len(kit.records(log)) == 20
    check_invariants(log)


def test_a_roll_that_is_refused_leaves_the_old_segment(kit: Kit, path: Path) -> None:
    disk = kit.FaultyDisk()
    batch = kit.batch()
    log = kit.open(path, kit.config(segment_bytes=2 * len(batch)), disk=disk)
    kit.append(log, batch, batch)
    disk.fail = {"create"}
    refused(kit, log, batch)
    assert log.held.bases == [0]
    disk.fail = set()
    kit.append(log, batch)
    assert log.held.bases == [0, 2]
    check_invariants(log)


def test_indexes_and_snapshots_that_cannot_be_written_are_done_without(kit: Kit, path: Path) -> None:
    disk = kit.FaultyDisk()
    batch = kit.batch()
    config = kit.config({"segment.bytes": 3 * len(batch), "index.interval.bytes": 0})
    log = kit.open(path, config, disk=disk)
    disk.fail = {"rename"}
    with pytest.raises(TreecastError):
        kit.append(log, batch)  # not even the leader epoch can be stored
    disk.fail = set()
    kit.append(log, batch)
    disk.fail = {"rename"}
    for _ in range(10):
        kit.append(log, batch)
    disk.fail = set()
    assert not (path / "00000000000000000000.index").exists()
    assert len(log.held.all) == 4
    check_invariants(log)
    again = kit.open(path, config)
    check_invariants(again)
    assert again.end_offset == 11


def test_after_a_failed_fsync_nothing_more_is_promised(kit: Kit, path: Path) -> None:
    disk = kit.FaultyDisk()
    log = kit.open(path, settings=LogSettings(FsyncPolicy.BATCH), disk=disk)
    kit.append(log, kit.batch())
    disk.fail = {"sync"}
    with pytest.raises(TreecastError):
        log.flush(1000)
    disk.fail = set()
    assert log.flush_needed
    assert "cannot flush" in refused(kit, log, kit.batch())
    with pytest.raises(TreecastError):
        log.flush(1000)
    assert len(kit.records(log)) == 1
    log.close()
    again = kit.open(path)
    assert again.report.checked_batches == 1
    kit.append(again, kit.batch())


def test_a_checkpoint_that_finds_no_room_harms_no_one(kit: Kit, path: Path) -> None:
    disk = kit.FaultyDisk()
    log = kit.open(path, disk=disk)
    kit.append(log, kit.batch())
    disk.room = 0
    log.flush(1000, checkpoint=True)
    assert log.flushed_offset == 1
    log.delete()
    assert kit.open(path).report.checked_batches == 1


def test_retention_frees_a_full_disk(kit: Kit, path: Path) -> None:
    disk = kit.FaultyDisk()
    batch = kit.batch()
    log = kit.open(path, kit.config(segment_bytes=3 * len(batch), retention_ms=10), disk=disk)
    for _ in range(8):
        kit.append(log, batch)
    disk.room = 0
    log.clean(100_000)
    log.remove_doomed()
    assert log.start_offset == log.end_offset == 8
    assert sorted(p.name for p in path.glob("*.log*")) == [f"{8:020d}.log"]


def test_delete_records_that_cannot_be_noted_is_refused(kit: Kit, path: Path) -> None:
    disk = kit.FaultyDisk()
    log = kit.open(path, disk=disk)
    kit.append(log, kit.batch(5))
    disk.room = 0
    with pytest.raises(TreecastError):
        log.delete_before(3)
    assert log.start_offset == 0


def test_a_directory_that_cannot_be_made(kit: Kit, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TreecastError) as error:
        kit.open(tmp_path / "file" / "t-0")
    assert error.value.fault is Fault.STORAGE


def test_a_damaged_length_is_an_error_not_an_endless_walk(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    for _ in range(10):
        kit.append(log, kit.batch())
    file = path / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    size = len(kit.batch())
    content[3 * size + 8 : 3 * size + 12] = bytes(4)
    file.write_bytes(content)
    with pytest.raises(TreecastError) as error:
        log.read(5, 100, 10, at_least_one=True)
    assert error.value.fault is Fault.STORAGE
    assert len(log.read(0, 2 * size, 10, at_least_one=True)[0]) == 1


@pytest.mark.parametrize("rolls", [False, True])
def test_a_process_that_was_killed_after_a_failed_flush_leaves_the_next_one_to_write_it_again(
    kit: Kit, path: Path, tmp_path: Path, *, rolls: bool
) -> None:
    """The kernel lives on, and has what the dead process wrote as clean."""
    disk = ForgetfulDisk()
    log = kit.open(path, disk=disk)
    kit.append(log, kit.batch(3))
    log.flush(1000, checkpoint=True)
    kit.append(log, kit.batch(2))
    if rolls:
        log.roll(1000)
        kit.append(log, kit.batch(1))
    disk.failures = 2
    with pytest.raises(TreecastError, match="cannot flush"):
        log.flush(1000)
    disk.failures = 0
    log = kit.open(path, disk=disk)
    kit.append(log, kit.batch(1))
    log.flush(1000, checkpoint=True)
    left = kit.open(disk.lose(path, tmp_path / "left"), disk=Disk())
    assert kit.read_all(left) == kit.read_all(log)
    check_invariants(left)
    assert not (path / UNFORCED_FILE).exists()


def test_a_flush_that_cannot_open_its_files_pins_none(kit: Kit, path: Path) -> None:
    batch = kit.batch()
    log = kit.open(path, kit.config(segment_bytes=2 * len(batch)))
    for _ in range(5):
        kit.append(log, batch)
    log.shared.pool.limit = 1
    log.shared.pool.create(str(path / "other"))
    hidden = path / "hidden"
    os.rename(path / f"{4:020d}.log", hidden)
    with pytest.raises(TreecastError):
        log.flush(1000)
    assert [segment.file.pins for segment in log.held.all] == [0, 0, 0]
    os.rename(hidden, path / f"{4:020d}.log")
    log.flush(1000)
    assert log.flushed_offset == 5
    check_invariants(log)
