"""Opening of a log: trusts the checkpointed part, checks the rest, and repairs what a crash left.

The part that the checkpoint covers was forced to the disk and is trusted: it is not read again, and damage
there (a rotten block, say) deletes nothing; readers get the bytes and see the wrong CRC. After the
checkpoint, every batch is checked: it must lie inside the file, have magic 2 and a plausible length, offsets
that grow and stay below the next segment's, and the right CRC-32C. The log is cut off at the first batch that
fails: the rest of that segment and all later segments are removed and counted in
`RecoveryReport.truncated_bytes`.

After a kill that is at most one torn append that was never acknowledged, as the kernel keeps what was
written. After a power failure it may be more, up to what the fsync policy left unflushed. Valid batches
behind a broken one are then removed as well, as in Kafka, because that would leave holes between offsets.

After a flush that failed, `treecast-unforced` lies in the directory until one succeeds. Whoever opens the log
then, while the kernel lives on, writes what follows the checkpoint again: the kernel reports a failed write
once, and would take its pages for clean.

A log without a usable checkpoint is checked from its beginning. Missing or damaged indexes are rebuilt.
Producers come from the newest usable snapshot and the batches after it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.record_batch import BatchHeader

from . import epochs, swap
from .checkpoint import FILE_NAME, Checkpoint
from .disk import Disk, write_all
from .epochs import LeaderEpochs
from .index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, SegmentIndexes, TimeIndex
from .producers import ProducerStates
from .replay import apply_batch
from .scan import WHOLE_BLOCK, BatchScanner, plausible, read_fully
from .segment import Segment, SharedFiles, stem
from .snapshot import decode_snapshot
from .summary import LogSummary

UNFORCED_FILE: Final = "treecast-unforced"  # the mark of a flush that failed
_DIGITS = 20


class RecoveryReport(Struct):
    """Findings and repairs of an opening. `reason` states why the log was cut off, "" if it was not."""

    checked_batches: int = 0
    checked_bytes: int = 0
    truncated_bytes: int = 0
    truncated_at: int = -1  # the log's end offset after truncation
    reason: str = ""
    dropped_segments: int = 0
    rebuilt_indexes: int = 0
    removed_leftovers: int = 0


class Recovered(Struct):
    """The parts of an opened log."""

    segments: list[Segment]
    producers: ProducerStates
    epochs: LeaderEpochs
    checkpoint: Checkpoint
    end_offset: int
    unflushed: list[Segment] = []
    created: bool = False
    checkpointed: bool = False  # `checkpoint` is the one on disk
    disk_segment: int = 0  # base offset of the segment that the checkpoint on disk lies in; 0 without one
    since_checkpoint: int = 0  # bytes between both checkpoints
    epochs_dirty: bool = False  # not all epochs are in the file
    rested: bool = False  # opened from its summary
    marked: bool = False  # an earlier process could not flush it
    report: RecoveryReport = field(default_factory=RecoveryReport)


def recover(
    directory: str, config: TopicConfig, shared: SharedFiles, now_ms: int, summary: LogSummary | None = None
) -> Recovered:
    """Opens the log in `directory`. Raises OSError if the disk refuses.

    `summary` was written when the log was left. It takes precedence over the checkpoint and the file of
    epochs as long as the last segment has the length that it states.
    """
    report = RecoveryReport()
    names = swap.tidy(directory, shared.disk, report)
    on_disk = checkpoint = Checkpoint.decode(read_file(f"{directory}/{FILE_NAME}"))
    leader_epochs = LeaderEpochs.decode(read_file(f"{directory}/{epochs.FILE_NAME}"))
    segments = _segments(directory, shared, names)
    if not segments:
        return _create(directory, shared, checkpoint, leader_epochs, report, now_ms)
    last = segments[-1]
    if summary is not None and (last.base_offset, last.size) != (summary.segment, summary.position):
        summary = None
    if summary is not None:
        checkpoint, leader_epochs = summary.checkpoint, summary.leader_epochs()
    elif on_disk is not None and on_disk.recovery > segments[0].base_offset and not leader_epochs.entries:
        on_disk = checkpoint = _without_epochs(directory, on_disk, shared.disk)
    opening = _Opening(
        directory, config, shared, segments, checkpoint, leader_epochs, report, now_ms, names, summary
    )
    recovered = opening.run()
    if UNFORCED_FILE in names:
        recovered.marked = True
        opening.write_again()
    if recovered.checkpointed:
        recovered.disk_segment = recovered.checkpoint.segment
    elif summary is not None and on_disk is not None:
        recovered.disk_segment = on_disk.segment
    return recovered


def _without_epochs(directory: str, checkpoint: Checkpoint, disk: Disk) -> Checkpoint:
    """Replaces a checkpoint by one that trusts nothing but the log's start, as a power loss took the file of
    epochs: they are found again in the batches."""
    left = Checkpoint(start=checkpoint.start, cleaned=checkpoint.cleaned)
    disk.write_file(f"{directory}/{FILE_NAME}", left.encode(), sync=True)
    return left


def unwritten(directory: str, shared: SharedFiles, now_ms: int) -> Recovered:
    """Returns a log without files. `make_first` creates its first segment's file."""
    file = shared.pool.file(stem(directory, 0) + ".log")
    segment = Segment(shared, directory, 0, file, 0)
    segment.created_ms = now_ms
    return Recovered([segment], ProducerStates(), LeaderEpochs(), Checkpoint(), 0)


