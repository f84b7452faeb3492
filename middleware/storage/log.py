"""The log of one partition: segments of whole record batches, appended at the end, read from anywhere.

Batches stay the bytes that came: only base offset and leader epoch are patched in place, and the timestamp
where the topic says LogAppendTime. Nothing here waits or starts threads (`flusher` does): every call is
made on the loop, and what takes time is split into a part that prepares, a part that a thread may run
(`durability.FlushTicket.run`), and a part that takes over the result.

Files in the partition's directory, Kafka's names and formats: `<base offset, 20 digits>.log .index
.timeindex .txnindex .snapshot`, `leader-epoch-checkpoint`; and our own `treecast-checkpoint`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.counters import StorageCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.record_batch import BatchHeader, patch_batch, stamp_append_time

from . import epochs, recovery, replicate, swap
from .aborted import AbortedEntry, encode_entry
from .control import read_marker
from .disk import refused, write_rest
from .durability import Durability
from .lookup import first_at_or_after, latest_timestamp
from .producers import ProducerStates
from .replay import apply_batch
from .retention import expired_segments
from .segment import Segment, SharedFiles, stem
from .segments import SegmentList
from .settings import LogSettings
from .snapshot import encode_snapshot

_MAX_RELATIVE: Final = 2**31 - 1


class LogAppend:
    """Where an append went: its first offset, its end, and the time stamped on it (-1: CreateTime)."""

    def __init__(self, base_offset: int, next_offset: int, log_append_time: int) -> None:
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.log_append_time = log_append_time


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
        claim: Callable[[], None] | None = None,
    ) -> None:
        """`claim`: there is nothing on the disk yet; it is called when the directory was made."""
        self.directory = directory
        self.config = config
        self.settings = settings
        self.counters = counters
        self.shared = shared
        self.report = recovered.report
        self.producers: ProducerStates = recovered.producers
        self.start_offset: int = recovered.checkpoint.start
        self.end_offset: int = recovered.end_offset
        self.cleaned_offset: int = recovered.checkpoint.cleaned
        self.closed = False
        self._claim = claim
        created = recovered.created and not recovered.report.checked_batches
        self.made = created or claim is not None  # there was no log before
        self.doomed: list[str] = []  # files of deleted segments, for `remove_doomed`
        self.held = SegmentList(recovered.segments)
        self.durability = Durability(self, recovered)
        self._epochs = recovered.epochs
        self._torn = False
        self._epochs_dirty = False  # an epoch began that nothing was written in

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

        `shared` is the daemon's; without it the log has its own. STORAGE where the disk refuses.
        `claim`: nothing is on the disk, and nothing is made, until something has to be written. Then the
        directory is made, `claim` called, and the first file made. An empty partition costs no files so.
        """
        shared = shared or SharedFiles()
        if claim is not None:
            unwritten = recovery.unwritten(str(directory), shared, now_ms)
            return cls(str(directory), config, settings, counters, shared, unwritten, claim)
        try:
            if not os.path.isdir(directory):
                os.makedirs(directory, exist_ok=True)
            recovered = recovery.recover(str(directory), config, shared, now_ms)
        except OSError as error:
            raise refused(error, f"open the log {directory}") from error
        counters.truncated_bytes += recovered.report.truncated_bytes
        return cls(str(directory), config, settings, counters, shared, recovered)

    def make_files(self) -> None:
        """Makes the directory of an unwritten log now. STORAGE where the disk refuses: nothing was made."""
        claim = self._claim
        if claim is None:
            return
        try:
            recovery.make_first(self.directory, self.held.active, claim)
        except OSError as error:
            self.counters.write_errors += 1
            raise refused(error, f"make the log {self.directory}") from error
        self._claim = None
        self.durability.directory_dirty = self.durability.parent_dirty = True

    # --- what is known of it

    @property
    def has_files(self) -> bool:
        """Whether anything of it is on the disk."""
        return self._claim is None

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
        return self.held.size

    @property
    def segment_count(self) -> int:
        return len(self.held.all)

    # --- appending

    def append(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> LogAppend:
        """Appends whole batches with one write; `batches` is patched in place and not kept.

        The headers are those of `batches` in order and get their offsets. Producers' sequences are not
        checked here (`producers.check` comes first). Raises BATCH_TOO_LARGE for more than a segment
        holds, STORAGE where the disk refuses; the log is as before then, and takes appends again when
        the disk does.
        """
        if self.durability.failed:
            raise TreecastError(Fault.STORAGE, self.durability.failed)
        size = len(batches)
        if not headers:
            raise TreecastError(Fault.CORRUPT_BATCH, "there is no batch to append")
        if self._claim is not None:
            self.make_files()
        stamp = now_ms if self.config.log_append_time else -1
        end = self._assign(batches, headers, stamp)
        active = self.held.active
        if self._must_roll(active, size, end, headers[-1].max_timestamp, now_ms):
            active = self._roll(now_ms)
        if self._epochs.latest < 0:
            self.begin_epoch(0)
        if self._epochs_dirty:
            self._write_epochs()
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
        config = self.config
        if size > config.segment_bytes:
            raise TreecastError(Fault.BATCH_TOO_LARGE, f"{size} bytes are more than a segment holds")
        if active.size == 0:
            return False
        return (
            active.size + size > config.segment_bytes
            or end - active.base_offset > _MAX_RELATIVE
            or active.indexes.full(config.segment_index_bytes)
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
            written: int = disk.write(descriptor, batches, active.size)
            if written < len(batches):
                write_rest(disk, descriptor, batches, active.size, written)
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
        self.held.size += position
        self.durability.wrote(active, position, now_ms)

    def _aborted(self, active: Segment, entry: AbortedEntry) -> None:
        """Remembers an aborted transaction; recovery finds it in the log again if it is not in the file."""
        active.aborted.append(entry)
        try:
            with open(active.path(".txnindex"), "ab") as file:
                file.write(encode_entry(entry))
        except OSError:
            self.counters.write_errors += 1

    def begin_epoch(self, epoch: int) -> None:
        """This and later appends carry `epoch`, which never falls. The first of them writes it down."""
        if epoch > self._epochs.latest:
            self._epochs.begin(epoch, self.end_offset)
            self._epochs_dirty = True

    @property
    def epoch_entries(self) -> list[tuple[int, int]]:
        """(leader epoch, its first offset), oldest first."""
        return list(self._epochs.entries)

    def _write_epochs(self) -> None:
        path = f"{self.directory}/{epochs.FILE_NAME}"
        try:
            self.shared.disk.write_file(path, self._epochs.encode(), sync=False)
        except OSError as error:
            self.counters.write_errors += 1
            raise refused(error, f"write {path}") from error
        self._epochs_dirty = False

    # --- following another host's log (see `replicate`)

    def append_replicated(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> int:
        """Appends batches as their leader has them, with their offsets, epochs and times; the log's end.

        Offsets grow from the log's end on, and may leave some out. The bytes are not changed and not kept.
        CORRUPT_BATCH, and nothing appended, where they cannot follow; STORAGE where the disk refuses: what
        was appended before that counts.
        """
        if self.durability.failed:
            raise TreecastError(Fault.STORAGE, self.durability.failed)
        replicate.check_order(batches, headers, self.end_offset)
        if self._claim is not None:
            self.make_files()
        position = number = 0
        while number < len(headers):
            active = self._room_for(headers[number], now_ms)
            count = replicate.fitting(active, headers, number, self.config.segment_bytes)
            some = headers[number : number + count]
            size = sum(header.size for header in some)
            self._append_as_is(active, batches[position : position + size], some, now_ms)
            position += size
            number += count
        return self.end_offset

    def _room_for(self, header: BatchHeader, now_ms: int) -> Segment:
        """The segment that takes the batch: the last one, or a new one."""
        active = self.held.active
        if header.next_offset - active.base_offset > _MAX_RELATIVE:
            self.end_offset = header.base_offset  # so many offsets are left out that no index could tell
            return self._roll(now_ms)
        if active.size and (
            active.size + header.size > self.config.segment_bytes
            or active.indexes.full(self.config.segment_index_bytes)
            or self._aged(active, header.max_timestamp, now_ms)
        ):
            return self._roll(now_ms)
        return active

    def _append_as_is(
        self, active: Segment, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int
    ) -> None:
        for header in headers:
            if header.leader_epoch > self._epochs.latest:
                self._epochs.begin(header.leader_epoch, header.base_offset)
                self._epochs_dirty = True
        if self._epochs_dirty:
            self._write_epochs()
        self._write(active, batches)
        self._took(active, batches, headers, now_ms)
        counters = self.counters
        counters.appended_batches += len(headers)
        counters.appended_records += headers[-1].next_offset - self.end_offset
        counters.appended_bytes += len(batches)
        self.end_offset = active.next_offset = headers[-1].next_offset

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Takes back all from `offset` on, as the leader does not have it; answers the log's new end.

        That is `offset`, or where the batch begins that holds it: batches are never cut. Producers are
        again what they were there. STORAGE: nothing more is appended until the log is opened anew.
        """
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
        self.make_files()
        replicate.restart(self, offset, now_ms)

    def advance_start(self, offset: int, now_ms: int) -> None:
        """The leader's log begins at `offset`: so does this one, if it begins before."""
        if offset > self.end_offset:
            self.restart_at(offset, now_ms)
        elif offset > self.start_offset:
            self._start_at(offset)

    def forget(self, segment: Segment) -> None:
        """`segment` is no part of the log any more; its files are its forgetter's to remove."""
        self.held.forget(segment)
        self.durability.left(segment)
        segment.close()

    def begin_segment(self, base: int, now_ms: int) -> None:
        """A new, empty segment of a log that has none. OSError where the disk refuses."""
        self._begin(base, now_ms)
        self.end_offset = base

    def _begin(self, base: int, now_ms: int) -> Segment:
        file = self.shared.pool.create(stem(self.directory, base) + ".log")
        segment = Segment(self.shared, self.directory, base, file, 0)
        segment.created_ms = now_ms
        self.held.begin(segment)
        self.durability.directory_dirty = True
        return segment

    def take_cut(self, old: Segment, cut: Segment, end_offset: int) -> None:
        """`cut`, what is left of `old`, is the last segment, and the log ends at `end_offset`."""
        self.held.replace([old], cut)
        self.end_offset = end_offset
        self._torn = False
        self.durability.left(old)
        self.durability.must_flush(cut)

    def set_producers(self, producers: ProducerStates) -> None:
        self.producers = producers

    def cut_epochs(self, end_offset: int) -> None:
        """Leader epochs end at `end_offset` (-1: nothing is known of any)."""
        self._epochs.truncate_end(end_offset)
        self._write_epochs()

    # --- rolling

    def _roll(self, now_ms: int) -> Segment:
        """A new last segment at the log's end. STORAGE leaves the old one as the last."""
        base = self.end_offset
        old = self.held.active
        try:
            segment = self._begin(base, now_ms)
        except OSError as error:
            self.counters.write_errors += 1
            raise refused(error, f"roll a segment in {self.directory}") from error
        self._write_snapshot(base)
        old.next_offset = base
        old.seal()
        self.counters.rolled_segments += 1
        return segment

    def roll(self, now_ms: int) -> None:
        """Begins a new segment unless the last one is empty."""
        if self.active.size:
            self._roll(now_ms)

    def _write_snapshot(self, offset: int) -> bool:
        """The producers as they are now, for recovery to begin with at `offset`, which may lie before the
        log's end: batches that they know of already change nothing. Where the disk refuses, recovery goes
        back to an earlier snapshot."""
        try:
            path = stem(self.directory, offset) + ".snapshot"
            self.shared.disk.write_file(path, encode_snapshot(self.producers), sync=False)
        except OSError:
            self.counters.write_errors += 1
            return False
        return True

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
        if offset < self.start_offset or offset > self.end_offset:
            raise self._out_of_range(offset)
        limit_offset = min(limit_offset, self.end_offset)
        chunks, size = self.held.read(offset, max_bytes, limit_offset, at_least_one=at_least_one)
        self.counters.read_bytes += size
        return chunks, size

    def read_elsewhere(self, size: int) -> None:
        """Somebody was given the last `size` bytes from memory: the next read begins at the end."""
        self.counters.read_bytes += size
        self.held.at_end(self.end_offset)

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
        return self._epochs.end_of(epoch, self.end_offset)

    # --- flushing (see `durability`; `flusher` does it beside the loop)

    @property
    def flushed_offset(self) -> int:
        """All before it has been forced to the disk."""
        return self.durability.flushed_offset

    @property
    def flush_needed(self) -> bool:
        """Whether an acknowledgement has to wait for a flush: fsync per batch, or flush.messages."""
        return self.durability.needed()

    def flush(self, now_ms: int, *, checkpoint: bool = False) -> None:
        """Forces everything to the disk at once, on the calling thread. STORAGE where it refuses."""
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
        offset = self.end_offset if offset == -1 else offset
        if not 0 <= offset <= self.end_offset:
            raise self._out_of_range(offset)
        if offset > self.start_offset:
            self._start_at(offset)
        return self.start_offset

    def _start_at(self, offset: int) -> None:
        before, self.start_offset = self.start_offset, offset
        try:
            self.durability.write_checkpoint()
        except TreecastError:
            self.start_offset = before
            raise
        self._epochs.truncate_start(offset)

    def clean(self, now_ms: int) -> int:
        """Housekeeping: rolls a segment whose time is over, forgets idle producers, deletes segments by
        age, size and log start. How many were deleted; `remove_doomed` unlinks their files.
        """
        if self._claim is not None:
            return 0
        self.producers.expire(now_ms, self.settings.producer_expiration_ms)
        active = self.held.active
        if active.size and now_ms - active.created_ms > self._segment_ms:
            self._roll(now_ms)
        count = expired_segments(self.segments, self.config, self.start_offset, self.end_offset, now_ms)
        if count == len(self.segments):
            self._roll(now_ms)
        if count:
            self._remove_oldest(count)
        return count

    def _remove_oldest(self, count: int) -> None:
        """Takes segments out of the log; readers keep what they hold of them."""
        base = self.segments[count].base_offset
        known = self.durability.knows_producers(base) or self._write_snapshot(base)
        try:
            for segment in self.segments[:count]:
                self.doomed.append(swap.remove_segment(self.directory, segment.base_offset, self.shared.disk))
                self.forget(segment)
                self.counters.deleted_segments += 1
        except OSError as error:
            self.counters.write_errors += 1
            raise refused(error, f"delete a segment in {self.directory}") from error
        finally:
            self.start_offset = max(self.start_offset, self.bases[0])
            self.cleaned_offset = max(self.cleaned_offset, self.start_offset)
            self._epochs.truncate_start(self.start_offset)
        if not known:
            self._write_snapshot(base)  # there was no room, perhaps there is now
        self.durability.drop_snapshots()

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
        """Flushes all, writes a checkpoint that covers the whole log, and lets go of the files."""
        if self.closed:
            return
        try:
            if not self.durability.failed and not self.durability.covered():
                self.flush(now_ms, checkpoint=True)
            if self._epochs_dirty and self._claim is None:
                self._write_epochs()
            self.remove_doomed()
        finally:
            self.delete()

    def delete(self) -> None:
        """Lets go of all files as they are; the directory is the owner's to remove."""
        self.closed = True
        for segment in self.segments:
            segment.close()
