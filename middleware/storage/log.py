"""The log of one partition: segments of whole record batches, appended at the end, read from anywhere.

Batches keep their bytes, except that base offset and leader epoch are patched in place, as is the timestamp
of topics with LogAppendTime. Nothing here waits or starts threads (`flusher` does). Every call is made on the
loop. Slow work has three parts: preparing it, running it, possibly on a thread
(`durability.FlushTicket.run`), and taking over the result.

A resting log has only its summary in memory (`summary`). It is opened when more is needed. A log that was
never written also rests: it has no files, and its first append creates them.

Files in the partition's directory, with Kafka's names and formats: `<base offset, 20 digits>.log .index
.timeindex .txnindex .snapshot`, `leader-epoch-checkpoint`; and Treecast's own `treecast-checkpoint`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.counters import StorageCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.record_batch import BatchHeader

from . import forgetting, recovery
from .disk import refused
from .durability import Durability
from .epochs import LeaderEpochs
from .lookup import first_at_or_after, latest_timestamp
from .producers import NO_OFFSET, ProducerStates
from .segment import Segment, SharedFiles
from .segments import CURSORS, SegmentList
from .settings import LogSettings
from .summaries import decoded
from .summary import settle, with_epoch
from .writing import LogAppend, LogWriter, check_order

_log = Log(__name__)


class _Parts:
    """The part of an open log that a resting log does not have in memory."""

    def __init__(self, log: PartitionLog, recovered: recovery.Recovered) -> None:
        self.held = SegmentList(recovered.segments)
        self.producers: ProducerStates = recovered.producers
        self.durability = Durability(log, recovered)
        self.writer = LogWriter(
            log, self.held, self.durability, recovered.epochs, epochs_dirty=recovered.epochs_dirty
        )


class PartitionLog:
    """One partition's log. `start_offset` <= `stable_offset` <= `end_offset`."""

    def __init__(
        self,
        directory: str,
        config: TopicConfig,
        settings: LogSettings,
        counters: StorageCounters,
        shared: SharedFiles,
        now_ms: int,
        claim: Callable[[], None] | None = None,
        summary: bytes = b"",
    ) -> None:
        """Creates a resting log, from its `summary` or, with `claim`, without files on disk."""
        self.directory = directory
        self.config = config
        self.settings = settings
        self.counters = counters
        self.shared = shared
        self.report = _NOTHING_DONE
        self.start_offset: int = 0
        self.end_offset: int = 0
        self.cleaned_offset: int = 0
        self.closed = False
        self.made = claim is not None  # the log did not exist before
        self.trusted = bool(summary)  # the summary matched the files at opening
        self.doomed: list[str] = []  # files of deleted segments, for `remove_doomed`
        self._claim = claim
        self._opened_ms = now_ms
        self._parts: _Parts | None = None
        self._summary = summary
        # values of a resting log
        self._size = 0
        self._first_open = NO_OFFSET
        self._told_epoch = -1  # the current leader epoch
        self._clean_due: int = 0
        self._due_of: TopicConfig | None = None  # the configuration that `_clean_due` is for
        if summary:
            self._take_summary()

    @classmethod
    def open(
        cls,
        directory: Path | str,
        config: TopicConfig,
        settings: LogSettings,
        counters: StorageCounters,
        now_ms: int,
        shared: SharedFiles | None = None,
        claim: Callable[[], None] | None = None,
    ) -> PartitionLog:
        """Opens or creates the log and repairs it after a crash (see `recovery`). `report` says what was
        done.

        `shared` belongs to the daemon; without it the log has its own. A log whose files match its summary in
        `shared` stays at rest. Raises STORAGE if the disk fails.

        `claim`: there is nothing on disk, and nothing is created until something has to be written. Then the
        log creates the directory, calls `claim` and creates the first file. So an empty partition has no
        files.
        """
        shared = shared or SharedFiles()
        path = str(directory)
        if claim is not None:
            return cls(path, config, settings, counters, shared, now_ms, claim)
        summary = shared.summaries.trusted(path) if shared.summaries is not None else None
        if summary is not None:
            return cls(path, config, settings, counters, shared, now_ms, None, summary)
        log = cls(path, config, settings, counters, shared, now_ms)
        try:
            if not os.path.isdir(path):
                os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise refused(error, f"open the log {path}") from error
        log._awaken()
        return log

    # --- resting

    @property
    def rests(self) -> bool:
        """Whether only its summary is in memory, or it has no files."""
        return self._parts is None

    def _take_summary(self) -> None:
        known = decoded(self._summary)
        self.start_offset, self.cleaned_offset, self.end_offset = known.start, known.cleaned, known.end
        self._size, self._first_open, self._told_epoch = known.size, known.first_open, known.told_epoch

    def _awaken(self) -> _Parts:
        """Opens a resting log. Raises STORAGE if the disk fails; the next use tries again."""
        if self.closed:
            raise TreecastError(Fault.STORAGE, f"{self.directory} is closed")
        told = self._told_epoch
        known = decoded(self._summary) if self._summary else None
        try:
            if self._claim is not None:
                recovered = recovery.unwritten(self.directory, self.shared, self._opened_ms)
            else:
                recovered = recovery.recover(self.directory, self.config, self.shared, self._opened_ms, known)
        except OSError as error:
            raise refused(error, f"open the log {self.directory}") from error
        self.report = recovered.report
        self.counters.truncated_bytes += recovered.report.truncated_bytes
        self.made = self.made or (recovered.created and not recovered.report.checked_batches)
        found = recovered.checkpoint.start, recovered.end_offset
        if known is not None and found != (known.start, known.end):
            _log.error(
                "resting log was changed by somebody else",
                path=self.directory,
                known=f"{known.start} to {known.end}",
                found=f"{found[0]} to {found[1]}",
            )
        self.start_offset, self.end_offset = found
        self.cleaned_offset = recovered.checkpoint.cleaned
        self._summary = b""
        self._parts = parts = _Parts(self, recovered)
        parts.writer.begin_epoch(told)
        return parts

    def make_files(self) -> None:
        """Creates directory and first file of an unwritten log. Raises STORAGE if the disk fails; it stays
        unwritten then.
        """
        claim = self._claim
        if claim is None:
            return
        active = self.held.active
        try:
            recovery.make_first(self.directory, active, claim)
        except OSError as error:
            self.counters.write_errors += 1
            raise refused(error, f"make the log {self.directory}") from error
        self._claim = None
        self.durability.directory_dirty = self.durability.parent_dirty = True

    @property
    def held(self) -> SegmentList:
        """The segments, oldest first, at least one. Appends go to the last one."""
        return (self._parts or self._awaken()).held

    @property
    def producers(self) -> ProducerStates:
        return (self._parts or self._awaken()).producers

    @property
    def durability(self) -> Durability:
        return (self._parts or self._awaken()).durability

    @property
    def writer(self) -> LogWriter:
        return (self._parts or self._awaken()).writer

    # --- status

    @property
    def has_files(self) -> bool:
        """Whether anything of the log is on disk."""
        return self._claim is None

    @property
    def stable_offset(self) -> int:
        """The last stable offset: the first offset of the oldest open transaction, else the end."""
        parts = self._parts
        if parts is not None and not parts.producers.open:
            return self.end_offset
        first = self._first_open if parts is None else parts.producers.first_open_offset
        return self.end_offset if first < 0 else max(first, self.start_offset)

    @property
    def has_open_transactions(self) -> bool:
        parts = self._parts
        return (self._first_open if parts is None else parts.producers.first_open_offset) >= 0

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch; 0 before `begin_epoch`."""
        parts = self._parts
        return max(self._told_epoch if parts is None else parts.writer.epochs.latest, 0)

    @property
    def size(self) -> int:
        """The bytes of all segments' batches."""
        parts = self._parts
        return self._size if parts is None else parts.held.size

    # --- appending

    def append(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> LogAppend:
        """Appends whole batches with one write. `batches` is patched in place and not kept.

        `headers` are those of `batches` in order, and get their offsets. Producers' sequences are not checked
        here; call `producers.check` first. Raises BATCH_TOO_LARGE for more than a segment holds, STORAGE if
        the disk fails. The log is unchanged then, and accepts appends again as soon as the disk does.
        """
        parts = self._writable()
        if not headers:
            raise TreecastError(Fault.CORRUPT_BATCH, "there is no batch to append")
        if self._claim is not None:
            self.make_files()
        return parts.writer.append(batches, headers, now_ms)

    def _writable(self) -> _Parts:
        parts = self._parts or self._awaken()
        if parts.durability.failed:
            raise TreecastError(Fault.STORAGE, parts.durability.failed)
        return parts

    def begin_epoch(self, epoch: int) -> None:
        """Sets the leader epoch of later appends. It never falls. The first such append writes it to disk."""
        if self._parts is not None:
            self._parts.writer.begin_epoch(epoch)
        elif epoch > self._told_epoch:
            self._told_epoch = epoch

    @property
    def epoch_entries(self) -> list[tuple[int, int]]:
        """Pairs (leader epoch, its first offset), oldest first."""
        if self._parts is not None:
            return list(self._parts.writer.epochs.entries)
        known = decoded(self._summary).leader_epochs() if self._summary else LeaderEpochs()
        known.begin(self._told_epoch, self.end_offset)
        return known.entries

    # --- following another host's log (see `replicate`)

    def append_replicated(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> int:
        """Appends the leader's batches with their offsets, epochs and times. Returns the log's new end.

        Offsets rise from the log's end and may have gaps. The bytes are neither changed nor kept. Raises
        CORRUPT_BATCH, and appends nothing, if the batches cannot follow the log's end. Raises STORAGE if the
        disk fails; batches appended before that remain.
        """
        parts = self._writable()
        check_order(batches, headers, self.end_offset)
        if self._claim is not None:
            self.make_files()
        return parts.writer.append_replicated(batches, headers, now_ms)

    def forget(self, segment: Segment) -> None:
        """Removes `segment` from the log and closes it. The caller removes its files."""
        self.held.forget(segment)
        self.durability.left(segment)
        segment.close()

    def set_producers(self, producers: ProducerStates) -> None:
        (self._parts or self._awaken()).producers = producers

    def roll(self, now_ms: int) -> None:
        """Begins a new segment unless the last one is empty."""
        if self.held.active.size:
            self.writer.roll(now_ms)

    # --- reading

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool
    ) -> tuple[list[Chunk], int]:
        """Returns (chunks, their size): whole batches from the one that holds `offset` up to `limit_offset`.

        The size is at most `max_bytes`, except that with `at_least_one` the first batch is returned whatever
        its size. There is one chunk per segment touched: the bytes read or, from 64 KiB on, a range of the
        file to be sent from there (measurements: docs/decisions/2026-11-21-log-reads.md). Raises
        OFFSET_OUT_OF_RANGE below the log's start or beyond its end.
        """
        held = self.held
        if offset < self.start_offset or offset > self.end_offset:
            raise self._out_of_range(offset)
        limit_offset = min(limit_offset, self.end_offset)
        chunks, size = held.read(offset, max_bytes, limit_offset, at_least_one=at_least_one)
        self.counters.read_bytes += size
        return chunks, size

    def read_elsewhere(self, size: int) -> None:
        """Notes that a reader got the last `size` bytes from memory. The next read begins at the end."""
        self.counters.read_bytes += size
        held = (self._parts or self._awaken()).held
        if len(held.cursors) >= CURSORS:
            held.cursors.clear()
        held.cursors[self.end_offset] = held.active.size

    def wake(self) -> None:
        """Opens a resting log, because its files may contradict its summary."""
        if self._parts is None:
            self._awaken()

    def _out_of_range(self, offset: int) -> TreecastError:
        return TreecastError(
            Fault.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is outside {self.start_offset} to {self.end_offset}",
        )

    def offset_for_time(self, timestamp: int, limit_offset: int) -> tuple[int, int, int] | None:
        """Returns (offset, timestamp, leader epoch) of the first record at or after `timestamp`, or None."""
        return first_at_or_after(self.held.all, timestamp, self.start_offset, limit_offset)

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """Returns (offset, timestamp, leader epoch) of the record with the largest timestamp, or None."""
        return latest_timestamp(self.held.all, self.start_offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (the largest epoch up to `epoch`, its end offset), or (-1, -1)."""
        return self.writer.epochs.end_of(epoch, self.end_offset)

    # --- flushing (see `durability`; `flusher` does it outside the loop)

    @property
    def flushed_offset(self) -> int:
        """The offset before which everything is flushed to disk."""
        return self.end_offset if self._parts is None else self._parts.durability.flushed_offset

    @property
    def flush_needed(self) -> bool:
        """Whether an acknowledgement must wait for a flush: fsync per batch, or flush.messages."""
        parts, end = self._parts, self.end_offset
        if parts is None or parts.durability.flushed_offset >= end:
            return False
        return (
            parts.durability.every_batch
            or end - parts.durability.flushed_offset >= self.config.flush_messages
        )

    def flush(self, now_ms: int, *, checkpoint: bool = False) -> None:
        """Flushes everything to disk on the calling thread. Raises STORAGE if the disk fails."""
        if self._parts is None:
            return
        ticket = self.durability.begin(now_ms, checkpoint=checkpoint)
        if ticket is None:
            return
        try:
            ticket.run()
        except OSError as error:
            self.durability.end(ticket, error)
        else:
            self.durability.end(ticket, None)

    # --- forgetting

    def delete_before(self, offset: int) -> int:
        """DeleteRecords: moves the log's start durably to `offset` (-1: its end). Returns the start.

        An offset below the start changes nothing. Raises OFFSET_OUT_OF_RANGE beyond the end and, as in Kafka,
        POLICY_VIOLATION for topics that are only compacted.
        """
        if self.config.cleanup_compact and not self.config.cleanup_delete:
            raise TreecastError(Fault.POLICY_VIOLATION, "records of a compacted topic cannot be deleted")
        self.wake()
        offset = self.end_offset if offset == -1 else offset
        if not 0 <= offset <= self.end_offset:
            raise self._out_of_range(offset)
        if offset > self.start_offset:
            forgetting.start_at(self, offset)
        return self.start_offset

    def clean(self, now_ms: int) -> int:
        """Rolls an expired segment, forgets idle producers, deletes segments by age, size and log start.

        Returns the number of deleted segments; `remove_doomed` unlinks their files. A resting log is opened
        only if there may be something to do.
        """
        if self._claim is not None or (self._parts is None and not self._due(now_ms)):
            return 0
        return forgetting.clean(self, now_ms)

    def _due(self, now_ms: int) -> bool:
        """Whether retention may have something to do for a resting log."""
        if self._due_of is not self.config:
            self._due_of, self._clean_due = self.config, decoded(self._summary).clean_due(self.config)
        return now_ms > self._clean_due

    @property
    def compactable(self) -> bool:
        """Whether compaction may have something to do."""
        return self._claim is None and (self._parts is not None or decoded(self._summary).dirty)

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """Replaces the neighbouring segments `old` by `new`, the last step of compaction."""
        self.held.replace(old, new)
        for segment in old:
            self.durability.left(segment)
            segment.close()

    def remove_doomed(self) -> None:
        """Unlinks the files of deleted segments. This is slow for large files; `flusher` uses a thread."""
        for path in self.take_doomed():
            self.shared.disk.unlink(path)

    def take_doomed(self) -> list[str]:
        """Returns the files that `remove_doomed` would unlink, and leaves them to the caller."""
        doomed, self.doomed = self.doomed, []
        return doomed

    # --- closing

    def close(self, now_ms: int = 0) -> None:
        """Flushes everything, saves what the next start may trust, and closes the files.

        It saves a summary if the daemon keeps summaries. Otherwise, or if the summary would be large, it
        saves a checkpoint.
        """
        if self.closed:
            return
        try:
            if self._parts is None:
                self._note_epoch()
            else:
                self.remove_doomed()
                settle(self, now_ms)
        finally:
            self.delete()

    def _note_epoch(self) -> None:
        """Saves a resting log's leader epoch in its summary, if no append has written it."""
        summaries = self.shared.summaries
        if summaries is None or not self._summary:
            return
        known = decoded(self._summary)
        if self._told_epoch > known.told_epoch:
            summaries.put(self.directory, with_epoch(known, self._told_epoch))

    def discard(self) -> None:
        """Like `delete`, for a log that will not be opened again."""
        if self.shared.summaries is not None:
            self.shared.summaries.forget(self.directory)
        self.delete()

    def delete(self) -> None:
        """Closes all files without flushing. The owner removes the directory."""
        self.closed = True
        if self._parts is not None:
            for segment in self._parts.held.all:
                segment.close()


_NOTHING_DONE: Final = recovery.RecoveryReport()
