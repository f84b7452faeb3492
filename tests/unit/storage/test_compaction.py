"""Compaction: the last value of each key stays, and nothing else changes for a reader."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.storage import compaction
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.settings import LogSettings
from treecast.middleware.wire.record_batch import read_records

Kit = Any
Config = Callable[..., Any]


@pytest.fixture
def compacted(kit: Kit) -> Config:
    def config(**more: object) -> Any:
        return kit.config(
            {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": 0,
                "segment.bytes": 1000,
                "delete.retention.ms": 500,
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )

    return config


def settle(log: PartitionLog, now_ms: int = 1000) -> None:
    """Rolls and checkpoints, so that the whole log can be compacted."""
    log.roll(now_ms)
    log.flush(now_ms, checkpoint=True)


def values(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records}


def test_the_last_value_of_each_key_stays_with_its_offset(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted())
    for number in range(30):
        kit.append(log, kit.keyed((b"a", b"%d" % number), (b"b%d" % (number % 3), b"x" * 50)))
    settle(log)
    before = log.size
    assert compaction.compact(log, 2000)
    records = kit.records(log)
    assert {(r.offset, r.key) for r in records} == {(58, b"a"), (59, b"b2"), (57, b"b1"), (55, b"b0")}
    assert log.size < before
    assert (log.start_offset, log.end_offset, log.cleaned_offset) == (0, 60, 60)
    assert log.counters.compactions == 1
    check_invariants(log)
    assert not compaction.compact(log, 2000)


@pytest.mark.parametrize("compression", list(Compression))
def test_batches_keep_their_codec_offsets_and_times(
    kit: Kit, path: Path, compacted: Config, compression: Compression
) -> None:
    log = kit.open(path, compacted())
    pairs = [(b"k%d" % n, b"old") for n in range(5)]
    kit.append(log, kit.keyed(*pairs, timestamp=70, compression=compression))
    kit.append(log, kit.keyed((b"k0", b"new"), (b"k4", b"new"), timestamp=80))
    settle(log)
    assert compaction.compact(log, 2000)
    data = kit.read_all(log)
    first = kit.headers(data)[0]
    assert (first.base_offset, first.last_offset, first.count) == (0, 4, 3)
    assert first.compression == compression
    assert [(r.offset, r.timestamp) for r in read_records(data, 0, first)] == [(1, 70), (2, 70), (3, 70)]
    check_invariants(log)


def test_the_last_segment_and_what_is_young_stay_as_they_are(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted(min_compaction_lag_ms=100))
    for timestamp in (1000, 1100, 1200):
        kit.append(log, kit.keyed((b"a", b"1"), timestamp=timestamp))
        kit.append(log, kit.keyed((b"a", b"2"), timestamp=timestamp))
        settle(log)
    kit.append(log, kit.keyed((b"a", b"3")))
    assert compaction.compact(log, 1250)
    assert log.cleaned_offset == 4
    assert [r.offset for r in kit.records(log)] == [3, 4, 5, 6]


def test_the_dirty_ratio_and_the_longest_lag(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted(min_cleanable_dirty_ratio=0.9))
    for number in range(40):
        kit.append(log, kit.keyed((b"k%d" % number, b"x" * 100), timestamp=1000))
    settle(log)
    assert compaction.compact(log, 1000)
    kit.append(log, kit.keyed((b"k0", b"y"), timestamp=1000))
    settle(log)
    assert compaction.plan(log, 1000) is None
    log.config = compacted(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=100)
    assert compaction.plan(log, 1050) is None
    assert compaction.plan(log, 1101) is not None


def test_nothing_is_replaced_before_a_checkpoint_covers_it(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted())
    kit.append(log, kit.keyed((b"a", b"1")))
    log.roll(1000)
    assert compaction.plan(log, 1000) is None
    log.flush(1000)
    assert compaction.plan(log, 1000) is not None


def test_a_topic_that_is_not_compacted_is_left_alone(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    kit.append(log, kit.keyed((b"a", b"1")))
    settle(log)
    assert compaction.plan(log, 1000) is None


def test_tombstones_stay_for_their_time(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted())
    kit.append(log, kit.keyed((b"a", b"1")))
    kit.append(log, kit.keyed((b"a", None), (b"b", b"1")))
    settle(log)
    assert compaction.compact(log, 2000)
    assert values(kit.records(log)) == {b"a": None, b"b": b"1"}
    header = kit.headers(kit.read_all(log))[0]
    assert header.delete_horizon
    assert header.base_timestamp == 2500
    assert [r.timestamp for r in kit.records(log)] == [1000, 1000]
    kit.append(log, kit.keyed((b"c", b"1")))
    settle(log)
    assert compaction.compact(log, 2499)
    assert values(kit.records(log)) == {b"a": None, b"b": b"1", b"c": b"1"}
    kit.append(log, kit.keyed((b"d", b"1")))
    settle(log)
    assert compaction.compact(log, 2500)
    assert values(kit.records(log)) == {b"b": b"1", b"c": b"1", b"d": b"1"}
    check_invariants(log)


def test_more_keys_than_are_remembered_take_several_rounds(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted(), LogSettings(compaction_keys=7))
    expected: dict[bytes, bytes] = {}
    for number in range(40):
        key, value = b"a-rather-long-key-%d" % (number * 7 % 20), b"%d" % number
        kit.append(log, kit.keyed((key, value)))
        expected[key] = value
    settle(log)
    rounds = 0
    while compaction.compact(log, 2000):
        rounds += 1
        assert values(kit.records(log)) == expected
        check_invariants(log)
    assert rounds > 2
    assert log.cleaned_offset == 40


def test_small_segments_are_joined(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted())
    for number in range(12):
        kit.append(log, kit.keyed((b"a", b"%d" % number)))
        log.roll(1000)
    log.flush(1000, checkpoint=True)
    assert len(log.held.all) == 13
    assert compaction.compact(log, 2000)
    assert len(log.held.all) < 6
    check_invariants(log)


def test_the_last_batch_of_a_producer_stays_though_empty(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted())
    first, second = ProducerIdentity(1, 0), ProducerIdentity(2, 3)
    kit.append(log, kit.keyed((b"a", b"1"), producer=first, base_sequence=0))
    kit.append(log, kit.keyed((b"a", b"2"), producer=first, base_sequence=1))
    kit.append(log, kit.keyed((b"a", b"3"), producer=second, base_sequence=0))
    kit.append(log, kit.keyed((b"a", b"4")))
    settle(log)
    assert compaction.compact(log, 2000)
    kept = [(h.base_offset, h.count, h.last_sequence) for h in kit.headers(kit.read_all(log))]
    assert kept == [(1, 0, 1), (2, 0, 0), (3, 1, -1)]
    for file in path.glob("*.snapshot"):
        file.unlink()
    log.delete()
    again = kit.open(path, compacted())
    known = again.producers.get(1)
    assert known is not None
    assert known.last_sequence == 1
    check_invariants(again)


def test_aborted_records_go_and_markers_follow(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted(segment_bytes=100_000))
    aborting, committing = ProducerIdentity(1, 0), ProducerIdentity(2, 0)
    kit.append(log, kit.keyed((b"a", b"good")))
    kit.append(log, kit.keyed((b"a", b"bad"), producer=aborting, base_sequence=0, transactional=True))
    kit.append(log, kit.keyed((b"b", b"1"), producer=committing, base_sequence=0, transactional=True))
    kit.append(log, kit.marker(aborting, committed=False))
    kit.append(log, kit.marker(committing, committed=True))
    kit.append(log, kit.keyed((b"b", b"2")))
    log.producers.clear()  # as after their expiry
    settle(log)
    assert compaction.compact(log, 2000)
    assert values(kit.records(log)) == {b"a": b"good", b"b": b"2"}
    assert [h.base_offset for h in kit.headers(kit.read_all(log))] == [0, 3, 4, 5]
    assert log.held.aborted_between(0, 6) == [(1, 1)]
    for now_ms, left in ((3000, [0, 3, 4, 5, 6]), (3501, [0, 5, 6, 7])):
        kit.append(log, kit.keyed((b"c%d" % now_ms, b"1")))
        settle(log)
        assert compaction.compact(log, now_ms)
        assert [h.base_offset for h in kit.headers(kit.read_all(log))] == left
    assert log.held.aborted_between(0, 8) == []
    check_invariants(log)


def test_an_open_transaction_stops_it(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted())
    producer = ProducerIdentity(1, 0)
    kit.append(log, kit.keyed((b"a", b"1"), (b"a", b"2")))
    log.roll(1000)
    kit.append(log, kit.keyed((b"a", b"3"), producer=producer, base_sequence=0, transactional=True))
    log.roll(1000)
    kit.append(log, kit.keyed((b"a", b"4")))
    settle(log)
    assert compaction.compact(log, 2000)
    assert [r.offset for r in kit.records(log)] == [1, 2, 3]


def test_compact_and_delete(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted(cleanup_policy="compact,delete", retention_ms=1000))
    kit.append(log, kit.keyed((b"old", b"1"), timestamp=1000))
    log.roll(1000)
    kit.append(log, kit.keyed((b"a", b"1"), (b"a", b"2"), timestamp=5000))
    settle(log)
    assert compaction.compact(log, 5000)
    assert log.clean(5500) == 0  # it was merged into the younger segment
    assert values(kit.records(log)) == {b"old": b"1", b"a": b"2"}
    assert log.clean(6001) == 1
    assert kit.records(log) == []
    check_invariants(log)


def test_a_round_whose_segments_went_meanwhile_is_discarded(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted(cleanup_policy="compact,delete"))
    kit.append(log, kit.keyed((b"a", b"1"), (b"a", b"2")))
    settle(log)
    round_ = compaction.plan(log, 2000)
    assert round_ is not None
    round_.run(lambda: None)
    log.delete_before(2)
    log.clean(2000)
    assert not compaction.install(log, round_)
    assert list(path.glob("*.cleaned")) == []
    check_invariants(log)


def test_a_round_can_be_stopped(kit: Kit, path: Path, compacted: Config) -> None:
    log = kit.open(path, compacted())
    kit.append(log, kit.keyed((b"a", b"1"), (b"a", b"2")))
    settle(log)
    round_ = compaction.plan(log, 2000)
    assert round_ is not None
    with pytest.raises(compaction.Stopped):
        round_.run(round_.stop)
    compaction.discard(round_)
    check_invariants(log)


def test_a_full_disk_leaves_the_log_as_it_was(kit: Kit, path: Path, compacted: Config) -> None:
    disk = kit.FaultyDisk()
    log = kit.open(path, compacted(), disk=disk)
    for number in range(20):
        kit.append(log, kit.keyed((b"a%d" % number, b"1")))
    settle(log)
    expected = kit.read_all(log)
    disk.room = 100
    with pytest.raises(TreecastError):
        compaction.compact(log, 2000)
    disk.room = None
    assert kit.read_all(log) == expected
    assert compaction.compact(log, 2000)
    assert kit.read_all(log) == expected


def fill(kit: Kit, log: PartitionLog) -> dict[bytes, bytes]:
    """Fills several groups of segments and an aborted transaction. Returns the expected values."""
    expected: dict[bytes, bytes] = {}
    producer = ProducerIdentity(5, 0)
    for number in range(40):
        key, value = b"k%d" % (number % 7), b"%d" % number * 20
        kit.append(log, kit.keyed((key, value), (key, value)))
        expected[key] = value
        if number % 3 == 0:
            log.roll(1000)
        if number % 10 == 0:
            kit.append(
                log,
                kit.keyed((b"k1", b"bad"), producer=producer, base_sequence=number // 10, transactional=True),
                kit.marker(producer, committed=False),
            )
    settle(log)
    return expected


def committed_values(kit: Kit, log: PartitionLog) -> dict[bytes | None, bytes | None]:
    """Returns the values that a read_committed reader gets."""
    aborted = {first for _, first in log.held.aborted_between(log.start_offset, log.end_offset)}
    data = kit.read_all(log)
    position, left = 0, {}
    for header in kit.headers(data):
        if not header.control and header.base_offset not in aborted:
            left.update(values(read_records(data, position, header)))
        position += header.size
    return left


def test_a_crash_at_any_step_leaves_a_whole_log(kit: Kit, tmp_path: Path, compacted: Config) -> None:
    """Kills the process at every call that changes the disk, opens the log again, and compacts again."""
    log = kit.open(tmp_path / "a", compacted(segment_bytes=2500))
    expected = fill(kit, log)
    end, start, bases = log.end_offset, log.size, len(log.held.all)
    log.delete()
    steps = 0
    finished = False
    while not finished:
        path = tmp_path / f"crash-{steps}"
        shutil.copytree(tmp_path / "a", path)
        disk = kit.FaultyDisk()
        log = kit.open(path, compacted(segment_bytes=2500), disk=disk)
        disk.crash_at = disk.calls + steps
        try:
            assert compaction.compact(log, 2000)
            finished = True
            assert 1 < len(log.held.all) < bases / 2
        except kit.Crash:
            pass
        log.delete()
        again = kit.open(path, compacted())
        assert again.report.truncated_bytes == 0
        assert again.end_offset == end
        assert committed_values(kit, again) == expected
        check_invariants(again)
        assert not [name for name in os.listdir(path) if name.endswith((".cleaned", ".swap", ".deleted"))]
        compaction.compact(again, 2000)
        assert committed_values(kit, again) == expected
        assert again.size < start / 2
        check_invariants(again)
        again.delete()
        shutil.rmtree(path)
        steps += 1
    assert steps > 30


@settings(max_examples=40)
@given(st.data())
def test_against_a_dictionary(kit: Kit, data: st.DataObject) -> None:
    """Random keys, tombstones, rolls and rounds: the remaining values are those of a dictionary, and every
    remaining record is an appended one, at its offset.
    """
    with kit.directory() as path:
        config = kit.config(
            {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": 0,
                "segment.bytes": 600,
                "delete.retention.ms": 50,
            }
        )
        log = kit.open(path, config, LogSettings(compaction_keys=data.draw(st.integers(1, 12))))
        latest: dict[bytes, bytes | None] = {}
        appended: dict[int, Record] = {}
        now_ms = 1000
        for number in range(data.draw(st.integers(1, 40))):
            now_ms += data.draw(st.integers(0, 30))
            pairs = data.draw(
                st.lists(
                    st.tuples(
                        st.sampled_from([b"a", b"b", b"c", b"a-long-key-of-its-own", b"d"]),
                        st.sampled_from([None, b"1", b"22"]),
                    ),
                    min_size=1,
                    max_size=4,
                )
            )
            codec = data.draw(st.sampled_from(list(Compression)))
            base = kit.append(log, kit.keyed(*pairs, timestamp=now_ms, compression=codec), now_ms=now_ms)
            for delta, (key, value) in enumerate(pairs):
                latest[key] = value
                offset = base.base_offset + delta
                appended[offset] = Record(key, value, (), now_ms, offset)
            if number % 5 == 4:
                settle(log, now_ms)
                compaction.compact(log, now_ms)
                check_invariants(log)
        found = kit.records(log)
        assert all(record == appended[record.offset] for record in found)
        left = {key: value for key, value in values(found).items() if value is not None}
        assert left == {key: value for key, value in latest.items() if value is not None}
        log.delete()
        again = kit.open(path, config)
        assert kit.records(again) == found
