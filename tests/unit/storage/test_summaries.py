"""Logs that rest: what a start takes for granted of them, and when it does not."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage import summaries as stored
from treecast.middleware.storage.compaction import compact, plan
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.segment import SharedFiles
from treecast.middleware.storage.summaries import LogSummaries

Kit = Any
LOG = "00000000000000000000.log"
DAY_MS = 24 * 60 * 60 * 1000


class House:
    """A daemon's logs with their summaries: `logs` and `summaries` under one directory."""

    def __init__(self, kit: Kit, path: Path, disk: Disk | None = None) -> None:
        self.kit, self.path, self.disk = kit, path, disk
        (path / "logs").mkdir(parents=True, exist_ok=True)
        self.open: dict[str, PartitionLog] = {}
        self.begin()

    def begin(self) -> None:
        summaries = LogSummaries.open(str(self.path / "summaries"), str(self.path / "logs"))
        disk = self.disk or self.kit.FaultyDisk()
        self.shared = SharedFiles(disk, open_files=16, summaries=summaries)
        self.kept = summaries

    @property
    def summaries(self) -> LogSummaries:
        assert self.kept is not None
        return self.kept

    def log(self, name: str = "t-0", config: Any = None) -> PartitionLog:
        if name not in self.open:
            self.open[name] = self.kit.open(self.path / "logs" / name, config, shared=self.shared)
        return self.open[name]

    def stop(self, now_ms: int = 1000) -> None:
        for log in self.open.values():
            log.close(now_ms)
        if self.kept is not None:
            self.kept.save()
        self.leave()

    def leave(self) -> None:
        """As a kill does."""
        self.open.clear()
        if self.kept is not None:
            self.kept.close()

    def restart(self) -> None:
        self.stop()
        self.begin()

    def kill(self) -> None:
        self.leave()
        self.begin()


@pytest.fixture
def house(kit: Kit, tmp_path: Path) -> House:
    return House(kit, tmp_path / "data")


class Told(NamedTuple):
    """What users see of a log before they read it."""

    start: int
    end: int
    stable: int
    epoch: int
    epochs: list[tuple[int, int]]
    size: int
    hangs: bool
    flushed: int


def told(log: PartitionLog) -> Told:
    return Told(
        log.start_offset,
        log.end_offset,
        log.stable_offset,
        log.leader_epoch,
        log.epoch_entries,
        log.size,
        log.has_open_transactions,
        log.flushed_offset,
    )


def known(log: PartitionLog) -> list[tuple[int, ...]]:
    """All that is known of its producers."""
    return [
        (
            *(one.producer_id, one.epoch, one.coordinator_epoch, one.transaction_start),
            *[number for batch in one.batches for number in (batch.last_sequence, batch.last_offset)],
        )
        for one in sorted(log.producers, key=lambda one: one.producer_id)
    ]


@contextmanager
def nothing_opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file is opened, and no directory listed."""

    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError(f"opens {args[0]}")

    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", refuse)
        patched.setattr(os, "open", refuse)
        patched.setattr(os, "listdir", refuse)
        yield


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


# --- whatever was done to a log, it is told of as it is


class Drill:
    """Does seeded things to a log."""

    def __init__(self, kit: Kit, house: House, seed: int, *, cuts: bool = True) -> None:
        """`cuts`: takes back records, as a replica does."""
        self.cuts = cuts
        self.kit, self.house, self.random = kit, house, random.Random(seed)
        self.config = kit.config(
            {
                "segment.bytes": self.random.choice([600, 4000, 1 << 20]),
                "index.interval.bytes": self.random.choice([0, 4096]),
                "cleanup.policy": self.random.choice(["delete", "compact", "compact,delete"]),
                "retention.bytes": self.random.choice([-1, 2000]),
                "min.cleanable.dirty.ratio": "0.01",
            }
        )
        self.sequences: dict[int, int] = {}
        self.now_ms = 1000
        self.open()

    def open(self) -> PartitionLog:
        self.log = self.house.log(config=self.config)
        return self.log

    def some(self) -> None:
        for _ in range(self.random.randint(1, 12)):
            self.now_ms += 10
            getattr(self, self.random.choice(["append", "append", "produce", "marker", "epoch", "less"]))()

    def append(self) -> None:
        pairs = [(b"k%d" % self.random.randrange(4), b"v" * self.random.randrange(80)) for _ in range(3)]
        self.kit.append(self.log, self.kit.keyed(*pairs, timestamp=self.now_ms), now_ms=self.now_ms)

    def produce(self) -> None:
        producer = self.random.randrange(3)
        sequence = self.sequences.get(producer, 0)
        made = self.kit.keyed(
            (b"p", b"v"),
            timestamp=self.now_ms,
            producer=ProducerIdentity(producer, 0),
            base_sequence=sequence,
            transactional=producer > 0,
        )
        self.kit.append(self.log, made, now_ms=self.now_ms)
        self.sequences[producer] = sequence + 1

    def marker(self) -> None:
        for producer in self.log.producers.open_transactions():
            ends = self.kit.marker(ProducerIdentity(producer, 0), committed=self.random.random() < 0.5)
            self.kit.append(self.log, ends, now_ms=self.now_ms)

    def epoch(self) -> None:
        self.log.begin_epoch(self.log.leader_epoch + 1)

    def less(self) -> None:
        self.log.roll(self.now_ms)
        self.log.flush(self.now_ms, checkpoint=self.random.random() < 0.5)
        compact(self.log, self.now_ms)
        self.log.clean(self.now_ms)
        if self.cuts and self.random.random() < 0.3:
            self.log.truncate_to(self.random.randint(self.log.start_offset, self.log.end_offset), self.now_ms)
            self.sequences = {one.producer_id: one.last_sequence + 1 for one in self.log.producers}


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
        assert (log.bases, log.start_offset) == (plain.bases, plain.start_offset)
        if drill.cuts:  # may leave offsets at the end that compaction took, and no file tells of
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


# --- changed behind its back


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
    assert "was changed while nobody used it" in caplog.text
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
    (file,) = (house.path / "summaries").iterdir()
    return file


def _all_right(kit: Kit, house: House) -> int:
    """How many rest; all are what they were."""
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


def test_blocks_that_say_nothing_of_logs_are_left_out(
    kit: Kit, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """A segment before the last is not read past its damage: then there are none at all."""
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
    assert "cannot be used" in caplog.text
    kit.append(house.log(), kit.batch(1))
    house.restart()
    assert (house.log().rests, house.log().report.checked_batches) == (False, 0)


def test_summaries_are_written_anew_when_most_say_nothing_any_more(
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
    assert sum(path.stat().st_size for path in (house.path / "summaries").iterdir()) < 4000
    house.kill()
    assert (house.log().rests, house.log().end_offset) == (True, 100)
    assert house.log("t-1").rests


def stored_summary(log: PartitionLog) -> Any:
    from treecast.middleware.storage.summary import summarise

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


# --- killed in the middle


def _steps(kit: Kit, path: Path, kill_at: int | None) -> int:
    """Writes, then is killed in the middle of the stop; how many steps the stop took."""
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
    assert log.bases == [0, 1]


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
    assert house.log().bases == [2, 3]


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
