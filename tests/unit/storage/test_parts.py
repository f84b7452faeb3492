"""The small parts: indexes, leader epochs, checkpoints, open files, windows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.storage.checkpoint import Checkpoint
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.epochs import LeaderEpochs
from treecast.middleware.storage.files import FilePool
from treecast.middleware.storage.index import OffsetIndex, TimeIndex


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 900)), max_size=40), st.integers(-100, 400))
@example([], -2)
def test_offset_index_against_brute_force(steps: list[tuple[int, int]], wanted: int) -> None:
    index, entries, offset, position = OffsetIndex(1000), [], 999, -1
    for more, bytes_ in steps:
        offset, position = offset + more, position + bytes_
        index.append(offset, position)
        entries.append((offset, position))
    assert [index.entry(number) for number in range(len(index))] == entries
    assert index.find_offset(1000 + wanted) == sum(o <= 1000 + wanted for o, _ in entries) - 1
    assert index.find_position(wanted) == sum(p <= wanted for _, p in entries) - 1
    index.truncate(wanted)
    assert [index.entry(number) for number in range(len(index))] == [e for e in entries if e[1] < wanted]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 500)), max_size=30), st.integers(0, 60))
def test_time_index_against_brute_force(added: list[tuple[int, int]], wanted: int) -> None:
    index, entries = TimeIndex(5), []
    for timestamp, offset in sorted(added, key=lambda pair: pair[1]):
        index.append(timestamp, 5 + offset)
        if not entries or timestamp > entries[-1][0]:
            entries.append((timestamp, 5 + offset))
    assert [index.entry(number) for number in range(len(index))] == entries
    assert index.last() == (entries[-1] if entries else (-1, 5))
    before = [offset for timestamp, offset in entries if timestamp <= wanted]
    assert index.offset_before(wanted) == (before[-1] if before else 5)


def test_index_bytes_are_kafkas() -> None:
    offsets, times = OffsetIndex(100), TimeIndex(100)
    offsets.append(105, 4097)
    times.append(1_700_000_000_000, 105)
    assert bytes(offsets.data).hex() == "0000000500001001"
    assert bytes(times.data).hex() == "0000018bcfe5680000000005"


def test_epochs_keep_what_wrote_something() -> None:
    epochs = LeaderEpochs()
    epochs.begin(0, 0)
    epochs.begin(3, 0)
    epochs.begin(5, 10)
    epochs.begin(4, 12)
    assert epochs.entries == [(3, 0), (5, 10)]
    assert epochs.encode() == b"0\n2\n3 0\n5 10\n"
    assert LeaderEpochs.decode(epochs.encode()).entries == epochs.entries
    epochs.truncate_start(4)
    assert epochs.entries == [(3, 4), (5, 10)]
    epochs.truncate_start(10)
    assert epochs.entries == [(5, 10)]
    epochs.truncate_end(9)
    assert epochs.latest == -1


@pytest.mark.parametrize(
    "text", [b"", b"1\n0\n", b"0\n2\n1 1\n", b"0\n1\nx y\n", b"0\n2\n5 1\n3 2\n", b"\xff"]
)
def test_unreadable_epochs_are_empty(text: bytes) -> None:
    assert LeaderEpochs.decode(text).entries == []


def test_checkpoint_round_trip() -> None:
    checkpoint = Checkpoint(1, 2, 3, 4, 5, 6)
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint
    assert Checkpoint.decode(b'{"version": 1, "other": 3}') is None
    assert Checkpoint.decode(b'{"version": 1, "start": true}') is None


def test_pinned_files_stay_open_and_dropped_ones_close(tmp_path: Path) -> None:
    pool = FilePool(Disk(), 3)
    files = [pool.create(str(tmp_path / str(number))) for number in range(3)]
    pinned = pool.pin(files[0])
    for number in range(10):
        pool.create(str(tmp_path / f"more-{number}"))
        assert pool.open_files == 3
    assert files[0].descriptor == pinned
    os.fstat(pinned)
    pool.drop(files[0])
    os.fstat(pinned)
    pool.unpin(files[0])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pinned)
    assert pool.open_files == 2


def test_a_file_that_is_gone_cannot_be_opened_again(tmp_path: Path) -> None:
    pool = FilePool(Disk(), 1)
    file = pool.create(str(tmp_path / "a"))
    pool.create(str(tmp_path / "b"))
    os.unlink(tmp_path / "a")
    with pytest.raises(TreecastError):
        pool.descriptor(file)
