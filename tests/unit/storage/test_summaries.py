"""Summaries of logs: when they are not trusted, and their own files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.resting import LOG, House, Kit

from treecast.middleware.storage import summaries as stored
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.summary import summarise

# --- files changed in the meantime


def tick(path: Path) -> None:
    """Waits until the file system's clock, which moves in steps of some ms, has advanced."""
    before = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == before:
        (path / "clock").write_bytes(b"")
        (path / "clock").unlink()


def _longer(path: Path) -> None:
    with (path / LOG).open("ab") as file:
        file.write(b"x" * 9)


def _shorter(path: Path) -> None:
    os.truncate(path / LOG, os.path.getsize(path / LOG) - 1)


def _other_bytes(path: Path) -> None:
    data = bytearray((path / LOG).read_bytes())
    data[-1] ^= 1
    (path / LOG).write_bytes(data)


def _another_file(path: Path) -> None:
    shutil.copy(path / LOG, path / "copy")
    (path / LOG).unlink()
    (path / "copy").rename(path / LOG)


def _leftover(path: Path) -> None:
    (path / "00000000000000000000.log.cleaned").write_bytes(b"")


def _gone(path: Path) -> None:
    (path / LOG).unlink()


@pytest.mark.parametrize("change", [_longer, _shorter, _other_bytes, _another_file, _leftover, _gone])
def test_a_log_that_was_changed_behind_its_back_is_recovered(kit: Kit, house: House, change: Any) -> None:
    other = house.log("t-1")
    kit.append(other, kit.batch(1))
    log = house.log()
    for _ in range(3):
        kit.append(log, kit.batch(1))
    data = kit.read_all(log)
    house.restart()
    tick(house.path)
    change(house.path / "logs" / "t-0")
    log = house.log()
    assert not log.trusted
    assert not log.rests
    found = kit.read_all(log)
    assert data.startswith(found)
    assert log.end_offset == {_gone: 0, _shorter: 2, _other_bytes: 2}.get(change, 3)
    check_invariants(log)
    assert house.log("t-1").rests


def test_a_log_that_is_changed_while_it_rests_is_told_of_as_it_is(
    kit: Kit, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        kit.append(house.log(), kit.batch(1))
    house.restart()
    log = house.log()
    assert (log.rests, log.end_offset) == (True, 3)
    _shorter(house.path / "logs" / "t-0")
    kit.append(log, kit.batch(1))
    assert "resting log was changed by somebody else" in caplog.text
    assert log.end_offset == 3
    assert log.counters.truncated_bytes > 0
    check_invariants(log)


def test_summaries_that_are_older_than_the_logs_are_not_believed(kit: Kit, house: House) -> None:
    kit.append(house.log(), kit.batch(1))
    kit.append(house.log("t-1"), kit.batch(1))
    house.stop()
    shutil.copytree(house.path / "summaries", house.path / "old")
    house.begin()
    kit.append(house.log(), kit.batch(1))
    house.log("t-1")
    house.stop()
    shutil.rmtree(house.path / "summaries")
    (house.path / "old").rename(house.path / "summaries")
    house.begin()
    assert (house.log().rests, house.log().end_offset) == (False, 2)
    assert (house.log("t-1").rests, house.log("t-1").end_offset) == (True, 1)


# --- the summaries' own files


def _written(kit: Kit, house: House) -> Path:
    for number in range(3):
        kit.append(house.log(f"t-{number}"), kit.batch(number + 1))
    house.stop()
    (file,) = (house.path / "summaries").glob("*.journal")
    return file


def _all_right(kit: Kit, house: House) -> int:
    """Checks that all logs are as they were. Returns how many rest."""
    house.begin()
    logs = [house.log(f"t-{number}") for number in range(3)]
    resting = sum(log.rests for log in logs)
    assert [log.end_offset for log in logs] == [1, 2, 3]
    for log in logs:
        check_invariants(log)
        log.delete()
    house.leave()
    return resting


def test_summaries_that_are_damaged_at_any_byte_are_done_without(kit: Kit, house: House) -> None:
    file = _written(kit, house)
    good = file.read_bytes()
    assert _all_right(kit, house) == 3
    for byte in range(0, len(good), 7):
        damaged = bytearray(good)
        damaged[byte] ^= 1 << (byte % 8)
        file.write_bytes(damaged)
        assert _all_right(kit, house) == 0
    for size in range(0, len(good), 11):
        file.write_bytes(good[:size])
        assert _all_right(kit, house) == 0


def test_a_block_of_another_version_is_left_out(
    kit: Kit, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(stored, "_VERSION", 2)
        _written(kit, house)
    assert _all_right(kit, house) == 0


def test_blocks_without_summaries_are_ignored(
    kit: Kit, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the last segment is read past its damage: otherwise there are no summaries at all."""
    file = _written(kit, house)
    for body in (
        b"",
        b"\xc1",
        stored._encode([1, {"t-0": [1, 2]}]),
        stored._encode([1, {"t-0": 5, "t-1": 6}]),
    ):
        shutil.rmtree(house.path / "summaries")
        blocks = stored.BlockLog.open(str(file.parent), Disk(), True, lambda segment, block: None)
        blocks.append(body)
        blocks.close()
        assert _all_right(kit, house) == 0
    shutil.rmtree(house.path / "summaries")
    (house.path / "summaries").mkdir()
    file.write_bytes(b"damaged")
    file.with_name(file.name.replace("1", "2").replace("3", "4")).write_bytes(b"")
    assert _all_right(kit, house) == 0


def test_where_nothing_can_be_kept_logs_are_closed_by_checkpoints_as_well(
    kit: Kit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "summaries").write_text("in the way")
    house = House(kit, tmp_path / "data")
    assert "summaries of logs cannot be used" in caplog.text
    kit.append(house.log(), kit.batch(1))
    house.restart()
    assert (house.log().rests, house.log().report.checked_batches) == (False, 0)


def test_summaries_are_rewritten_when_most_are_outdated(
    kit: Kit, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_SPARE", 2000)
    kit.append(house.log("t-1"), kit.batch(1))
    log = house.log()
    for _ in range(100):
        kit.append(log, kit.batch(1))
        log.flush(1000)
        for one in (log, house.log("t-1")):
            one.flush(1000)
            summary = stored_summary(one)
            house.summaries.put(one.directory, summary)
        house.summaries.write()
    house.kill()  # waits until files are removed
    assert sum(path.stat().st_size for path in (house.path / "summaries").glob("*.journal")) < 4000
    assert (house.log().rests, house.log().end_offset) == (True, 100)
    assert house.log("t-1").rests


def stored_summary(log: PartitionLog) -> Any:
    summary = summarise(log, 1000)
    assert summary is not None
    return summary


def test_a_log_that_is_gone_has_no_summary(kit: Kit, house: House) -> None:
    for name in ("t-0", "t-1", "t-2"):
        kit.append(house.log(name), kit.batch(1))
    house.restart()
    assert len(house.summaries) == 3
    house.log().discard()
    house.open.pop("t-0")
    assert len(house.summaries) == 2
    house.stop()
    shutil.rmtree(house.path / "logs" / "t-1")
    house.begin()
    assert len(house.summaries) == 1
