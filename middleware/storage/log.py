"""The log of one partition: segments of whole record batches, appended at the end, read from anywhere.

Batches stay the bytes that came: only base offset and leader epoch are patched in place, and the timestamp
where the topic says LogAppendTime. Nothing here waits or starts threads (`flusher` does): every call is
made on the loop, and what takes time is split into a part that prepares, a part that a thread may run
(`durability.FlushTicket.run`), and a part that takes over the result.

A log may rest: nothing of it is in memory but what its summary says (`summary`), and it is opened when
somebody needs more. So does one that was never written: it has no files, and its first append makes them.

Files in the partition's directory, Kafka's names and formats: `<base offset, 20 digits>.log .index
.timeindex .txnindex .snapshot`, `leader-epoch-checkpoint`; and our own `treecast-checkpoint`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.counters import StorageCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.record_batch import BatchHeader

from . import forgetting, recovery, replicate
from .disk import refused
from .durability import Durability
from .epochs import LeaderEpochs
from .lookup import first_at_or_after, latest_timestamp
from .producers import NO_OFFSET, ProducerStates
from .segment import Segment, SharedFiles
from .segments import SegmentList
from .settings import LogSettings
from .summaries import decoded
from .summary import summarise, with_epoch
from .writing import LogAppend, LogWriter

_log = logging.getLogger(__name__)


class _Parts:
    """What is in memory of a log that does not rest."""

    def __init__(self, log: PartitionLog, recovered: recovery.Recovered) -> None:
        self.held = SegmentList(recovered.segments)
        self.producers: ProducerStates = recovered.producers
        self.durability = Durability(log, recovered)
        self.writer = LogWriter(log, recovered.epochs, epochs_dirty=recovered.epochs_dirty)


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
        """A log that rests, as `summary` says, or (`claim`) of which there is nothing on the disk."""
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
        self.made = claim is not None  # there was no log before
        self.trusted = bool(summary)  # its summary was that of its files, when it was opened
        self.doomed: list[str] = []  # files of deleted segments, for `remove_doomed`
        self._claim = claim
        self._opened_ms = now_ms
        self._parts: _Parts | None = None
        self._summary = summary
        self._size = 0  # of one that rests, as what follows
        self._first_open = NO_OFFSET
        self._told_epoch = -1  # the current leader epoch
        self._clean_due: int = 0
        self._due_of: TopicConfig | None = None  # whose retention that is
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
        """Opens or makes the log, repairing what a crash left (see `recovery`); `report` says what was done.

        `shared` is the daemon's; without it the log has its own. A log whose files are as its summary there
        says is left to rest. STORAGE where the disk refuses.
        `claim`: nothing is on the disk, and nothing is made, until something has to be written. Then the
        directory is made, `claim` called, and the first file made. An empty partition costs no files so.
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
        """Whether nothing of it is in memory but its summary, or it has no files."""
        return self._parts is None

    def _take_summary(self) -> None:
        known = decoded(self._summary)
        self.start_offset, self.cleaned_offset, self.end_offset = known.start, known.cleaned, known.end
        self._size, self._first_open, self._told_epoch = known.size, known.first_open, known.told_epoch

    def _awaken(self) -> _Parts:
        """Opens it. STORAGE where the disk refuses; then it is tried again when it is needed again."""
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
                "%s was changed while nobody used it: it went from %d to %d, and goes from %d to %d now",
                self.directory,
                *(known.start, known.end),
                *found,
            )
        self.start_offset, self.end_offset = found
        self.cleaned_offset = recovered.checkpoint.cleaned
        self._summary = b""
        self._parts = parts = _Parts(self, recovered)
        parts.writer.begin_epoch(told)
        return parts

    def make_files(self) -> None:
        """Makes the directory of an unwritten log now. STORAGE where the disk refuses: nothing was made."""
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
        """Its segments."""
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

    # --- what is known of it

    @property
    def has_files(self) -> bool:
        """Whether anything of it is on the disk."""
        return self._claim is None

    @property
    def stable_offset(self) -> int:
        """The last stable offset: where the oldest open transaction began, else the end."""
        parts = self._parts
        first = self._first_open if parts is None else parts.producers.first_open_offset
        return self.end_offset if first < 0 else max(first, self.start_offset)

    @property
    def has_open_transactions(self) -> bool:
        parts = self._parts
        return (self._first_open if parts is None else parts.producers.first_open_offset) >= 0

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch; 0 until `begin_epoch` says otherwise."""
        parts = self._parts
        return max(self._told_epoch if parts is None else parts.writer.epochs.latest, 0)

    @property
    def segments(self) -> list[Segment]:
        """Oldest first; the last one is appended to. At least one."""
        return self.held.all

    @property
    def bases(self) -> list[int]:
        """The base offsets of the segments."""
        return self.held.bases

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.held.active

    @property
    def size(self) -> int:
        """Bytes of all segments' batches."""
        parts = self._parts
        return self._size if parts is None else parts.held.size

    @property
    def segment_count(self) -> int:
        return len(self.held.all)

    @property
    def segment_ms(self) -> int:
        """After how long a segment is followed by another, though it is not full."""
        return self.config.rolled_after_ms

    # --- appending

    def append(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> LogAppend:
        """Appends whole batches with one write; `batches` is patched in place and not kept.

        The headers are those of `batches` in order and get their offsets. Producers' sequences are not
        checked here (`producers.check` comes first). Raises BATCH_TOO_LARGE for more than a segment
        holds, STORAGE where the disk refuses; the log is as before then, and takes appends again when
        the disk does.
        """
        self._check_writable()
        if not headers:
            raise TreecastError(Fault.CORRUPT_BATCH, "there is no batch to append")
        if self._claim is not None:
            self.make_files()
        return self.writer.append(batches, headers, now_ms)

    def _check_writable(self) -> None:
        failed = self.durability.failed
        if failed:
            raise TreecastError(Fault.STORAGE, failed)

    def begin_epoch(self, epoch: int) -> None:
        """This and later appends carry `epoch`, which never falls. The first of them writes it down."""
        if self._parts is not None:
            self._parts.writer.begin_epoch(epoch)
        elif epoch > self._told_epoch:
            self._told_epoch = epoch

    @property
    def epoch_entries(self) -> list[tuple[int, int]]:
        """(leader epoch, its first offset), oldest first."""
        if self._parts is not None:
            return list(self._parts.writer.epochs.entries)
        known = decoded(self._summary).leader_epochs() if self._summary else LeaderEpochs()
        known.begin(self._told_epoch, self.end_offset)
        return known.entries

    # --- following another host's log (see `replicate`)

    def append_replicated(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> int:
        """Appends batches as their leader has them, with their offsets, epochs and times; the log's end.

        Offsets grow from the log's end on, and may leave some out. The bytes are not changed and not kept.
        CORRUPT_BATCH, and nothing appended, where they cannot follow; STORAGE where the disk refuses: what
        was appended before that counts.
        """
        self._check_writable()
        replicate.check_order(batches, headers, self.end_offset)
        if self._claim is not None:
            self.make_files()
        return self.writer.append_replicated(batches, headers, now_ms)

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Takes back all from `offset` on, as the leader does not have it; answers the log's new end.

        That is `offset`, or where the batch begins that holds it: batches are never cut. Producers are
        again what they were there. STORAGE: nothing more is appended until the log is opened anew.
        """
        self._check_open()
        if offset >= self.end_offset:
            return self.end_offset
        if offset < self.start_offset:
            self.restart_at(offset, now_ms)
            return offset
        end = replicate.truncate(self, offset, now_ms)
        self.start_offset = min(self.start_offset, end)
        return end

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Lets go of all there is: the log is empty and begins at `offset`. STORAGE as `truncate_to`."""
        self._check_open()
        self.make_files()
        replicate.restart(self, offset, now_ms)

    def advance_start(self, offset: int, now_ms: int) -> None:
        """The leader's log begins at `offset`: so does this one, if it begins before."""
        self._check_open()
        if offset > self.end_offset:
            self.restart_at(offset, now_ms)
        elif offset > self.start_offset:
            forgetting.start_at(self, offset)

    def forget(self, segment: Segment) -> None:
        """`segment` is no part of the log any more; its files are its forgetter's to remove."""
        self.held.forget(segment)
        self.durability.left(segment)
        segment.close()

    def begin_segment(self, base: int, now_ms: int) -> None:
        """A new, empty segment of a log that has none. OSError where the disk refuses."""
        self.writer.begin_segment(base, now_ms)
        self.end_offset = base

    def take_cut(self, old: Segment, cut: Segment, end_offset: int) -> None:
        """`cut`, what is left of `old`, is the last segment, and the log ends at `end_offset`."""
        self.held.replace([old], cut)
        self.end_offset = end_offset
        self.writer.cut()
        self.durability.left(old)
        self.durability.must_flush(cut)

    def set_producers(self, producers: ProducerStates) -> None:
        (self._parts or self._awaken()).producers = producers

    def roll(self, now_ms: int) -> None:
        """Begins a new segment unless the last one is empty."""
        if self.active.size:
            self.writer.roll(now_ms)

    # --- reading

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool
    ) -> tuple[list[Chunk], int]:
        """(chunks, their size): whole batches from the one that holds `offset`, all before `limit_offset`.

        At most `max_bytes`, except that with `at_least_one` the first batch comes however large it is.
        One chunk per segment touched: bytes that were read, or from 64 KiB on a range of the file, to be
        sent from there (docs/decisions/2026-11-21-log-reads.md has the measurements).
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
        """Somebody was given the last `size` bytes from memory: the next read begins at the end."""
        self.counters.read_bytes += size
        self.held.at_end(self.end_offset)

    def _check_open(self) -> None:
        """What it is known for may have to be corrected by what its files are."""
        if self._parts is None:
            self._awaken()

    def _out_of_range(self, offset: int) -> TreecastError:
        return TreecastError(
            Fault.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is outside {self.start_offset} to {self.end_offset}",
        )

    def offset_for_time(self, timestamp: int, limit_offset: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record at or after `timestamp`, or None."""
        return first_at_or_after(self.segments, timestamp, self.start_offset, limit_offset)

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the record with the largest timestamp, or None."""
        return latest_timestamp(self.segments, self.start_offset)

    def aborted_between(self, first: int, limit: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that a reader of `first` to `limit`
        has to leave out."""
        return self.held.aborted_between(first, limit)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch up to `epoch`, its end offset), or (-1, -1)."""
        return self.writer.epochs.end_of(epoch, self.end_offset)

    # --- flushing (see `durability`; `flusher` does it beside the loop)

    @property
    def flushed_offset(self) -> int:
        """All before it has been forced to the disk."""
        return self.end_offset if self._parts is None else self._parts.durability.flushed_offset

    @property
    def flush_needed(self) -> bool:
        """Whether an acknowledgement has to wait for a flush: fsync per batch, or flush.messages."""
        return self._parts is not None and self._parts.durability.needed()

    def flush(self, now_ms: int, *, checkpoint: bool = False) -> None:
        """Forces everything to the disk at once, on the calling thread. STORAGE where it refuses."""
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
        """DeleteRecords: the log starts at `offset` now (-1: its end), durably; answers the start.

        OFFSET_OUT_OF_RANGE beyond the end; an offset below the start changes nothing.
        POLICY_VIOLATION where the topic is only compacted, as in Kafka.
        """
        if not self.config.cleanup_delete:
            raise TreecastError(Fault.POLICY_VIOLATION, "records of a compacted topic cannot be deleted")
        self._check_open()
        offset = self.end_offset if offset == -1 else offset
        if not 0 <= offset <= self.end_offset:
            raise self._out_of_range(offset)
        if offset > self.start_offset:
            forgetting.start_at(self, offset)
        return self.start_offset

    def clean(self, now_ms: int) -> int:
        """Housekeeping: rolls a segment whose time is over, forgets idle producers, deletes segments by
        age, size and log start. How many were deleted; `remove_doomed` unlinks their files. One that rests
        is opened for it only where there is something to do.
        """
        if self._claim is not None or (self._parts is None and not self._due(now_ms)):
            return 0
        return forgetting.clean(self, now_ms)

    def _due(self, now_ms: int) -> bool:
        """Whether retention may have anything to do with a log that rests."""
        if self._due_of is not self.config:
            self._due_of, self._clean_due = self.config, decoded(self._summary).clean_due(self.config)
        return now_ms > self._clean_due

    @property
    def compactable(self) -> bool:
        """False where compaction surely has nothing to do."""
        return self._claim is None and (self._parts is not None or decoded(self._summary).dirty)

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """Compaction's last step: `new` holds what `old`, neighbours, held."""
        self.held.replace(old, new)
        for segment in old:
            self.durability.left(segment)
            segment.close()

    def remove_doomed(self) -> None:
        """Unlinks the files of deleted segments. A large file takes its time: `flusher` does it beside."""
        for path in self.take_doomed():
            self.shared.disk.unlink(path)

    def take_doomed(self) -> list[str]:
        """Hands over what `remove_doomed` would unlink."""
        doomed, self.doomed = self.doomed, []
        return doomed

    # --- leaving

    def close(self, now_ms: int = 0) -> None:
        """Flushes all, writes down what the next start is to trust, and lets go of the files. That is a
        summary where the daemon keeps these, and else, or where it would be large, a checkpoint.
        """
        if self.closed:
            return
        try:
            if self._parts is None:
                self._note_epoch()
            else:
                self._settle(now_ms)
        finally:
            self.delete()

    def _note_epoch(self) -> None:
        """What was told of one that rests, and never written, is in its summary."""
        summaries = self.shared.summaries
        if summaries is None or not self._summary:
            return
        known = decoded(self._summary)
        if self._told_epoch > known.told_epoch:
            summaries.put(self.directory, with_epoch(known, self._told_epoch))

    def _settle(self, now_ms: int) -> None:
        self.remove_doomed()
        durability = self.durability
        if not durability.failed and self.shared.summaries is not None:
            self.flush(now_ms)
        if self._summarised(now_ms):
            return
        if not durability.failed and not durability.covered():
            self.flush(now_ms, checkpoint=True)
        if self.writer.epochs_dirty and self._claim is None:
            self.writer.write_epochs()
        self._summarised(now_ms)

    def _summarised(self, now_ms: int) -> bool:
        """Whether a summary says all that the next start is to know."""
        summaries = self.shared.summaries
        summary = summarise(self, now_ms) if summaries is not None else None
        if summaries is None or summary is None:
            return False
        summaries.put(self.directory, summary)
        return True

    def discard(self) -> None:
        """As `delete`, of a log that will not be opened again."""
        if self.shared.summaries is not None:
            self.shared.summaries.forget(self.directory)
        self.delete()

    def delete(self) -> None:
        """Lets go of all files as they are; the directory is the owner's to remove."""
        self.closed = True
        if self._parts is not None:
            for segment in self._parts.held.all:
                segment.close()


_NOTHING_DONE: Final = recovery.RecoveryReport()
