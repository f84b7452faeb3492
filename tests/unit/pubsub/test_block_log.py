"""The log of blocks: blocks are read back, a torn end is cut off, damage is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.power import ForgetfulDisk

from treecast.middleware.broker.pubsub import (
    Creditor,
    Journal,
    PromisedRun,
    PubSubSettings,
    open_journal,
    run_of,
)
from treecast.middleware.broker.pubsub.retained import RetainedStore
from treecast.middleware.model.counters import PubSubCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.block_log import BlockLog
from treecast.middleware.storage.disk import Disk
from treecast.middleware.wire.mqtt_publish import PLAIN


def opened(path: Path, disk: Disk | None = None, *, syncs: bool = False) -> tuple[BlockLog, list[bytes]]:
    found: list[bytes] = []
    log = BlockLog.open(str(path), disk or Disk(), syncs, lambda segment, block: found.append(block))
    return log, found


def written(path: Path, blocks: list[bytes]) -> None:
    log, _ = opened(path)
    for block in blocks:
        log.append(block)
    log.close()


def test_blocks_come_back_over_segments(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    for number in range(9):
        log.append(b"%d" % number * number)
        if number % 3 == 2:
            log.roll()
    log.drop_first()
    log.close()
    log, found = opened(tmp_path)
    assert found == [b"%d" % n * n for n in range(3, 9)]
    assert log.cut == 0
    log.append(b"more")
    log.close()
    assert opened(tmp_path)[1][-1] == b"more"


@given(st.lists(st.lists(st.binary(max_size=50), max_size=4), min_size=1, max_size=5))
@settings(max_examples=40)
def test_a_block_in_pieces_is_one_block(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[list[bytes]]
) -> None:
    path = tmp_path_factory.mktemp("log")
    log, _ = opened(path)
    for pieces in blocks:
        log.append(*pieces)
    log.close()
    assert opened(path)[1] == [b"".join(pieces) for pieces in blocks]


class Refusing(Disk):
    """Writes nothing while `full`."""

    full = False

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        if self.full:
            raise OSError(28, "full")
        return super().write(descriptor, data, position)


def test_large_runs_are_in_the_journal_in_their_order_also_after_a_refusal(tmp_path: Path) -> None:
    disk = Refusing()
    log, _ = opened(tmp_path, disk)
    retained = RetainedStore(10)
    journal = Journal(log, PubSubCounters(), retained, 1 << 20, False)
    creditor = Creditor(7, "a client")
    journal.begin(creditor)
    sizes = [1, 5000, 20, 9000, 4096]
    for size in sizes[:3]:
        journal.owe_run(creditor, run_with(size))
    disk.full = True
    assert not journal.flush()
    disk.full = False
    for size in sizes[3:]:
        journal.owe_run(creditor, run_with(size))
    assert journal.flush()
    journal.close()
    again, _ = open_journal(
        str(tmp_path), Disk(), PubSubSettings(), PubSubCounters(), RetainedStore(10), False
    )
    (known,) = again.records.values()
    owed = [len(known.owed[number].message.payload) for number in sorted(known.owed)]
    assert owed == sizes


def run_with(size: int) -> PromisedRun:
    """A run of one message with a payload of `size` bytes."""
    out = bytearray()
    body = 2 + 1 + 2 + size
    while body >= 0x80:
        out.append(body & 0x7F | 0x80)
        body >>= 7
    out.append(body)
    run = run_of(PLAIN, b"\x32" + bytes(out) + b"\0\1t\0\1" + bytes(size))
    assert isinstance(run, PromisedRun)
    return run


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.data())
@settings(max_examples=80)
def test_whatever_is_torn_off_the_end_leaves_whole_blocks(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log")
    written(path, blocks)
    (file,) = path.glob("*.journal")
    size = file.stat().st_size
    left = data.draw(st.integers(0, size))
    os.truncate(file, left)
    log, found = opened(path)
    assert found == blocks[: len(found)]
    whole = sum(8 + len(block) for block in found)
    assert log.cut == left - whole
    log.append(b"next")
    log.close()
    assert opened(path)[1] == [*found, b"next"]


def damage(path: Path, number: int) -> None:
    """Changes the last byte of a segment, counted from 0."""
    file = sorted(path.glob("*.journal"))[number]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def of_four_segments(path: Path, *, forced: int) -> BlockLog:
    """Writes a log whose first `forced` segments were forced to the disk when they were full."""
    log, _ = opened(path, syncs=True)
    for number in range(4):
        if number:
            log.roll()
        log.append(b"%d first" % number)
        log.append(b"%d second" % number)
        if number == forced:
            log.begin_sync().run()
    return log


@pytest.mark.parametrize("number", range(3))
def test_what_power_tore_ends_the_log_though_segments_follow(tmp_path: Path, number: int) -> None:
    of_four_segments(tmp_path, forced=0).close()
    damage(tmp_path, number)
    log, found = opened(tmp_path, syncs=True)
    assert found == [b"%d %s" % (n, w) for n in range(number + 1) for w in (b"first", b"second")][:-1]
    assert len(log.segments) == number + 1
    assert log.cut > 0
    log.append(b"next")
    log.close()
    assert opened(tmp_path)[1] == [*found, b"next"]


def test_a_full_segment_that_an_earlier_process_did_not_force_is_forced_by_the_next(tmp_path: Path) -> None:
    of_four_segments(tmp_path, forced=1).close()
    log, _ = opened(tmp_path, syncs=True)
    assert log.rolled
    log.begin_sync().run()
    assert not log.rolled
    log.close()
    assert (tmp_path / "forced").read_bytes() == b"3\n"


def test_damage_amid_the_log_is_refused(tmp_path: Path) -> None:
    of_four_segments(tmp_path, forced=2).close()
    damage(tmp_path, 1)
    with pytest.raises(TreecastError, match="damaged") as caught:
        opened(tmp_path)
    assert caught.value.fault is Fault.STORAGE


def test_a_log_of_a_version_without_the_mark_was_forced_but_for_its_last_segment(tmp_path: Path) -> None:
    of_four_segments(tmp_path, forced=0).close()
    (tmp_path / "forced").unlink()
    damage(tmp_path, 3)
    assert opened(tmp_path)[0].cut > 0
    damage(tmp_path, 2)
    with pytest.raises(TreecastError, match="damaged"):
        opened(tmp_path)


class FullDisk(Disk):
    """Accepts `room` more bytes."""

    room = 1 << 30

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        if self.room == 0:
            raise OSError(28, "no space left on device")
        size = min(len(data), self.room)
        self.room -= size
        return super().write(descriptor, bytes(data[:size]), position)


def test_a_block_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    disk = FullDisk()
    log, _ = opened(tmp_path, disk)
    log.append(b"fits")
    disk.room = 5
    with pytest.raises(TreecastError, match="no space"):
        log.append(b"does not")
    disk.room = 100
    log.append(b"later")
    log.close()
    assert opened(tmp_path)[1] == [b"fits", b"later"]


# --- a sync that fails


def left(disk: ForgetfulDisk, path: Path) -> list[bytes]:
    """The blocks that a power loss leaves."""
    log, found = opened(disk.lose(path, path.parent / f"left of {path.name}"), syncs=True)
    log.close()
    return found


@pytest.mark.parametrize("failures", [1, 2])
@pytest.mark.parametrize("rolls", [(), (0,), (1,), (0, 1, 2)])
def test_a_sync_after_a_failed_one_covers_what_that_one_left(
    tmp_path: Path, failures: int, rolls: tuple[int, ...]
) -> None:
    """The kernel no longer has it as unwritten."""
    disk = ForgetfulDisk()
    log, _ = opened(tmp_path / "log", disk, syncs=True)
    log.append(b"safe")
    log.begin_sync().run()
    disk.failures = failures
    refused = 0
    for number in range(4):
        log.append(b"block %d" % number)
        if number in rolls:
            log.roll()
        try:
            log.begin_sync().run()
        except OSError:
            refused += 1
            assert log.failed
            assert log.rolled  # somebody is to ask again, under every policy
    assert refused
    assert not log.failed
    assert left(disk, tmp_path / "log") == [b"safe", *(b"block %d" % number for number in range(4))]
    log.close()


def test_a_sync_is_refused_while_what_a_failed_one_left_cannot_be_read_back(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    log, _ = opened(tmp_path / "log", disk, syncs=True)
    log.append(b"safe")
    log.begin_sync().run()
    log.append(b"lost")
    disk.failures = 1
    with pytest.raises(OSError, match="Input/output error"):
        log.begin_sync().run()
    damage(tmp_path / "log", 0)  # the file system has dropped the page
    log.append(b"later")
    for _ in range(2):
        with pytest.raises(OSError, match="the disk has lost what"):
            log.begin_sync().run()
    log.roll()
    log.append(b"all again")
    log.drop_first()  # its owner has all of it elsewhere
    log.begin_sync().run()
    assert left(disk, tmp_path / "log") == [b"all again"]
    log.close()


def test_a_sync_that_began_before_another_failed_covers_what_that_one_left(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    log, _ = opened(tmp_path / "log", disk, syncs=True)
    log.append(b"first")
    first = log.begin_sync()
    log.append(b"second")
    second = log.begin_sync()
    disk.failures = 1
    with pytest.raises(OSError, match="Input/output error"):
        first.run()
    second.run()
    assert left(disk, tmp_path / "log") == [b"first", b"second"]
    log.close()


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("failures", [1, 2])
def test_a_process_that_was_killed_after_a_failed_sync_leaves_the_next_one_to_write_it_again(
    tmp_path: Path, failures: int, *, rolls: bool
) -> None:
    """The kernel lives on, and has what the dead process wrote as clean."""
    disk = ForgetfulDisk()
    log, _ = opened(tmp_path / "log", disk, syncs=True)
    log.append(b"safe")
    log.begin_sync().run()
    log.append(b"left")
    if rolls:
        log.roll()
        log.append(b"left too")
    disk.failures = failures
    with pytest.raises(OSError, match="Input/output error"):
        log.begin_sync().run()
    log.close()  # as a kill: without a sync
    disk.failures = 0
    log, found = opened(tmp_path / "log", disk, syncs=True)
    log.append(b"later")
    log.begin_sync().run()
    assert left(disk, tmp_path / "log") == [*found, b"later"]
    assert found[:2] == [b"safe", b"left"]
    log.close()