def make_first(directory: str, segment: Segment, claim: Callable[[], None]) -> None:
    """Creates the directory of an unwritten log. The segment's file comes last: without it the log does not
    exist.
    """
    os.makedirs(directory, exist_ok=True)
    claim()
    segment.shared.pool.make(segment.file)


def read_file(path: str) -> bytes:
    """Returns the file's bytes; b"" if there is no file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _segments(directory: str, shared: SharedFiles, names: list[str]) -> list[Segment]:
    """Returns all segments, assumed to be sealed and, except the last, to have their indexes on disk."""
    bases = sorted(
        int(name[:_DIGITS])
        for name in names
        if name.endswith(".log") and name[:_DIGITS].isdigit() and len(name) == _DIGITS + 4
    )
    segments: list[Segment] = []
    for number, base in enumerate(bases):
        path = stem(directory, base) + ".log"
        segment = Segment(shared, directory, base, shared.pool.file(path), os.path.getsize(path))
        if number + 1 < len(bases):
            segment.next_offset = bases[number + 1]
            segment.forget_indexes()
        segments.append(segment)
    return segments


def _create(
    directory: str,
    shared: SharedFiles,
    checkpoint: Checkpoint | None,
    leader_epochs: LeaderEpochs,
    report: RecoveryReport,
    now_ms: int,
) -> Recovered:
    start = max(checkpoint.start, checkpoint.recovery) if checkpoint else 0
    file = shared.pool.create(stem(directory, start) + ".log")
    segment = Segment(shared, directory, start, file, 0)
    segment.created_ms = now_ms
    trusted = Checkpoint(start, start, start, start, 0)
    return Recovered([segment], ProducerStates(), leader_epochs, trusted, start, created=True, report=report)


class _Opening:
    """One opening of a log that has segments."""

    def __init__(
        self,
        directory: str,
        config: TopicConfig,
        shared: SharedFiles,
        segments: list[Segment],
        checkpoint: Checkpoint | None,
        leader_epochs: LeaderEpochs,
        report: RecoveryReport,
        now_ms: int,
        names: list[str],
        summary: LogSummary | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.shared = shared
        self.segments = segments
        self.epochs = leader_epochs
        self.report = report
        self.now_ms = now_ms
        self.snapshots = _snapshots_of(names)
        self.producers = ProducerStates()
        self.trusted = self._usable(checkpoint)
        self.summary = summary
        self.inside = summary if summary is not None and summary.inside else None
        self.checkpointed = self.trusted == checkpoint and self.inside is None
        self.end_offset = self.trusted.recovery
        self.unflushed: list[Segment] = []

    def run(self) -> Recovered:
        first = self._first_unchecked()
        self._restore_producers()
        if first < len(self.segments):
            self._open_checkpointed(self.segments[first])
        position = self.trusted.position
        number = first
        while number < len(self.segments):
            segment = self.segments[number]
            if segment.base_offset != self.trusted.segment:
                position = 0
            whole = self._check(segment, position)
            if not whole:
                self._drop_after(number)
            number += 1
        return self._finish()

    def write_again(self) -> None:
        """Makes the pages of what is not known to be on the disk dirty again. Raises OSError."""
        for segment in self.unflushed:
            position = self.trusted.position if segment.base_offset == self.trusted.segment else 0
            descriptor = self.shared.pool.descriptor(segment.file)
            while position < segment.size:
                data = read_fully(descriptor, min(WHOLE_BLOCK, segment.size - position), position)
                if not data:
                    raise OSError(errno.EIO, "the disk has lost the end of the log")
                write_all(self.shared.disk, descriptor, data, position)
                position += len(data)

    def _usable(self, checkpoint: Checkpoint | None) -> Checkpoint:
        """Returns the part of the checkpoint that the files confirm."""
        first = self.segments[0].base_offset
        if checkpoint is None:
            return Checkpoint(first, first, first, first, 0)
        start = max(checkpoint.start, first)
        cleaned = max(checkpoint.cleaned, first)
        sizes = {segment.base_offset: segment.size for segment in self.segments}
        size = sizes.get(checkpoint.segment, checkpoint.position)
        base = min(max(checkpoint.segment, first), self.segments[-1].base_offset)
        if base != checkpoint.segment or size < checkpoint.position:
            return Checkpoint(start, cleaned, base, base, 0)
        return replace(checkpoint, start=start, cleaned=cleaned)

    def _first_unchecked(self) -> int:
        """Returns the number of the first segment that is not wholly trusted."""
        for number, segment in enumerate(self.segments):
            if segment.base_offset >= self.trusted.segment:
                return number
        return len(self.segments) - 1

    # --- producers

    def _restore_producers(self) -> None:
        """Restores producers from the newest whole snapshot and the trusted batches after it."""
        since = self.segments[0].base_offset
        states = decode_snapshot(self.inside.producers) if self.inside is not None else None
        if states is not None:
            self.producers = states
            return
        for offset in sorted(self.snapshots, reverse=True):
            if offset > self.trusted.recovery:
                continue
            states = decode_snapshot(read_file(stem(self.directory, offset) + ".snapshot"))
            if states is not None:
                self.producers, since = states, offset
                break
        for segment in self.segments:
            if segment.next_offset > since or segment is self.segments[-1]:
                self._replay(segment, since)

    def _replay(self, segment: Segment, since: int) -> None:
        """Applies the trusted batches of `segment` from offset `since`."""
        end = segment.size
        if segment.base_offset == self.trusted.segment:
            end = self.trusted.position
        if segment.base_offset > self.trusted.segment or since >= self.trusted.recovery:
            return
        replay(self.producers, self.shared.pool.descriptor(segment.file), end, since, self.now_ms)

    # --- checking

    def _open_checkpointed(self, segment: Segment) -> None:
        """Loads the indexes, up to the checkpoint, of the segment that it lies in."""
        trusted = self.trusted
        if segment.base_offset != trusted.segment or trusted.position == 0:
            return
        segment.sealed = False
        scanner = BatchScanner(self.shared.pool.descriptor(segment.file), 0, trusted.position, whole=False)
        header = scanner.next()
        if self.inside is not None:
            data = self.inside.offset_index, self.inside.time_index
        else:
            data = read_file(segment.path(".index")), read_file(segment.path(".timeindex"))
        offsets = OffsetIndex(segment.base_offset, bytearray(data[0]))
        times = TimeIndex(segment.base_offset, bytearray(data[1]))
        if len(offsets.data) % OFFSET_ENTRY == 0 and len(times.data) % TIME_ENTRY == 0:
            offsets.truncate(trusted.position)
            times.truncate(trusted.recovery)
        indexes = SegmentIndexes(offsets, times, from_file=True)
        if header is not None and indexes.crc == trusted.index_crc:
            segment.adopt_indexes(indexes)
            segment.first_timestamp = header.max_timestamp
        else:
            segment.rebuild_indexes(trusted.position, self.config.index_interval_bytes)
            self.report.rebuilt_indexes += 1

    def _check(self, segment: Segment, position: int) -> bool:
        """Checks `segment` from `position`. Returns False if it was cut off; nothing may follow it then."""
        checkpointed = segment.base_offset == self.trusted.segment
        expected = self.trusted.recovery if checkpointed else segment.base_offset
        if position == 0:
            segment.start_indexes()
        last = segment is self.segments[-1]
        kept = [entry for entry in segment.aborted if entry.last_offset < expected]
        scanner = BatchScanner(self.shared.pool.descriptor(segment.file), position, segment.size, whole=True)
        header = scanner.next()
        while header is not None and self._good(scanner, header, expected, segment):
            entry = apply_batch(self.producers, header, scanner.batch(header), 0, self.now_ms)
            if entry is not None:
                kept.append(entry)
            self._note(segment, scanner.position, header)
            expected = header.next_offset
            header = scanner.next()
        segment.set_aborted(kept)
        self.report.checked_bytes += scanner.position - position
        self.end_offset = expected
        whole = scanner.position == segment.size
        if not whole:
            self._cut(segment, scanner.position, scanner.reason)
        if segment.size > position:
            self.unflushed.append(segment)
        if whole and not last:
            segment.seal()
        else:
            segment.sealed = False
            segment.next_offset = expected
        return whole

    def _good(self, scanner: BatchScanner, header: BatchHeader, expected: int, segment: Segment) -> bool:
        if not plausible(header, expected, segment.base_offset):
            scanner.reason = "offsets that do not grow"
        elif segment is not self.segments[-1] and header.next_offset > segment.next_offset:
            # The CRC does not cover base offsets: after a raised one, offsets would occur twice.
            scanner.reason = "offsets of the next segment"
        elif not scanner.checksum_fits(header):
            scanner.reason = "wrong CRC"
        else:
            return True
        return False

    def _note(self, segment: Segment, position: int, header: BatchHeader) -> None:
        interval = self.config.index_interval_bytes
        segment.note(header.last_offset, header.max_timestamp, position, header.size, interval)
        self.report.checked_batches += 1
        if header.leader_epoch > self.epochs.latest:
            self.epochs.begin(header.leader_epoch, header.base_offset)

    def _cut(self, segment: Segment, position: int, reason: str) -> None:
        descriptor = self.shared.pool.descriptor(segment.file)
        self.report.truncated_bytes += segment.size - position
        self.report.truncated_at = self.end_offset
        self.report.reason = reason
        self.shared.disk.truncate(descriptor, position)
        segment.size = position

    def _drop_after(self, number: int) -> None:
        """Removes the segments after one that was cut off."""
        for segment in self.segments[number + 1 :]:
            self.report.truncated_bytes += segment.size
            self.report.dropped_segments += 1
            segment.close()
            swap.remove_segment(self.directory, segment.base_offset, self.shared.disk)
        del self.segments[number + 1 :]

    def _finish(self) -> Recovered:
        self._withdraw_checkpoint()
        last = self.segments[-1]
        last.sealed = False
        last.next_offset = self.end_offset
        if last.created_ms == 0:
            last.created_ms = last.modified_ms() if last.size else self.now_ms
        created = False
        trusted = self.trusted
        if trusted.start > self.end_offset:
            created = True
            self._begin_at(trusted.start)
        for offset in self.snapshots:
            if offset > self.end_offset:
                self.shared.disk.unlink(stem(self.directory, offset) + ".snapshot")
        self.epochs.drop_beyond(self.end_offset)
        self.epochs.truncate_start(trusted.start)
        known = self.summary
        return Recovered(
            self.segments,
            self.producers,
            self.epochs,
            trusted,
            self.end_offset,
            self.unflushed,
            created,
            self.checkpointed,
            since_checkpoint=known.since_checkpoint if known is not None else 0,
            epochs_dirty=known is not None and not known.epochs_written,
            rested=known is not None,
            report=self.report,
        )

    def _withdraw_checkpoint(self) -> None:
        """Replaces a checkpoint beyond the log's end: recovery would trust it again once the log has grown
        past it.
        """
        if not self.checkpointed and self.inside is None and os.path.exists(f"{self.directory}/{FILE_NAME}"):
            self.shared.disk.write_file(f"{self.directory}/{FILE_NAME}", self.trusted.encode(), sync=True)
            self.checkpointed = True

    def _begin_at(self, start: int) -> None:
        """Starts an empty segment at the log's start, because the log was cut off below it."""
        last = self.segments[-1]
        last.next_offset = start
        last.seal()
        file = self.shared.pool.create(stem(self.directory, start) + ".log")
        segment = Segment(self.shared, self.directory, start, file, 0)
        segment.created_ms = self.now_ms
        self.segments.append(segment)
        self.end_offset = start


def replay(states: ProducerStates, descriptor: int, size: int, since: int, now_ms: int) -> None:
    """Applies the batches of a segment file of `size` bytes from offset `since`."""
    scanner = BatchScanner(descriptor, 0, size, whole=True)
    header = scanner.next()
    while header is not None:
        if header.base_offset >= since:
            apply_batch(states, header, scanner.batch(header), 0, now_ms)
        header = scanner.next()


def snapshot_offsets(directory: str) -> list[int]:
    """Returns the offsets of the existing snapshots."""
    return _snapshots_of(os.listdir(directory))


def _snapshots_of(names: list[str]) -> list[int]:
    return [int(name[:_DIGITS]) for name in names if name.endswith(".snapshot") and name[:_DIGITS].isdigit()]


def drop_snapshots(directory: str, bases: list[int], newest: int, disk: Disk) -> None:
    """Removes snapshots that recovery cannot need: all but the newest and those at a segment's base."""
    keep = set(bases)
    for offset in snapshot_offsets(directory):
        if offset < newest and offset not in keep:
            disk.unlink(stem(directory, offset) + ".snapshot")
