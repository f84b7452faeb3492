"""Removal from a log: records before an offset, segments by age, size and log start, idle producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treecast.middleware.model.errors import TreecastError

from . import swap
from .disk import refused
from .retention import expired_segments

if TYPE_CHECKING:
    from .log import PartitionLog


def start_at(log: PartitionLog, offset: int) -> None:
    """Moves the log's start durably to `offset`, which lies in the log. On STORAGE the start is unchanged."""
    before, log.start_offset = log.start_offset, offset
    try:
        log.durability.write_checkpoint()
    except TreecastError:
        log.start_offset = before
        raise
    log.writer.epochs.truncate_start(offset)


def clean(log: PartitionLog, now_ms: int) -> int:
    """Implements `PartitionLog.clean` for a log that has files."""
    log.producers.expire(now_ms, log.settings.producer_expiration_ms)
    active = log.held.active
    if active.size and now_ms - active.created_ms > log.config.rolled_after_ms:
        log.writer.roll(now_ms)
    count = expired_segments(log.held.all, log.config, log.start_offset, log.end_offset, now_ms)
    if count == len(log.held.all):
        log.writer.roll(now_ms)
    if count:
        _remove_oldest(log, count)
    return count


def _remove_oldest(log: PartitionLog, count: int) -> None:
    """Removes the oldest segments from the log; readers keep what they hold of them."""
    base = log.held.all[count].base_offset
    writer = log.writer
    # Before the segments go: recovery then restores producers from the snapshot instead of their batches.
    known = log.durability.knows_producers(base) or writer.write_snapshot(base)
    try:
        for segment in log.held.all[:count]:
            log.doomed.append(swap.remove_segment(log.directory, segment.base_offset, log.shared.disk))
            log.forget(segment)
            log.counters.deleted_segments += 1
    except OSError as error:
        log.counters.write_errors += 1
        raise refused(error, f"delete a segment in {log.directory}") from error
    finally:
        log.start_offset = max(log.start_offset, log.held.bases[0])
        log.cleaned_offset = max(log.cleaned_offset, log.start_offset)
        writer.epochs.truncate_start(log.start_offset)
    if not known:
        writer.write_snapshot(base)  # it failed before for lack of space, which may exist now
    log.durability.drop_snapshots()
