"""Writing to one log: own batches, a leader's batches, new segments, and leader epochs.

An append is one write. If it is refused, bytes that reached the file are removed, so that the file ends where
the log does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.wire.record_batch import MAGIC, BatchHeader, patch_batch, stamp_append_time

from . import epochs
from .aborted import AbortedEntry, encode_entry
from .disk import refused, write_rest
from .durability import Durability
from .index import OFFSET_ENTRY, TIME_ENTRY
from .replay import apply_batch, read_marker
from .segment import Segment, stem
from .segments import SegmentList
from .snapshot import encode_snapshot

if TYPE_CHECKING:
    from .log import PartitionLog

_MAX_RELATIVE: Final = 2**31 - 1  # of an index entry's offset


class LogAppend:
    """The result of an append: its first offset, its end, and the time stamped on it (-1: CreateTime)."""

    def __init__(self, base_offset: int, next_offset: int, log_append_time: int) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.log_append_time = log_append_time


class LogWriter:
    """Writes to the segments of the open `log`, and keeps its leader epochs."""

    def __init__(
        self,
        log: PartitionLog,
        held: SegmentList,
        durability: Durability,
        leader_epochs: epochs.LeaderEpochs,
        *,
        epochs_dirty: bool,
    ) -> None:
        """`epochs_dirty`: `leader_epochs` has an epoch that is not in the file."""
        self._held = held
        self._durability = durability
        self.epochs = leader_epochs
        self.epochs_dirty = epochs_dirty
        self._log = log
        self._torn = False  # the file is longer than the log

    # --- appending

    def append(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> LogAppend:
        """Implements `PartitionLog.append`."""
        log = self._log
        size = len(batches)
        stamp = now_ms if log.config.log_append_time else -1
        end = self._assign(batches, headers, stamp)
        active = self._held.active
        if self._must_roll(active, size, end, headers[-1].max_timestamp, now_ms):
            active = self.roll(now_ms)
        if self.epochs.latest < 0:
            self.begin_epoch(0)
        if self.epochs_dirty:
            # Before the batch: below the checkpoint, recovery knows epochs from this file alone.
            self.write_epochs()
        self._write(active, batches)
        self._took(active, batches, headers, now_ms)
        base, log.end_offset = log.end_offset, end
        active.next_offset = end
        counters = log.counters
        counters.appended_batches += len(headers)
        counters.appended_records += end - base
        counters.appended_bytes += size
        return LogAppend(base, end, stamp)

    def _assign(self, batches: memoryview, headers: Sequence[BatchHeader], stamp: int) -> int:
        """Gives offsets, leader epoch and time to each batch. Returns the offset after the last one."""
        offset = self._log.end_offset
        epoch = max(self.epochs.latest, 0)
        position = 0
        for header in headers:
            patch_batch(batches, position, offset, epoch)
            header.base_offset = offset
            header.leader_epoch = epoch
            if header.control:
                read_marker(batches, position, header)  # must be readable before it is stored
            if stamp >= 0:
                stamp_append_time(batches, position, stamp)
                header.max_timestamp = stamp
            offset += header.last_offset_delta + 1
            position += header.size
        if position != len(batches):
            raise TreecastError(Fault.CORRUPT_BATCH, "the headers are not those of the bytes")
        return offset

    def _must_roll(self, active: Segment, size: int, end: int, timestamp: int, now_ms: int) -> bool:
        config = self._log.config
        if size > config.segment_bytes:
            raise TreecastError(Fault.BATCH_TOO_LARGE, f"{size} bytes do not fit into a segment")
        if active.size == 0:
            return False
        return (
            active.size + size > config.segment_bytes
            or end - active.base_offset > _MAX_RELATIVE
            or self._is_over(active, timestamp, now_ms)
        )

    def _is_over(self, active: Segment, timestamp: int, now_ms: int) -> bool:
        """Returns whether an index may lack room for one more entry and the last one, or segment.ms separates
        the segment's first batch from this one, by their timestamps (as in Kafka, so that old records do not
        each start a segment), or has passed since the segment was created.
        """
        config = self._log.config
        indexes, most = active.loaded or active.indexes, config.segment_index_bytes
        offsets, times = len(indexes.offsets.data), len(indexes.times.data)
        if offsets + OFFSET_ENTRY > most or times + 2 * TIME_ENTRY > most:
            return True
        if active.first_timestamp >= 0 and timestamp >= 0:
            return timestamp - active.first_timestamp > config.rolled_after_ms
        return now_ms - active.created_ms > config.rolled_after_ms

    def _write(self, active: Segment, batches: memoryview) -> None:
        """Writes once; a short write is taken back, so that the file ends where the log does."""
        shared, file = self._log.shared, active.file
        file.used = True  # as `FilePool.descriptor`, in place
        descriptor = file.descriptor if file.descriptor >= 0 else shared.pool.descriptor(file)
        disk = shared.disk
        try:
            if self._torn:
                disk.truncate(descriptor, active.size)
                self._torn = False
            written: int = disk.write(descriptor, batches, active.size)
            if written < len(batches):
                write_rest(disk, descriptor, batches, active.size, written)
        except OSError as error:
            self._log.counters.write_errors += 1
            self._take_back(descriptor, active.size)
            raise refused(error, f"append to {active.file.path}") from error

    def _take_back(self, descriptor: int, size: int) -> None:
        try:
            self._log.shared.disk.truncate(descriptor, size)
        except OSError:
            self._torn = True  # retried before the next append

    def _took(
        self, active: Segment, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int
    ) -> None:
        """Enters the written batches into indexes, producers and the flush state."""
        log, indexes = self._log, active.loaded or active.indexes
        interval = log.config.index_interval_bytes
        position = 0
        if not active.size:
            active.first_timestamp = headers[0].max_timestamp
        for header in headers:
            size = header.size
            last = header.base_offset + header.last_offset_delta
            if header.max_timestamp > indexes.max_timestamp:
                indexes.max_timestamp, indexes.max_timestamp_offset = header.max_timestamp, last
            if indexes.unindexed > interval:
                indexes.add_entries(last, active.size, size)
            indexes.unindexed += size
            indexes.after = last + 1
            active.size += size
            if header.producer_id >= 0:
                entry = apply_batch(log.producers, header, batches, position, now_ms)
                if entry is not None:
                    self._aborted(active, entry)
            position += size
        self._held.size += position
        durability = self._durability
        if durability.unflushed and durability.unflushed[-1] is active:
            durability.since_checkpoint += position
            durability.written_ms = now_ms
        else:
            durability.wrote(active, position, now_ms)

    def _aborted(self, active: Segment, entry: AbortedEntry) -> None:
        """Records an aborted transaction. If the file lacks it, recovery finds it in the log."""
        active.aborted.append(entry)
        try:
            with open(active.path(".txnindex"), "ab") as file:
                file.write(encode_entry(entry))
        except OSError:
            self._log.counters.write_errors += 1

    # --- following another host's log (see `replicate`)

    def append_replicated(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> int:
        """Implements `PartitionLog.append_replicated` for batches whose order was checked."""
        log = self._log
        position = number = 0
        while number < len(headers):
            active = self._room_for(headers[number], now_ms)
            count = fitting(active, headers, number, log.config.segment_bytes)
            some = headers[number : number + count]
            size = sum(header.size for header in some)
            self._append_as_is(active, batches[position : position + size], some, now_ms)
            position += size
            number += count
        return log.end_offset

    def _room_for(self, header: BatchHeader, now_ms: int) -> Segment:
        """Returns the segment for the batch: the last one, or a new one."""
        log = self._log
        active = self._held.active
        if header.next_offset - active.base_offset > _MAX_RELATIVE:
            log.end_offset = header.base_offset  # the gap in offsets is too large for an index entry
            return self.roll(now_ms)
        if active.size and (
            active.size + header.size > log.config.segment_bytes
            or self._is_over(active, header.max_timestamp, now_ms)
        ):
            return self.roll(now_ms)
        return active

    def _append_as_is(
        self, active: Segment, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int
    ) -> None:
        for header in headers:
            if header.leader_epoch > self.epochs.latest:
                self.epochs.begin(header.leader_epoch, header.base_offset)
                self.epochs_dirty = True
        if self.epochs_dirty:
            self.write_epochs()
        self._write(active, batches)
        self._took(active, batches, headers, now_ms)
        log, counters = self._log, self._log.counters
        counters.appended_batches += len(headers)
        counters.appended_records += headers[-1].next_offset - log.end_offset
        counters.appended_bytes += len(batches)
        log.end_offset = active.next_offset = headers[-1].next_offset

    def cut(self) -> None:
        """Adapts to a new last segment, whose file ends where the log does."""
        self._torn = False

    # --- leader epochs

    def begin_epoch(self, epoch: int) -> None:
        """Implements `PartitionLog.begin_epoch`."""
        if epoch > self.epochs.latest:
            self.epochs.begin(epoch, self._log.end_offset)
            self.epochs_dirty = True

    def cut_epochs(self, end_offset: int) -> None:
        """Ends leader epochs at `end_offset` (-1: no epoch is known)."""
        self.epochs.truncate_end(end_offset)
        self.write_epochs()

    def write_epochs(self) -> None:
        """Writes the epochs to their file. Raises STORAGE if the disk refuses."""
        path = f"{self._log.directory}/{epochs.FILE_NAME}"
        try:
            self._log.shared.disk.write_file(path, self.epochs.encode(), sync=False)
        except OSError as error:
            self._log.counters.write_errors += 1
            raise refused(error, f"write {path}") from error
        self.epochs_dirty = False
        self._durability.epochs_dirty = True

    # --- segments

    def roll(self, now_ms: int) -> Segment:
        """Returns a new last segment at the log's end. Raises STORAGE, and then keeps the old one as the
        last.
        """
        log = self._log
        base = log.end_offset
        old = log.held.active
        try:
            # The new one first: if the disk refuses it, the old one stays open.
            segment = self.begin_segment(base, now_ms)
        except OSError as error:
            log.counters.write_errors += 1
            raise refused(error, f"roll a segment in {log.directory}") from error
        self.write_snapshot(base)
        old.next_offset = base
        old.seal()
        log.counters.rolled_segments += 1
        return segment

    def begin_segment(self, base: int, now_ms: int) -> Segment:
        """Returns a new, empty last segment. Raises OSError if the disk refuses."""
        log = self._log
        file = log.shared.pool.create(stem(log.directory, base) + ".log")
        segment = Segment(log.shared, log.directory, base, file, 0)
        segment.created_ms = now_ms
        log.held.begin(segment)
        log.durability.directory_dirty = True
        return segment

    def write_snapshot(self, offset: int) -> bool:
        """Writes the present producers for recovery to start with at `offset`; returns whether that worked.
        `offset` may lie before the log's end: known batches change nothing. If the disk refuses, recovery
        uses an earlier snapshot.
        """
        log = self._log
        try:
            path = stem(log.directory, offset) + ".snapshot"
            log.shared.disk.write_file(path, encode_snapshot(log.producers), sync=False)
        except OSError:
            log.counters.write_errors += 1
            return False
        return True


def check_order(batches: memoryview, headers: Sequence[BatchHeader], end_offset: int) -> None:
    """Raises CORRUPT_BATCH unless the headers are those of `batches` and their offsets grow from
    `end_offset`.
    """
    size = 0
    expected = end_offset
    for header in headers:
        if header.base_offset < expected or header.last_offset_delta < 0 or header.magic != MAGIC:
            raise TreecastError(
                Fault.CORRUPT_BATCH, f"a batch at offset {header.base_offset} cannot follow {expected}"
            )
        expected = header.next_offset
        size += header.size
    if size != len(batches):
        raise TreecastError(Fault.CORRUPT_BATCH, "the headers are not those of the bytes")


def fitting(segment: Segment, headers: Sequence[BatchHeader], first: int, segment_bytes: int) -> int:
    """Returns how many of `headers`, from `first` on, the segment can take; at least one if it is empty."""
    size = segment.size
    limit = segment.base_offset + _MAX_RELATIVE
    count = 0
    while first + count < len(headers):
        header = headers[first + count]
        size += header.size
        if size > segment_bytes and segment.size + count > 0:
            break
        if header.next_offset > limit:
            break
        count += 1
    return count
