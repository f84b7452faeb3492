"""Resting logs: what a start trusts, kills, disks that refuse, and the calls that wake them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.resting import LOG, Drill, House, Kit, known, nothing_opened, told

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage.compaction import compact, plan
from treecast.middleware.storage.invariants import check_invariants

DAY_MS = 24 * 60 * 60 * 1000


def test_a_log_that_was_closed_rests_until_it_is_used(
    kit: Kit, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = house.log()
    log.begin_epoch(3)
    for number in range(5):
        kit.append(log, kit.batch(2, producer=ProducerIdentity(7, 0), sequence=2 * number))
    before, data, files = told(log), kit.read_all(log), sorted(os.listdir(log.directory))
    house.restart()
    assert sorted(os.listdir(house.path / "logs" / "t-0")) == files, "a stop writes no files for a small log"
    with nothing_opened(monkeypatch):
        again = house.log()
        assert told(again) == before._replace(flushed=10)
        assert again.rests
        assert not again.flush_needed
        assert again.clean(2000) == 0
    assert kit.read_all(again) == data
    assert not again.rests
    check_invariants(again)
    repeat = kit.headers(kit.batch(2, producer=ProducerIdentity(7, 0), sequence=8))[0]
    assert again.producers.check(repeat) == 8
    kit.append(again, kit.batch(1, producer=ProducerIdentity(7, 0), sequence=10))
    assert told(again).end == 11
    house.kill()  # its summary is older than the log
    log = house.log()
    assert not log.rests
    assert log.report.checked_batches == 6, "all since the last checkpoint in its own files"
    assert told(log).end == 11
    check_invariants(log)


def test_an_empty_log_that_has_files_rests_too(house: House) -> None:
    house.log()
    house.restart()
    log = house.log()
    assert log.rests
    assert (log.start_offset, log.end_offset, log.size, log.made) == (0, 0, 0, False)
    check_invariants(log)


def test_a_log_with_large_indexes_is_closed_by_a_checkpoint_and_rests(kit: Kit, house: House) -> None:
    config = kit.config({"index.interval.bytes": 0})
    log = house.log(config=config)
    for number in range(600):
        kit.append(log, kit.batch(1, timestamp=1000 + number))
    data = kit.read_all(log)
    house.restart()
    assert (house.path / "logs" / "t-0" / "treecast-checkpoint").exists()
    log = house.log(config=config)
    assert log.rests
    assert kit.read_all(log) == data
    assert (log.report.checked_batches, log.report.rebuilt_indexes) == (0, 0)
    check_invariants(log)


# --- a resting log shows the same state after any operations


@pytest.mark.parametrize("seed", range(60))
def test_a_rested_log_is_what_recovery_makes_of_its_files(kit: Kit, tmp_path: Path, seed: int) -> None:
    drill = Drill(kit, House(kit, tmp_path / "data"), seed, cuts=seed % 2 == 0)
    for _ in range(4):
        drill.some()
        before, producers, data = told(drill.log), known(drill.log), kit.read_all(drill.log)
        drill.house.restart()
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(drill.log.directory, tmp_path / "copy")
        log = drill.open()
        assert log.rests
        assert told(log) == before._replace(flushed=log.end_offset)
        plain = kit.open(tmp_path / "copy", drill.config)
        assert kit.read_all(log) == kit.read_all(plain) == data
        assert (log.held.bases, log.start_offset) == (plain.held.bases, plain.start_offset)
        if drill.cuts:  # compaction may have removed the last offsets, which no file shows
            assert plain.end_offset <= log.end_offset
        else:
            assert plain.end_offset == log.end_offset
        assert known(log) == producers
        assert log.report.checked_batches == 0
        assert told(log) == before._replace(flushed=log.end_offset)
        check_invariants(log)
        plain.delete()


@pytest.mark.parametrize("seed", range(30))
def test_after_a_kill_a_log_is_what_it_was_whatever_its_summary_says(
    kit: Kit, tmp_path: Path, seed: int
) -> None:
    drill = Drill(kit, House(kit, tmp_path / "data"), 100 + seed, cuts=False)
    for _ in range(4):
        drill.some()
        (drill.house.restart if drill.random.random() < 0.5 else drill.house.kill)()
        log = drill.open()
        drill.sequences = {one.producer_id: one.last_sequence + 1 for one in log.producers}
        drill.some()
        data, end, producers = kit.read_all(log), log.end_offset, known(log)
        drill.house.kill()
        log = drill.open()
        assert kit.read_all(log) == data
        assert log.end_offset == end
        assert [entry[:2] for entry in known(log)] == [entry[:2] for entry in producers]
        check_invariants(log)
        drill.sequences = {one.producer_id: one.last_sequence + 1 for one in log.producers}


# --- killed in the middle


def _steps(kit: Kit, path: Path, kill_at: int | None) -> int:
    """Writes, and is killed in the middle of the stop. Returns how many steps the stop took."""
    disk = kit.FaultyDisk()
    house = House(kit, path, disk)
    for number in range(3):
        kit.append(house.log(f"t-{number}"), kit.batch(number + 1))
    house.restart()
    for number in range(3):
        kit.append(house.log(f"t-{number}", kit.config(segment_bytes=200)), kit.batch(1))
    house.summaries._disk = disk
    blocks: Any = house.summaries._blocks
    blocks._disk = disk
    disk.calls, disk.crash_at = 0, kill_at
    try:
        house.stop()
    except kit.Crash:
        house.leave()
    disk.crash_at = None
    return int(disk.calls)


def test_killed_at_any_step_of_a_stop(kit: Kit, tmp_path: Path) -> None:
    steps = _steps(kit, tmp_path / "whole", None)
    assert steps > 3
    for step in range(steps + 1):
        _steps(kit, tmp_path / f"{step}", step)
        house = House(kit, tmp_path / f"{step}")
        for number in range(3):
            log = house.log(f"t-{number}")
            assert log.end_offset == number + 2
            check_invariants(log)
        assert step < steps or all(one.trusted for one in house.open.values())
        house.restart()
        assert all(house.log(f"t-{number}").rests for number in range(3))


def test_killed_while_it_is_opened_and_written_after_a_rest(kit: Kit, tmp_path: Path) -> None:
    step, ended = 0, False
    while not ended:
        disk = kit.FaultyDisk()
        house = House(kit, tmp_path / f"{step}", disk)
        for _ in range(4):
            kit.append(house.log(config=kit.config(segment_bytes=300)), kit.batch(1))
        data = kit.read_all(house.log())
        house.restart()
        disk.calls, disk.crash_at = 0, step
        try:
            log = house.log(config=kit.config(segment_bytes=200))
            assert log.rests
            kit.append(log, kit.batch(1))
            log.flush(1000, checkpoint=True)
            ended = True
        except kit.Crash:
            pass
        disk.crash_at = None
        house.kill()
        log = house.log(config=kit.config(segment_bytes=200))
        assert kit.read_all(log).startswith(data)
        assert log.end_offset in (4, 5)
        check_invariants(log)
        step += 1
    assert step > 4


def test_a_disk_that_refuses_to_open_a_rested_log_is_told_and_asked_again(
    kit: Kit, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.append(house.log(), kit.batch(1))
    house.restart()
    log = house.log()

    def refuse(path: str) -> Any:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", refuse)
        with pytest.raises(TreecastError) as caught:
            kit.append(log, kit.batch(1))
        assert caught.value.fault is Fault.STORAGE
        assert log.end_offset == 1
    kit.append(log, kit.batch(1))
    assert log.end_offset == 2


def test_what_is_closed_is_not_opened_again(kit: Kit, house: House) -> None:
    kit.append(house.log(), kit.batch(1))
    house.restart()
    log = house.log()
    log.close()
    with pytest.raises(TreecastError, match="is closed"):
        kit.read_all(log)
    assert log.rests


# --- leader epochs


def test_an_epoch_that_was_told_and_not_written_outlives_a_stop(kit: Kit, house: House) -> None:
    log = house.log()
    log.begin_epoch(2)
    kit.append(log, kit.batch(1))
    house.restart()
    house.log().begin_epoch(5)  # as after a kill
    assert house.log().rests
    assert house.log().epoch_entries == [(2, 0), (5, 1)]
    house.restart()
    assert house.log().rests
    assert (house.log().leader_epoch, house.log().epoch_entries) == (5, [(2, 0), (5, 1)])
    house.log().begin_epoch(6)
    kit.append(house.log(), kit.batch(1))
    assert house.log().epoch_entries == [(2, 0), (6, 1)]
    house.kill()
    assert house.log().epoch_entries == [(2, 0), (6, 1)]


# --- retention and compaction


def test_retention_opens_a_rested_log_when_it_has_something_to_do(kit: Kit, house: House) -> None:
    config = kit.config({"retention.ms": DAY_MS, "segment.ms": 10 * DAY_MS})
    kit.append(house.log(config=config), kit.batch(1, timestamp=1000))
    house.restart()
    log = house.log(config=config)
    assert log.clean(1000 + DAY_MS) == 0
    assert log.rests
    assert log.clean(1001 + DAY_MS) == 1
    assert (log.start_offset, log.end_offset, log.size) == (1, 1, 0)


def test_a_rested_log_is_rolled_when_its_time_is_over(kit: Kit, house: House) -> None:
    config = kit.config({"retention.ms": -1, "segment.ms": DAY_MS})
    kit.append(house.log(config=config), kit.batch(1))
    house.restart()
    log = house.log(config=config)
    written = os.stat(house.path / "logs" / "t-0" / LOG).st_mtime_ns // 1_000_000
    assert (log.clean(written + DAY_MS), log.rests) == (0, True)
    assert (log.clean(written + DAY_MS + 1), log.rests) == (0, False)
    assert log.held.bases == [0, 1]


def test_a_changed_retention_holds_for_a_rested_log(kit: Kit, house: House) -> None:
    config = kit.config({"segment.bytes": 200, "retention.ms": -1})
    for _ in range(4):
        kit.append(house.log(config=config), kit.batch(1, value=b"x" * 100))
    house.restart()
    log = house.log(config=config)
    assert (log.clean(2000), log.rests) == (0, True)
    log.config = kit.config({"segment.bytes": 200, "retention.ms": -1, "retention.bytes": 300})
    assert log.clean(2000) == 2
    assert log.start_offset == 2


def test_records_that_were_deleted_before_the_stop_go_after_it(kit: Kit, house: House) -> None:
    config = kit.config({"segment.bytes": 200})
    for _ in range(4):
        kit.append(house.log(config=config), kit.batch(1, value=b"x" * 100))
    house.log().delete_before(2)
    house.restart()
    assert house.log(config=config).start_offset == 2
    assert house.log().clean(2000) == 2
    assert house.log().held.bases == [2, 3]


def test_compaction_opens_a_rested_log_only_where_it_has_a_dirty_part(kit: Kit, house: House) -> None:
    config = kit.config({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    for _ in range(2):
        kit.append(house.log("t-1", config), kit.keyed((b"a", b"b")))
        kit.append(house.log(config=config), kit.keyed((b"a", b"b")))
        house.log().roll(1000)
    kit.append(house.log(), kit.keyed((b"c", b"d")))
    house.log().flush(1000, checkpoint=True)
    house.restart()
    clean, dirty = house.log("t-1", config), house.log(config=config)
    assert plan(clean, 2000) is None
    assert clean.rests
    assert compact(dirty, 2000)
    assert len(kit.records(dirty)) == 2
    house.restart()
    again = house.log(config=config)
    assert (plan(again, 2000), again.rests) == (None, True)
