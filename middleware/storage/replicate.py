"""A log that follows another host's: it takes batches as the leader has them, and truncates on the leader's
word.

Offsets, leader epochs and timestamps are the leader's; offsets that compaction removed stay absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.wire.record_batch import read_header

from . import swap
from .checkpoint import Checkpoint
from .disk import refused
from .forgetting import start_at
from .producers import ProducerStates
from .recovery import read_file, replay, snapshot_offsets
from .segment import Segment, stem
from .snapshot import decode_snapshot

if TYPE_CHECKING:
    from .log import PartitionLog

_PREFIX: Final = 61


def truncate_to(log: PartitionLog, offset: int, now_ms: int) -> int:
    """Removes everything from `offset` on, which the leader does not have. Returns the log's new end.

    The new end is `offset`, or the beginning of the batch that holds it, because batches are never cut. The
    producers' states are restored to those at the new end. Raises STORAGE if the disk fails; then nothing can
    be appended until the log is reopened.
    """
    log.wake()
    if offset >= log.end_offset:
        return log.end_offset
    if offset < log.start_offset:
        restart_at(log, offset, now_ms)
        return offset
    end = _truncate(log, offset, now_ms)
    log.start_offset = min(log.start_offset, end)
    return end


def restart_at(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Removes everything. The log is empty and begins at `offset`. Raises STORAGE like `truncate_to`."""
    log.wake()
    log.make_files()
    _restart(log, offset, now_ms)


def advance_start(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Moves the start to `offset`, the start of the leader's log, if this log begins before it."""
    log.wake()
    if offset > log.end_offset:
        restart_at(log, offset, now_ms)
    elif offset > log.start_offset:
        start_at(log, offset)


def _truncate(log: PartitionLog, offset: int, now_ms: int) -> int:
    number = log.held.number_of(offset)
    segment = log.held.all[number]
    position = segment.locate(offset)
    end = offset
    if position < segment.size:
        block = segment.read(position, min(position + _PREFIX, segment.size))
        end = min(end, read_header(bytes(block), 0).base_offset)
    _distrust(log, segment.base_offset, end)
    try:
        # The last one first: a crash in between leaves no hole.
        for later in reversed(log.held.all[number + 1 :]):
            log.doomed.append(swap.remove_segment(log.directory, later.base_offset, log.shared.disk))
            log.forget(later)
        _cut(log, segment, position, end, now_ms)
        _drop_snapshots(log, end)
        log.set_producers(_producers(log, end, now_ms))
        log.writer.cut_epochs(end)
    except OSError as error:
        log.durability.failed = f"{log.directory} could not be truncated: {error.strerror or error}"
        log.counters.write_errors += 1
        raise refused(error, f"truncate {log.directory}") from error
    return end


def _restart(log: PartitionLog, offset: int, now_ms: int) -> None:
    """A crash leaves either the old log with start `offset`, or the new one."""
    before = log.start_offset, log.cleaned_offset
    log.start_offset = log.cleaned_offset = offset
    try:
        log.durability.distrust(Checkpoint(offset, offset, offset, offset, 0), offset)
    except TreecastError:
        log.start_offset, log.cleaned_offset = before
        raise
    log.end_offset = offset
    try:
        for segment in list(log.held.all):
            log.doomed.append(swap.remove_segment(log.directory, segment.base_offset, log.shared.disk))
            log.forget(segment)
        _drop_snapshots(log, -1)
        log.writer.begin_segment(offset, now_ms)
        log.set_producers(ProducerStates())
        log.writer.cut_epochs(-1)
    except OSError as error:
        log.durability.failed = f"{log.directory} could not be restarted: {error.strerror or error}"
        log.counters.write_errors += 1
        raise refused(error, f"restart {log.directory}") from error


def _distrust(log: PartitionLog, base: int, end: int) -> None:
    """Makes recovery check the segment that will be the last. Called before anything is cut."""
    log.cleaned_offset = min(log.cleaned_offset, end)
    known = log.durability.checkpoint
    recovery, segment, position, crc = base, base, 0, 0
    if known.recovery <= end and known.segment <= base:
        recovery, segment, position, crc = known.recovery, known.segment, known.position, known.index_crc
    kept = Checkpoint(log.start_offset, log.cleaned_offset, recovery, segment, position, crc)
    log.durability.distrust(kept, end)


def _cut(log: PartitionLog, old: Segment, position: int, end: int, now_ms: int) -> None:
    """Makes a copy of `old`, `position` bytes long, the last segment. As it is another object, a thread's
    work on the old one (compaction, a flush) is recognised as outdated.
    """
    disk, pool = log.shared.disk, log.shared.pool
    kept = [entry for entry in old.aborted if entry.last_offset < end]
    old.close()
    segment = Segment(log.shared, log.directory, old.base_offset, pool.file(old.file.path), position)
    disk.truncate(pool.descriptor(segment.file), position)
    for suffix in (".index", ".timeindex"):
        disk.unlink(segment.path(suffix))
    segment.set_aborted(kept)
    segment.rebuild_indexes(position, log.config.index_interval_bytes)
    segment.next_offset = end
    segment.created_ms = now_ms
    log.held.replace([old], segment)
    log.end_offset = end
    log.writer.cut()
    log.durability.left(old)
    log.durability.must_flush(segment)


def _drop_snapshots(log: PartitionLog, end: int) -> None:
    for offset in snapshot_offsets(log.directory):
        if offset > end:
            log.shared.disk.unlink(stem(log.directory, offset) + ".snapshot")


def _producers(log: PartitionLog, end: int, now_ms: int) -> ProducerStates:
    """Returns the producers from the newest whole snapshot and all batches after it."""
    states, since = ProducerStates(), -1
    for offset in sorted(snapshot_offsets(log.directory), reverse=True):
        found = decode_snapshot(read_file(stem(log.directory, offset) + ".snapshot"))
        if offset <= end and found is not None:
            states, since = found, offset
            break
    for segment in log.held.all:
        if segment.next_offset > since:
            descriptor = log.shared.pool.descriptor(segment.file)
            replay(states, descriptor, segment.size, since, now_ms)
    return states
