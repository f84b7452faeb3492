"""A log in a few numbers: lets a start skip opening the log as long as its files are unchanged.

A summary describes a log that is wholly durable. It holds what the log's users ask for first (offsets, size,
leader epochs), the time at which retention is due, and what recovery may trust, as a checkpoint does. Where a
checkpoint keeps data in separate files (the indexes of the last segment, and the producers), a summary holds
small ones itself. So a stop writes no files for a small log.

A summary is valid as long as the directory and the last segment have the recorded modification times (ns) and
the last segment has the recorded size. Any change of a log changes one of these: appends and cuts change the
segment, everything else the directory, as renamed files replace old ones. On a mismatch the log is recovered
from its files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treecast.middleware.model.topic_config import TopicConfig

from .checkpoint import Checkpoint
from .epochs import LeaderEpochs
from .retention import expired_segments
from .segment import stem
from .snapshot import encode_snapshot

if TYPE_CHECKING:
    from .log import PartitionLog

_MOST_INDEXES: Final = 4096  # bytes, of a last segment of 0.5 to 1 MB
_MOST_PRODUCERS: Final = 20  # of 46 to 174 bytes
_NOTHING: Final = (b"", b"", b"")
_NEVER: Final = 1 << 62


class LogSummary(Struct, frozen=True, array_like=True, gc=False):
    """The summary. Times in ms unless stated otherwise, sizes in bytes, -1: none."""

    directory_ns: int
    segment_ns: int
    start: int
    cleaned: int
    end: int
    first_open: int  # start of the oldest open transaction
    size: int
    segments: int
    behind: bool  # whether segments lie wholly before the start
    oldest: int  # the largest timestamp in the first segment, or its time of writing
    oldest_size: int  # of the first segment
    epochs: tuple[tuple[int, int], ...]  # leader epoch, its first offset
    epochs_written: bool  # whether their file contains them all
    segment: int  # base offset of the last one
    position: int  # its size
    index_crc: int
    since_checkpoint: int  # bytes after the checkpoint that is in the log's own files
    inside: bool  # whether the fields below replace these files
    offset_index: bytes
    time_index: bytes
    producers: bytes  # in the format of `snapshot`

    @property
    def checkpoint(self) -> Checkpoint:
        """The part of the log that recovery may trust."""
        return Checkpoint(self.start, self.cleaned, self.end, self.segment, self.position, self.index_crc)

    @property
    def told_epoch(self) -> int:
        """The current leader epoch, or -1."""
        return self.epochs[-1][0] if self.epochs else -1

    def leader_epochs(self) -> LeaderEpochs:
        return LeaderEpochs(list(self.epochs))

    def fits(self, directory: str) -> bool:
        """Returns whether the files are unchanged; False if the disk refuses."""
        try:
            last = os.stat(stem(directory, self.segment) + ".log")
            if (last.st_size, last.st_mtime_ns) != (self.position, self.segment_ns):
                return False
            return os.stat(directory).st_mtime_ns == self.directory_ns
        except OSError:
            return False

    def clean_due(self, config: TopicConfig) -> int:
        """Returns the time (Unix ms) before which retention has nothing to do."""
        if self.behind:
            return 0
        due = self.segment_ns // 1_000_000 + config.rolled_after_ms if self.position else _NEVER
        if config.cleanup_delete:
            if config.retention_ms >= 0 and self.size:
                due = min(due, self.oldest + config.retention_ms)
            if 0 <= config.retention_bytes <= self.size - self.oldest_size and self.size:
                due = 0
        return due

    @property
    def dirty(self) -> bool:
        """Whether compaction may have something to do."""
        return max(self.cleaned, self.start) < self.segment


def settle(log: PartitionLog, now_ms: int) -> None:
    """Flushes an open log and saves what the next start may trust: a summary if the daemon keeps summaries
    and it is small, else a checkpoint.
    """
    durability = log.durability
    if not durability.failed and log.shared.summaries is not None:
        log.flush(now_ms)
    if _save(log, now_ms):
        return
    if not durability.failed and not durability.covered():
        log.flush(now_ms, checkpoint=True)
    if log.writer.epochs_dirty and log.has_files:
        log.writer.write_epochs()
    _save(log, now_ms)


def _save(log: PartitionLog, now_ms: int) -> bool:
    """Saves a summary. Returns False if there can be none, so the next start needs a checkpoint."""
    summaries = log.shared.summaries
    summary = summarise(log, now_ms) if summaries is not None else None
    if summaries is None or summary is None:
        return False
    summaries.put(log.directory, summary)
    return True


def summarise(log: PartitionLog, now_ms: int) -> LogSummary | None:
    """Returns the summary of an open log. None if a part of it is not durable, or if it is too large for a
    summary and its checkpoint does not cover it.
    """
    durability = log.durability
    if not log.has_files or durability.failed or durability.unflushed or durability.directory_dirty:
        return None
    active, oldest = log.held.active, log.held.all[0]
    inside = _NOTHING
    if not durability.covered():
        if not is_small(log):
            return None
        inside = _inside(log)
    directory_ns, (size, segment_ns) = _modified(log.directory)[1], _modified(active.file.path)
    if size != active.size or segment_ns < 0 or directory_ns < 0:
        return None
    newest = oldest.max_timestamp
    if newest < 0 and log.size:
        newest = oldest.modified_ms()
    return LogSummary(
        directory_ns=directory_ns,
        segment_ns=segment_ns,
        start=log.start_offset,
        cleaned=log.cleaned_offset,
        end=log.end_offset,
        first_open=log.producers.first_open_offset,
        size=log.size,
        segments=len(log.held.all),
        behind=_behind(log, now_ms),
        oldest=newest,
        oldest_size=oldest.size,
        epochs=tuple(log.epoch_entries),
        epochs_written=not log.writer.epochs_dirty,
        segment=active.base_offset,
        position=active.size,
        index_crc=active.indexes.crc,
        since_checkpoint=durability.since_checkpoint,
        inside=bool(inside[2]),
        offset_index=inside[0],
        time_index=inside[1],
        producers=inside[2],
    )


def is_small(log: PartitionLog) -> bool:
    """Returns whether the last segment's indexes and the producers fit in a summary."""
    return log.held.active.indexes.size <= _MOST_INDEXES and len(log.producers) <= _MOST_PRODUCERS


def _inside(log: PartitionLog) -> tuple[bytes, bytes, bytes]:
    """Returns the indexes of the last segment, and the producers."""
    indexes = log.held.active.indexes
    indexes.finish()
    return bytes(indexes.offsets.data), bytes(indexes.times.data), encode_snapshot(log.producers)


def _modified(path: str) -> tuple[int, int]:
    """Returns (size, time in ns); -1 for both if the disk refuses."""
    try:
        found = os.stat(path)
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def _behind(log: PartitionLog, now_ms: int) -> bool:
    return expired_segments(log.held.all, _KEEPS_ALL, log.start_offset, log.end_offset, now_ms) > 0


_KEEPS_ALL: Final = TopicConfig.of({"retention.ms": "-1", "retention.bytes": "-1"})


def with_epoch(summary: LogSummary, epoch: int) -> LogSummary:
    """Returns the summary with `epoch` started at the log's end, if it is a higher one; the file does not
    contain it.
    """
    known = summary.leader_epochs()
    known.begin(epoch, summary.end)
    changed: dict[str, object] = {"epochs": tuple(known.entries), "epochs_written": False}
    return LogSummary(**{name: getattr(summary, name) for name in LogSummary.__struct_fields__} | changed)
