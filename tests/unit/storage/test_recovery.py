"""Opening a log after a crash: the intact part stays, the rest is cut off."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.settings import LogSettings

Kit = Any

LOG = "00000000000000000000.log"


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def test_a_kill_loses_nothing_whatever_was_flushed(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(segment_bytes=1000))
    for number in range(30):
        kit.append(log, kit.batch(2))
        if number == 11:
            log.flush(1000)
    expected = kit.read_all(log)
    again = kit.open(path, kit.config(segment_bytes=1000))
    assert kit.read_all(again) == expected
    assert again.end_offset == 60
    assert again.report.truncated_bytes == 0
    check_invariants(again)


def test_the_last_append_cut_at_every_byte(kit: Kit, tmp_path: Path) -> None:
    """A partly written append is cut off, at any byte; earlier batches are whole."""
    log = kit.open(tmp_path / "a")
    kit.append(log, kit.batch(3))
    kit.append(log, kit.batch(2))
    kept = kit.read_all(log)
    kit.append(log, kit.batch(2), kit.batch(1))
    whole = kit.read_all(log)
    first_of_last = len(kept) + kit.headers(whole)[2].size
    for size in range(len(kept), len(whole) + 1):
        path = copy(tmp_path / "a", tmp_path / f"cut-{size}")
        os.truncate(path / LOG, size)
        again = kit.open(path)
        rest = first_of_last if size >= first_of_last else len(kept)
        rest = len(whole) if size == len(whole) else rest
        assert kit.read_all(again) == whole[:rest], size
        assert again.report.truncated_bytes == size - rest
        assert os.path.getsize(path / LOG) == rest
        assert again.counters.truncated_bytes == size - rest
        kit.append(again, kit.batch(1))
        check_invariants(again)
        again.delete()
        shutil.rmtree(path)


def test_every_bit_of_an_unflushed_batch_is_checked(kit: Kit, tmp_path: Path) -> None:
    log = kit.open(tmp_path / "a")
    kit.append(log, kit.batch(2))
    kept = log.size
    kit.append(log, kit.batch(1))
    good = kit.read_all(log)
    for byte in range(kept, len(good)):
        path = copy(tmp_path / "a", tmp_path / f"flip-{byte}")
        damaged = bytearray(good)
        damaged[byte] ^= 1 << (byte % 8)
        (path / LOG).write_bytes(damaged)
        again = kit.open(path)
        in_epoch = kept + 12 <= byte < kept + 16  # outside the CRC, like the base offset, which may skip some
        skips = kept + 4 <= byte < kept + 8 and damaged[byte] > good[byte] and damaged[kept + 4] < 128
        if in_epoch or skips:
            assert again.size == len(good)
        else:
            assert again.size == kept, byte
            assert again.report.truncated_bytes == len(good) - kept
            assert again.report.truncated_at == again.end_offset == 2
            assert again.report.reason
            check_invariants(again)
        again.delete()
        shutil.rmtree(path)


def test_valid_batches_behind_a_broken_unflushed_one_go_as_well_and_are_counted(kit: Kit, path: Path) -> None:
    config = kit.config(segment_bytes=400)
    log = kit.open(path, config)
    for _ in range(10):
        kit.append(log, kit.batch(1, value=b"x" * 100))
    bases, size = list(log.held.bases), log.size
    victim = path / f"{bases[1]:020d}.log"
    damaged = bytearray(victim.read_bytes())
    second = kit.headers(damaged)[0].size
    damaged[second + 70] ^= 255
    victim.write_bytes(damaged)
    again = kit.open(path, config)
    assert again.end_offset == bases[1] + 1
    assert again.held.bases == bases[:2]
    assert again.report.reason == "wrong CRC"
    assert again.report.dropped_segments == len(bases) - 2
    assert again.report.truncated_bytes == size - again.size
    assert sorted(p.name for p in path.glob("*.log")) == [f"{base:020d}.log" for base in bases[:2]]
    check_invariants(again)


def test_damage_in_the_trusted_part_deletes_nothing(kit: Kit, path: Path) -> None:
    config = kit.config(segment_bytes=400)
    log = kit.open(path, config)
    for _ in range(9):
        kit.append(log, kit.batch(1, value=b"x" * 100))
    log.flush(1000, checkpoint=True)
    kit.append(log, kit.batch(1))
    bases, size = list(log.held.bases), log.size
    for base in (bases[0], bases[-1]):
        file = path / f"{base:020d}.log"
        damaged = bytearray(file.read_bytes())
        damaged[70] ^= 255
        file.write_bytes(damaged)
    again = kit.open(path, config)
    assert (again.held.bases, again.size, again.end_offset) == (bases, size, 10)
    assert again.report.checked_batches == 1
    assert len(kit.headers(kit.read_all(again))) == 10


def test_a_trusted_file_that_became_shorter_is_checked_again(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    for _ in range(5):
        kit.append(log, kit.batch(1))
    log.close()
    os.truncate(path / LOG, os.path.getsize(path / LOG) - 1)
    again = kit.open(path)
    assert again.end_offset == 4
    assert again.report.truncated_bytes > 0
    check_invariants(again)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 9}', b'{"version":1,"start":"x"}'])
def test_without_a_usable_checkpoint_everything_is_checked(kit: Kit, path: Path, content: bytes) -> None:
    config = kit.config(segment_bytes=400)
    log = kit.open(path, config)
    for _ in range(10):
        kit.append(log, kit.batch(1, value=b"x" * 100))
    expected = kit.read_all(log)
    log.close()
    (path / "treecast-checkpoint").write_bytes(content)
    again = kit.open(path, config)
    assert again.report.checked_batches == 10
    assert kit.read_all(again) == expected
    check_invariants(again)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".txnindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "ragged", "swapped"])
@pytest.mark.parametrize("clean", [True, False])
def test_missing_and_damaged_indexes_are_rebuilt(
    kit: Kit, path: Path, suffix: str, damage: str, clean: bool
) -> None:
    config = kit.config({"segment.bytes": 2000, "index.interval.bytes": 0})
    log = kit.open(path, config)
    producer = ProducerIdentity(9, 0)
    for number in range(40):
        kit.append(log, kit.batch(2, timestamp=10 * number, producer=producer, sequence=2 * number))
    if clean:
        log.close()
    for file in path.glob(f"*{suffix}"):
        data = file.read_bytes()
        if damage == "missing":
            file.unlink()
        else:
            mixed = bytes(random.Random(7).sample(list(data), len(data)))
            file.write_bytes(
                {"empty": b"", "garbage": mixed, "ragged": data[:-3], "swapped": data[12:24] + data}[damage]
            )
    again = kit.open(path, config)
    assert again.end_offset == 80
    for offset in range(80):
        chunks, _ = again.read(offset, 1, 80, at_least_one=True)
        assert kit.headers(b"".join(map(bytes, chunks)))[0].base_offset == offset - offset % 2
    if damage != "swapped" or suffix != ".timeindex":
        assert [again.offset_for_time(10 * number, 80)[0] for number in range(40)] == list(range(0, 80, 2))
    known = again.producers.get(9)
    assert known is not None
    assert known.last_sequence == 79
    kit.append(again, kit.batch(1, producer=producer, sequence=80))


def test_leftovers_go(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    kit.append(log, kit.batch())
    log.close()
    for name in ("00000000000000000007.log.deleted", "x.tmp", "00000000000000000000.log.cleaned"):
        (path / name).write_bytes(b"junk")
    for name in ("00000000000000000007.index", "00000000000000000003.timeindex.swap"):
        (path / name).write_bytes(b"junk")
    again = kit.open(path)
    assert again.report.removed_leftovers == 4
    assert {p.name[-4:] for p in path.iterdir()} <= {".log", "ndex", "shot", "oint"}
    assert len(kit.records(again)) == 1


def test_the_start_offset_survives(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    kit.append(log, kit.batch(10))
    assert log.delete_before(4) == 4
    assert kit.open(path).start_offset == 4


def test_a_log_that_was_cut_off_below_its_start_goes_on_at_its_start(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    kit.append(log, kit.batch(10))
    log.delete_before(10)
    os.truncate(path / LOG, 20)
    again = kit.open(path)
    assert (again.start_offset, again.end_offset) == (10, 10)
    assert kit.append(again, kit.batch(1)).base_offset == 10
    check_invariants(again)
    assert kit.open(path).end_offset == 11


def test_a_checkpoint_in_the_middle_saves_the_check_of_what_is_before(kit: Kit, path: Path) -> None:
    settings = LogSettings(checkpoint_bytes=2000)
    log = kit.open(path, settings=settings)
    producer = ProducerIdentity(4, 1)
    for number in range(100):
        kit.append(log, kit.batch(1, producer=producer, sequence=number))
        if number % 10 == 9:
            log.flush(1000)
    again = kit.open(path, settings=settings)
    assert again.end_offset == 100
    assert 0 < again.report.checked_batches < 60
    assert again.report.rebuilt_indexes == 0
    known = again.producers.get(4)
    assert known is not None
    assert [batch.last_sequence for batch in known.batches] == [95, 96, 97, 98, 99]
    assert len(list(path.glob("*.snapshot"))) == 1
    check_invariants(again)


class Damage(NamedTuple):
    """Damage of one segment file behind the checkpoint: byte `at` (modulo the size) and all after it are
    gone, or the bits of `flip` in it are inverted.
    """

    at: int
    flip: int = 0

    def apply(self, content: bytearray, first: int) -> None:
        at = first + self.at % (len(content) - first)
        if self.flip:
            content[at] ^= self.flip
        else:
            del content[at:]


DAMAGES = st.lists(
    st.none() | st.builds(Damage, st.integers(0, 800), st.just(0) | st.integers(1, 255)), max_size=6
)


@settings(max_examples=60)
@given(trusted=st.integers(0, 12), more=st.integers(0, 20), damages=DAMAGES)
# a raised base offset, outside the CRC, of a segment's last batch, which then overlapped the next segment
@example(trusted=0, more=9, damages=[Damage(613, 1)])
def test_random_damage_behind_the_checkpoint_never_harms_what_is_before(
    kit: Kit, trusted: int, more: int, damages: list[Damage | None]
) -> None:
    """`trusted` batches precede the checkpoint, `more` follow it; `damages` begin at its segment."""
    with kit.directory() as path:
        config = kit.config({"segment.bytes": 700, "index.interval.bytes": 100})
        log = kit.open(path, config)
        for number in range(trusted + more):
            kit.append(log, kit.batch(1 + number % 3))
            if number + 1 == trusted:
                log.flush(1000, checkpoint=True)
        expected = kit.read_all(log)
        safe = log.flushed_offset
        checkpoint = log.durability.checkpoint
        bases = [base for base in log.held.bases if base >= checkpoint.segment]
        log.delete()
        for base, damage in zip(bases, damages, strict=False):
            file = path / f"{base:020d}.log"
            content = bytearray(file.read_bytes())
            first = checkpoint.position if base == checkpoint.segment else 0
            if damage is not None and len(content) > first:
                damage.apply(content, first)
                file.write_bytes(content)
        again = kit.open(path, config)
        check_invariants(again)
        assert again.end_offset >= safe
        found = kit.read_all(again)
        sure = sum(header.size for header in kit.headers(expected) if header.next_offset <= safe)
        assert found[:sure] == expected[:sure]
        kit.append(again, kit.batch(2))
        check_invariants(again)


def test_a_checkpoint_beyond_the_log_is_not_trusted_later(kit: Any, path: Path) -> None:
    """A disk lost data that it had synced, or a copy was cut; the log then grows past the old end."""
    log = kit.open(path)
    kit.append(log, kit.batch(2), kit.batch(3), kit.batch(3))
    log.close()
    (segment,) = path.glob("*.log")
    os.truncate(segment, segment.stat().st_size - 10)
    log = kit.open(path)
    assert log.end_offset == 5
    kit.append(log, kit.batch(4), kit.batch(4))
    data = kit.read_all(log)
    log.delete()  # killed before the next checkpoint
    again = kit.open(path)
    assert kit.read_all(again) == data
    assert again.end_offset == 13


def test_leader_epochs_that_a_power_loss_took_are_found_in_the_batches(kit: Any, path: Path) -> None:
    log = kit.open(path)
    for epoch in (1, 3, 4):
        log.begin_epoch(epoch)
        kit.append(log, kit.batch(2))
    log.flush(0, checkpoint=True)  # a start would trust all of it
    assert log.delete_before(1) == 1
    (path / "leader-epoch-checkpoint").write_bytes(b"")  # its name was renamed, its bytes were not forced
    again = kit.open(path)
    assert again.epoch_entries == log.epoch_entries == [(1, 1), (3, 2), (4, 4)]
    assert again.start_offset == 1
    assert again.report.checked_batches == 3
    kit.append(again, kit.batch(1))
    assert kit.open(path).epoch_entries == [(1, 1), (3, 2), (4, 4)]
