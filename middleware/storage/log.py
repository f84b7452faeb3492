"""The log of one partition: segments of whole record batches, appended at the end, read from anywhere.

Batches stay the bytes that came: only base offset and leader epoch are patched in place, and the timestamp
where the topic says LogAppendTime. Nothing here waits or starts threads (`flusher` does): every call is
made on the loop, and what takes time is split into a part that prepares, a part that a thread may run
(`FlushTicket.run`, `compaction.clean`), and a part that takes over the result.

Files in the partition's directory, Kafka's names and formats: `<base offset, 20 digits>.log .index
.timeindex .txnindex .snapshot`, `leader-epoch-checkpoint`; and our own `treecast-checkpoint`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from treecast.middleware.model.counters import StorageCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.record_batch import BatchHeader, patch_batch, read_header, stamp_append_time

from . import epochs, recovery
from .aborted import AbortedEntry, encode_entry
from .checkpoint import FILE_NAME, Checkpoint
from .disk import LogFile, refused, write_all
from .fsync import FsyncPolicy
from .lookup import first_at_or_after, latest_timestamp
from .producers import ProducerStates
from .replay import apply_batch
from .segment import Buffer, Segment, SharedFiles, stem
from .settings import LogSettings
from .snapshot import encode_snapshot

_CURSORS: Final = 64
_MAX_RELATIVE: Final = 2**31 - 1


class LogAppend:
    """Where an append went: its first offset, its end, and the time stamped on it (-1: CreateTime)."""

    def __init__(self, base_offset: int, next_offset: int, log_append_time: int) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.log_append_time = log_append_time


class FlushTicket:
    """What has to be forced to the disk so that all before `offset` is safe. `run` may be run by a thread."""

    def __init__(self, log: PartitionLog, offset: int) -> None:
        self.log = log
        self.offset = offset
        self.files: list[tuple[LogFile, int]] = []
        self.segments: list[tuple[Segment, int]] = []  # with their sizes
        self.directory = ""
        self.parts: list[tuple[str, str, bytes]] = []  # temporary path, final path, content
        self.also: list[str] = []
        self.checkpoint: Checkpoint | None = None
        self.bytes = 0

    def run(self) -> None:
        """Raises OSError where the disk refuses; `end_flush` is told of it."""
        disk = self.log.shared.disk
        for _, descriptor in self.files:
            disk.sync(descriptor)
        for path in self.also:
            disk.sync_path(path)
        for temporary, _, data in self.parts:
            disk.write_new(temporary, data)
        if self.directory:
            disk.sync_directory(self.directory)


class PartitionLog:
    """One partition's log. `start_offset` <= `stable_offset` <= `end_offset`."""

    def __init__(
        self,
        directory: str,
        config: TopicConfig,
        settings: LogSettings,
        counters: StorageCounters,
        shared: SharedFiles,
        recovered: recovery.Recovered,
    ) -> None:
        self.directory = directory
        self.config = config
        self.settings = settings
        self.counters = counters
        self.shared = shared
        self.report = recovered.report
        self.producers: ProducerStates = recovered.producers
        self.start_offset: int = recovered.checkpoint.start
        self.end_offset: int = recovered.end_offset
        self.flushed_offset: int = recovered.checkpoint.recovery
        self.cleaned_offset: int = recovered.checkpoint.cleaned
        self.doomed: list[str] = []  # unlinked files of deleted segments, for `remove_doomed`
        self._segments: list[Segment] = recovered.segments
        self._bases: list[int] = [segment.base_offset for segment in recovered.segments]
        self._active: Segment = recovered.segments[-1]
        self._epochs = recovered.epochs
        self._checkpoint = recovered.checkpoint
        self._checkpointed = recovered.checkpointed
        self._unflushed: list[Segment] = recovered.unflushed
        self._since_checkpoint = recovered.report.checked_bytes
        self._dirty_since_ms = 0
        self._directory_dirty = recovered.created
        self._torn = False
        self._failed = ""
        self._cursors: dict[int, int] = {}  # offset -> position in its segment
        self._size = sum(segment.size for segment in recovered.segments)

    @classmethod
    def open(
        cls,
        directory: Path,
        config: TopicConfig,
        settings: LogSettings,
        counters: StorageCounters,
        now_ms: int,
        shared: SharedFiles | None = None,
    ) -> PartitionLog:
        """Opens or makes the log, repairing what a crash left (see `recovery`); `report` says what was done.

        `shared` is the daemon's; without it the log has its own. STORAGE where the disk refuses.
        """
        shared = shared or SharedFiles()
        try:
            os.makedirs(directory, exist_ok=True)
            recovered = recovery.recover(str(directory), config, shared, now_ms)
        except OSError as error:
            raise refused(error, f"open the log {directory}") from error
        counters.truncated_bytes += recovered.report.truncated_bytes
        return cls(str(directory), config, settings, counters, shared, recovered)

    # --- what is known of it

    @property
    def stable_offset(self) -> int:
        """The last stable offset: where the oldest open transaction began, else the end."""
        first = self.producers.first_open_offset
        return self.end_offset if first < 0 else max(first, self.start_offset)

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch; 0 until `begin_epoch` says otherwise."""
        return max(self._epochs.latest, 0)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._size

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    # --- appending

    def append(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> LogAppend:
        """Appends whole batches with one write; `batches` is patched in place and not kept.

        The headers are those of `batches` in order and get their offsets. Producers' sequences are not
        checked here (`producers.check` comes first). Raises BATCH_TOO_LARGE for more than a segment
        holds, STORAGE where the disk refuses; the log is as before then, and takes appends again when
        the disk does.
        """
        if self._failed:
            raise TreecastError(Fault.STORAGE, self._failed)
        size = len(batches)
        if not headers:
            raise TreecastError(Fault.CORRUPT_BATCH, "there is no batch to append")
        stamp = now_ms if self.config.log_append_time else -1
        end = self._assign(batches, headers, stamp)
        active = self._active
        if self._must_roll(active, size, end, headers[-1].max_timestamp, now_ms):
            active = self._roll(now_ms)
        if self._epochs.latest < 0:
            self.begin_epoch(0)
        self._write(active, batches)
        self._took(active, batches, headers, now_ms)
        base, self.end_offset = self.end_offset, end
        active.next_offset = end
        counters = self.counters
        counters.appended_batches += len(headers)
        counters.appended_records += end - base
        counters.appended_bytes += size
        return LogAppend(base, end, stamp)

    def _assign(self, batches: memoryview, headers: Sequence[BatchHeader], stamp: int) -> int:
        """Gives offsets, leader epoch and time to each batch: the offset after the last."""
        offset = self.end_offset
        epoch = self.leader_epoch
        position = 0
        for header in headers:
            patch_batch(batches, position, offset, epoch)
            header.base_offset = offset
            header.leader_epoch = epoch
            if stamp >= 0:
                stamp_append_time(batches, position, stamp)
                header.max_timestamp = stamp
            offset += header.last_offset_delta + 1
            position += header.size
        if position != len(batches):
            raise TreecastError(Fault.CORRUPT_BATCH, "the headers are not those of the bytes")
        return offset

    def _must_roll(self, active: Segment, size: int, end: int, timestamp: int, now_ms: int) -> bool:
        config = self.config
        if size > config.segment_bytes:
            raise TreecastError(Fault.BATCH_TOO_LARGE, f"{size} bytes are more than a segment holds")
        if active.size == 0:
            return False
        return (
            active.size + size > config.segment_bytes
            or end - active.base_offset > _MAX_RELATIVE
            or active.index_full(config.segment_index_bytes)
            or self._aged(active, timestamp, now_ms)
        )

    def _aged(self, active: Segment, timestamp: int, now_ms: int) -> bool:
        """Whether segment.ms lies between the segment's first batch and this one, by their timestamps (as
        Kafka has it, so that old records do not make a segment each), or since it was made."""
        if active.first_timestamp >= 0 and timestamp >= 0:
            return timestamp - active.first_timestamp > self._segment_ms
        return now_ms - active.created_ms > self._segment_ms

    @property
    def _segment_ms(self) -> int:
        config = self.config
        if config.cleanup_compact:
            return min(config.segment_ms, config.max_compaction_lag_ms)
        return config.segment_ms

    def _write(self, active: Segment, batches: memoryview) -> None:
        """One write; a short one is taken back, so that the file ends where the log does."""
        descriptor = self.shared.pool.descriptor(active.file)
        disk = self.shared.disk
        try:
            if self._torn:
                disk.truncate(descriptor, active.size)
                self._torn = False
            write_all(disk, descriptor, batches, active.size)
        except OSError as error:
            self.counters.write_errors += 1
            self._take_back(descriptor, active.size)
            raise refused(error, f"append to {active.file.path}") from error

    def _take_back(self, descriptor: int, size: int) -> None:
        try:
            self.shared.disk.truncate(descriptor, size)
        except OSError:
            self._torn = True  # before the next append, then

    def _took(
        self, active: Segment, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int
    ) -> None:
        """The batches are in the file: into indexes, producers, and what is to be flushed."""
        if not self._unflushed:
            self._dirty_since_ms = now_ms
            self._unflushed.append(active)
        elif self._unflushed[-1] is not active:
            self._unflushed.append(active)
        interval = self.config.index_interval_bytes
        position = 0
        for header in headers:
            size = header.size
            active.note(header.last_offset, header.max_timestamp, active.size, size, interval)
            active.size += size
            if header.producer_id >= 0:
                entry = apply_batch(self.producers, header, batches, position, now_ms)
                if entry is not None:
                    self._aborted(active, entry)
            position += size
        self._size += position
        self._since_checkpoint += position

    def _aborted(self, active: Segment, entry: AbortedEntry) -> None:
        """Remembers an aborted transaction; recovery finds it in the log again if it is not in the file."""
        active.aborted.append(entry)
        try:
            with open(active.path(".txnindex"), "ab") as file:
                file.write(encode_entry(entry))
        except OSError:
            self.counters.write_errors += 1

    def begin_epoch(self, epoch: int) -> None:
        """This and later appends carry `epoch`, which never falls."""
        if epoch > self._epochs.latest:
            self._epochs.begin(epoch, self.end_offset)
            self._write_epochs()

    def _write_epochs(self) -> None:
        path = f"{self.directory}/{epochs.FILE_NAME}"
        try:
            self.shared.disk.write_file(path, self._epochs.encode(), sync=False)
        except OSError as error:
            self.counters.write_errors += 1
            raise refused(error, f"write {path}") from error

    # --- rolling

    def _roll(self, now_ms: int) -> Segment:
        """A new last segment at the log's end. STORAGE leaves the old one as the last."""
        base = self.end_offset
        old = self._active
        try:
            file = self.shared.pool.create(stem(self.directory, base) + ".log")
        except OSError as error:
            self.counters.write_errors += 1
            raise refused(error, f"roll a segment in {self.directory}") from error
        self._write_snapshot(base)
        old.next_offset = base
        old.seal()
        segment = Segment(self.shared, self.directory, base, file, 0)
        segment.created_ms = now_ms
        self._cursors.clear()
        self._segments.append(segment)
        self._bases.append(base)
        self._active = segment
        self._directory_dirty = True
        self.counters.rolled_segments += 1
        return segment

    def roll(self, now_ms: int) -> None:
        """Begins a new segment unless the last one is empty."""
        if self._active.size:
            self._roll(now_ms)

    def _write_snapshot(self, offset: int) -> None:
        """Where the disk refuses, recovery goes back to an earlier one."""
        try:
            path = stem(self.directory, offset) + ".snapshot"
            self.shared.disk.write_file(path, encode_snapshot(self.producers), sync=False)
        except OSError:
            self.counters.write_errors += 1

    # --- reading

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool
    ) -> tuple[list[Buffer], int]:
        """(chunks, their size): whole batches from the one that holds `offset`, all before `limit_offset`.

        At most `max_bytes`, except that with `at_least_one` the first batch comes however large it is.
        Chunks are bytes or read-only memoryviews that stay valid whatever happens to the log.
        OFFSET_OUT_OF_RANGE below the log's start or beyond its end.
        """
        if offset < self.start_offset or offset > self.end_offset:
            raise self._out_of_range(offset)
        chunks: list[Buffer] = []
        total = 0
        limit_offset = min(limit_offset, self.end_offset)
        number = self._segment_number(offset)
        while offset < limit_offset:
            segment = self._segments[number]
            start = self._cursors.get(offset, -1)
            if start < 0:
                start = segment.locate(offset)
            bound = segment.size if limit_offset >= segment.next_offset else segment.locate(limit_offset)
            end = start
            if start < bound:
                end = segment.end_within(
                    start, max_bytes - total, bound, at_least_one=at_least_one and total == 0
                )
            if end > start:
                segment.read(start, end, chunks)
                total += end - start
            if end < bound or number + 1 == len(self._segments):
                self._remember(segment, end)
                break
            number += 1
            offset = segment.next_offset
        self.counters.read_bytes += total
        return chunks, total

    def _remember(self, segment: Segment, position: int) -> None:
        """The next read of the same consumer begins here."""
        if position == segment.size and segment is self._active:
            if len(self._cursors) >= _CURSORS:
                self._cursors.clear()
            self._cursors[self.end_offset] = position

    def _segment_number(self, offset: int) -> int:
        if offset >= self._active.base_offset:
            return len(self._segments) - 1
        return max(bisect_right(self._bases, offset) - 1, 0)

    def _out_of_range(self, offset: int) -> TreecastError:
        return TreecastError(
            Fault.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is outside {self.start_offset} to {self.end_offset}",
        )

    def offset_for_time(self, timestamp: int, limit_offset: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record at or after `timestamp`, or None."""
        return first_at_or_after(self._segments, timestamp, self.start_offset, limit_offset)

    def max_timestamp_offset(self) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the record with the largest timestamp, or None."""
        return latest_timestamp(self._segments, self.start_offset)

    def aborted_between(self, first: int, limit: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that a reader of `first` to `limit`
        has to leave out."""
        found: list[tuple[int, int]] = []
        for segment in self._segments[self._segment_number(first) :]:
            for entry in segment.aborted:
                if entry.last_offset >= first and entry.first_offset < limit:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.stable_offset >= limit:
                    return found
        return found

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(the largest epoch up to `epoch`, its end offset), or (-1, -1)."""
        return self._epochs.end_of(epoch, self.end_offset)

    # --- flushing

    @property
    def flush_needed(self) -> bool:
        """Whether an acknowledgement has to wait for a flush: fsync per batch, or flush.messages."""
        if self.flushed_offset >= self.end_offset:
            return False
        if self.settings.fsync is FsyncPolicy.BATCH:
            return True
        return self.end_offset - self.flushed_offset >= self.config.flush_messages

    def flush_due(self, now_ms: int) -> bool:
        """Whether a flush in the background is due: the interval, flush.ms, or rolled segments."""
        if not self._unflushed or self._failed:
            return False
        age = self.config.flush_ms
        if self.settings.fsync is FsyncPolicy.INTERVAL:
            age = min(age, self.settings.fsync_interval_ms)
        return now_ms - self._dirty_since_ms >= age or len(self._unflushed) > 1

    def begin_flush(self, now_ms: int, *, checkpoint: bool = False) -> FlushTicket | None:
        """What to force to the disk, or None. The ticket must come back to `end_flush`; one at a time.

        A checkpoint is added after `checkpoint_bytes`, or when asked for.
        """
        if self._failed:
            raise TreecastError(Fault.STORAGE, self._failed)
        if not self._unflushed and not self._directory_dirty and not checkpoint:
            return None
        ticket = FlushTicket(self, self.end_offset)
        self._dirty_since_ms = now_ms
        ticket.segments = [(segment, segment.size) for segment in self._unflushed]
        ticket.bytes = self._since_checkpoint
        if checkpoint or self._since_checkpoint >= self.settings.checkpoint_bytes:
            self._add_checkpoint(ticket)
        if self._directory_dirty:
            ticket.directory = self.directory
            self._directory_dirty = False
        for segment, _ in ticket.segments:
            ticket.files.append((segment.file, self.shared.pool.pin(segment.file)))
            if segment.aborted:
                ticket.also.append(segment.path(".txnindex"))
        return ticket

    def _add_checkpoint(self, ticket: FlushTicket) -> None:
        active = self._active
        active.index_time()
        ticket.checkpoint = Checkpoint(
            self.start_offset,
            self.cleaned_offset,
            self.end_offset,
            active.base_offset,
            active.size,
            len(active.offsets),
            len(active.times),
        )
        snapshot = stem(self.directory, self.end_offset) + ".snapshot"
        for path, data in (
            (active.path(".index"), bytes(active.offsets.data)),
            (active.path(".timeindex"), bytes(active.times.data)),
            (snapshot, encode_snapshot(self.producers)),
        ):
            ticket.parts.append((path + ".checkpoint", path, data))

    def end_flush(self, ticket: FlushTicket, error: OSError | None) -> None:
        """Takes over what `ticket.run` did. After an error nothing more is appended until the log is opened
        anew: the kernel may have dropped the pages that it could not write, so another fsync would lie.
        """
        for file, _ in ticket.files:
            self.shared.pool.unpin(file)
        if error is not None:
            self.counters.write_errors += 1
            self._failed = f"cannot flush {self.directory}: {error.strerror or error}"
            raise refused(error, f"flush {self.directory}") from error
        self.counters.fsyncs += len(ticket.files)
        self.flushed_offset = max(self.flushed_offset, ticket.offset)
        done = {segment.file.serial for segment, size in ticket.segments if segment.size == size}
        self._unflushed = [segment for segment in self._unflushed if segment.file.serial not in done]
        if ticket.checkpoint is not None:
            self._take_checkpoint(ticket, ticket.checkpoint)

    def _take_checkpoint(self, ticket: FlushTicket, checkpoint: Checkpoint) -> None:
        """The parts get their names, but for the indexes of a segment that was sealed meanwhile."""
        disk = self.shared.disk
        try:
            for temporary, path, _ in ticket.parts:
                if path.endswith(".snapshot") or checkpoint.segment == self._active.base_offset:
                    disk.rename(temporary, path)
                else:
                    disk.unlink(temporary)
            self._checkpoint = checkpoint
            self._checkpointed = True
            self._since_checkpoint -= ticket.bytes
            self.write_checkpoint()
        except OSError as error:
            self.counters.write_errors += 1
            raise refused(error, f"write a checkpoint in {self.directory}") from error
        recovery.drop_snapshots(self.directory, self._bases, ticket.offset, disk)

    def flush(self, now_ms: int, *, checkpoint: bool = False) -> None:
        """Forces everything to the disk at once, on the calling thread."""
        ticket = self.begin_flush(now_ms, checkpoint=checkpoint)
        if ticket is None:
            return
        try:
            ticket.run()
        except OSError as error:
            self.end_flush(ticket, error)
        else:
            self.end_flush(ticket, None)

    def write_checkpoint(self) -> None:
        """Writes what recovery may trust, with the log's present start and cleaned offset."""
        trusted = self._checkpoint
        self._checkpoint = replace(trusted, start=self.start_offset, cleaned=self.cleaned_offset)
        path = f"{self.directory}/{FILE_NAME}"
        try:
            self.shared.disk.write_file(path, self._checkpoint.encode(), sync=False)
        except OSError as error:
            self.counters.write_errors += 1
            raise refused(error, f"write {path}") from error

    # --- leaving

    def close(self, now_ms: int = 0) -> None:
        """Flushes all, writes a checkpoint that covers the whole log, and lets go of the files."""
        try:
            if not self._failed and not self._covered():
                self.flush(now_ms, checkpoint=True)
            self.remove_doomed()
        finally:
            for segment in self._segments:
                segment.close()

    def _covered(self) -> bool:
        """Whether the checkpoint on disk covers the whole log."""
        found, active = self._checkpoint, self._active
        return (
            self._checkpointed
            and not self._unflushed
            and (found.start, found.cleaned) == (self.start_offset, self.cleaned_offset)
            and (found.segment, found.position) == (active.base_offset, active.size)
        )

    def remove_doomed(self) -> None:
        """Unlinks the files of deleted segments (a large file takes its time)."""
        doomed, self.doomed = self.doomed, []
        for path in doomed:
            self.shared.disk.unlink(path)

    def first_header(self, segment: Segment) -> BatchHeader | None:
        """The header of a segment's first batch."""
        if segment.size == 0:
            return None
        chunks: list[Buffer] = []
        segment.read(0, min(segment.size, 61), chunks)
        return read_header(chunks[0], 0)
