"""The durable part of a log, and the checkpoint that records it for recovery.

A flush has three parts: `begin` collects the work on the loop, `FlushTicket.run` does it on any thread, `end`
records the result on the loop. Appends may come in between; they belong to the next flush.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from treecast.middleware.model.errors import Fault, TreecastError

from . import epochs
from .checkpoint import FILE_NAME, Checkpoint
from .disk import Disk, refused
from .files import LogFile
from .recovery import UNFORCED_FILE, Recovered, drop_snapshots
from .segment import Segment, stem
from .settings import FsyncPolicy
from .snapshot import encode_snapshot
from .summary import is_small

if TYPE_CHECKING:
    from .log import PartitionLog

OWNER_FILE: Final = "partition.metadata"  # in a log's directory: its topic's id, in Kafka's format


class FlushTicket:
    """The work that makes everything before `offset` durable."""

    def __init__(self, disk: Disk, offset: int, size: int, generation: int) -> None:
        self.disk = disk
        self.offset = offset
        self.size = size  # bytes since the last checkpoint
        self.generation = generation  # of the log; increased when written data is taken back
        self.files: list[tuple[LogFile, int]] = []  # pinned, with their descriptors
        self.segments: list[tuple[Segment, int]] = []  # with their sizes
        self.paths: list[str] = []  # other files, which are not open
        self.parts: list[tuple[str, str, bytes]] = []  # temporary path, final path, content
        self.directories: list[str] = []
        self.checkpoint: Checkpoint | None = None

    def only_descriptor(self) -> int:
        """Returns the descriptor if one fdatasync of it is all there is to do; else -1."""
        if len(self.files) != 1 or self.paths or self.directories or self.parts:
            return -1
        return self.files[0][1] if self.disk.syncs_plainly else -1

    def run(self) -> None:
        """Waits for the disk. Raises OSError if it refuses; `end` must be called with it.

        A checkpoint that cannot be written (for lack of space, say) is abandoned; a later one will follow.
        """
        for _, descriptor in self.files:
            self.disk.sync(descriptor)
        for path in self.paths:
            with suppress(FileNotFoundError):  # deleted meanwhile
                self.disk.sync_path(path)
        for directory in self.directories:
            self.disk.sync_directory(directory)
        try:
            for temporary, _, data in self.parts:
                self.disk.write_new(temporary, data, sync=False)
        except OSError:
            self.checkpoint = None


class Durability:
    """The flush state of one log. `failed` is the reason why nothing more may be appended, "" if there is
    none.
    """

    def __init__(self, log: PartitionLog, recovered: Recovered) -> None:
        self.log = log
        self.checkpoint = recovered.checkpoint
        self.unflushed: list[Segment] = list(recovered.unflushed)
        if self.unflushed:
            log.shared.unflushed[log] = None
        self.written_ms = 0  # time of the last write
        if not recovered.rested:
            self._changed()
        self.flushed_offset = recovered.checkpoint.recovery if self.unflushed else recovered.end_offset
        # what an earlier process wrote and did not flush may lie in a directory that it made
        self.directory_dirty = self.parent_dirty = recovered.created or bool(self.unflushed)
        self.epochs_dirty = bool(self.unflushed)  # the file of epochs is not known to be on disk
        self.failed = ""
        self._marked = recovered.marked
        self._generation = 0
        self._on_disk = recovered.checkpointed
        # segment that the checkpoint on disk lies in; 0 without one
        self._disk_segment = recovered.disk_segment
        self.every_batch = log.settings.fsync is FsyncPolicy.BATCH
        self.since_checkpoint = recovered.report.checked_bytes + recovered.since_checkpoint  # bytes
        self._dirty_since_ms = 0

    @property
    def checkpointed_base(self) -> int:
        """The base offset of the segment that the checkpoint on disk lies in; 0 without one."""
        return self._disk_segment

    def knows_producers(self, base_offset: int) -> bool:
        """Returns whether recovery would know the producers of a log that starts at `base_offset`."""
        if self._on_disk and self.checkpoint.recovery >= base_offset:
            return True
        return os.path.exists(stem(self.log.directory, base_offset) + ".snapshot")

    def wrote(self, segment: Segment, size: int, now_ms: int) -> None:
        """Records that `size` bytes were appended to `segment`. `LogWriter` does it in place for the segment
        that the last bytes went to."""
        if not self.unflushed:
            self._dirty_since_ms = now_ms
            self.must_flush(segment)
        elif self.unflushed[-1] is not segment:
            self.unflushed.append(segment)
        self.since_checkpoint += size
        self.written_ms = now_ms

    def must_flush(self, segment: Segment) -> None:
        """Records that `segment` has data that is not durable."""
        self.unflushed.append(segment)
        self.log.shared.unflushed[self.log] = None
        self._changed()

    def _changed(self) -> None:
        shared = self.log.shared
        if shared.summaries is not None:
            shared.changed[self.log] = None

    def left(self, segment: Segment) -> None:
        """Records that `segment` left the log."""
        self.unflushed = [other for other in self.unflushed if other is not segment]
        self.directory_dirty = True

    def due(self, now_ms: int) -> bool:
        """Returns whether a flush in the background is due: the interval, flush.ms, or rolled segments."""
        if not self.unflushed or self.failed:
            return False
        settings = self.log.settings
        age = self.log.config.flush_ms
        if settings.fsync is FsyncPolicy.INTERVAL:
            age = min(age, settings.flush_age_ms)
        return now_ms - self._dirty_since_ms >= age or len(self.unflushed) > 1

    def begin(self, now_ms: int, *, checkpoint: bool = False) -> FlushTicket | None:
        """Returns the next flush, or None. There is one ticket at a time, and each must come back to `end`.

        A checkpoint is added after `checkpoint_bytes`, after a roll, or on request.
        """
        if self.failed:
            raise TreecastError(Fault.STORAGE, self.failed)
        log = self.log
        if not log.has_files:
            return None
        checkpoint = checkpoint or self.since_checkpoint >= log.settings.checkpoint_bytes
        checkpoint = checkpoint or log.held.active.base_offset != self.checkpoint.segment
        if not self.unflushed and not self.directory_dirty and not checkpoint:
            return None
        self._dirty_since_ms = now_ms
        ticket = FlushTicket(log.shared.disk, log.end_offset, self.since_checkpoint, self._generation)
        self._pin(ticket)
        if self.epochs_dirty:
            ticket.paths.append(f"{log.directory}/{epochs.FILE_NAME}")
            self.epochs_dirty = False
        if checkpoint:
            self._add_checkpoint(ticket)
        if self.directory_dirty:
            ticket.directories.append(log.directory)
            if self.parent_dirty:
                ticket.paths.append(f"{log.directory}/{OWNER_FILE}")
                ticket.directories.append(os.path.dirname(log.directory))
            self.directory_dirty = self.parent_dirty = False
        return ticket

    def _pin(self, ticket: FlushTicket) -> None:
        """Keeps the files open until the ticket comes back. Raises STORAGE if one cannot be opened."""
        pool = self.log.shared.pool
        try:
            for segment in self.unflushed:
                if segment.aborted:
                    ticket.paths.append(segment.path(".txnindex"))
                if segment.sealed:
                    ticket.paths += [segment.path(".index"), segment.path(".timeindex")]
                ticket.files.append((segment.file, pool.pin(segment.file)))
                ticket.segments.append((segment, segment.size))
        except TreecastError:
            for file, _ in ticket.files:
                pool.unpin(file)
            raise

    def _add_checkpoint(self, ticket: FlushTicket) -> None:
        log = self.log
        active = log.held.active
        indexes = active.indexes
        indexes.finish()
        ticket.checkpoint = Checkpoint(
            log.start_offset,
            log.cleaned_offset,
            log.end_offset,
            active.base_offset,
            active.size,
            indexes.crc,
        )
        for path, data in (
            (active.path(".index"), bytes(indexes.offsets.data)),
            (active.path(".timeindex"), bytes(indexes.times.data)),
            (stem(log.directory, log.end_offset) + ".snapshot", encode_snapshot(log.producers)),
        ):
            ticket.parts.append((path + ".checkpoint", path, data))

    def end(self, ticket: FlushTicket, error: OSError | None) -> None:
        """Records the result of `ticket.run`. Raises STORAGE after an error, and refuses appends until the
        log is reopened: the kernel may have dropped the pages that it could not write, so that another fsync
        would report success falsely.
        """
        log = self.log
        for file, _ in ticket.files:
            log.shared.pool.unpin(file)
        if log.closed:
            return
        if error is not None:
            log.counters.write_errors += 1
            self.failed = f"cannot flush {log.directory}: {error.strerror or error}"
            self._mark()
            raise refused(error, f"flush {log.directory}") from error
        log.counters.fsyncs += len(ticket.files)
        if ticket.generation != self._generation:
            self._discard(ticket)
            return
        if self._marked:
            self._marked = False
            with suppress(OSError):
                log.shared.disk.unlink(f"{log.directory}/{UNFORCED_FILE}")
        self.flushed_offset = max(self.flushed_offset, ticket.offset)
        done = {segment.file.serial for segment, size in ticket.segments if segment.size == size}
        self.unflushed = [segment for segment in self.unflushed if segment.file.serial not in done]
        if ticket.checkpoint is not None:
            self._take(ticket, ticket.checkpoint)

    def _mark(self) -> None:
        """Tells whoever opens the log next that the kernel takes for clean what the disk may lack. The mark
        itself needs no disk: a power loss takes it, and then what the disk lacks is seen."""
        self._marked = True
        with suppress(OSError):
            self.log.shared.disk.write_new(f"{self.log.directory}/{UNFORCED_FILE}", b"", sync=False)

    def _discard(self, ticket: FlushTicket) -> None:
        """Removes the ticket's files: the log was cut meanwhile, and what was forced to the disk may not be
        part of it.
        """
        with suppress(OSError):
            for temporary, _, _ in ticket.parts:
                self.log.shared.disk.unlink(temporary)

    def distrust(self, kept: Checkpoint, end_offset: int) -> None:
        """Lets recovery trust no more than `kept`. Called before the log is cut at `end_offset`."""
        self._generation += 1
        self.flushed_offset = min(self.flushed_offset, end_offset)
        beyond = self._on_disk and self.checkpoint.recovery > end_offset
        self.checkpoint = kept
        self.write_checkpoint(sync=beyond)

    def _take(self, ticket: FlushTicket, checkpoint: Checkpoint) -> None:
        """Gives the checkpoint's parts their names, except indexes of a segment that was sealed meanwhile."""
        log, disk = self.log, self.log.shared.disk
        before, self.checkpoint = self.checkpoint, checkpoint
        try:
            for temporary, path, _ in ticket.parts:
                if path.endswith(".snapshot") or checkpoint.segment == log.held.active.base_offset:
                    disk.rename(temporary, path)
                else:
                    disk.unlink(temporary)
            self.write_checkpoint()
        except (OSError, TreecastError):
            self.checkpoint = before
            return
        self.since_checkpoint -= ticket.size
        self.drop_snapshots()

    def write_checkpoint(self, *, sync: bool = False) -> None:
        """Writes the checkpoint with the log's present start and cleaned offset.

        It is forced to the disk, under every policy, if nothing else says where the log starts: a power loss
        would take the file that this one replaces, and bring records back that were deleted long ago.
        `sync`: if the one on disk must not come back either.
        """
        log = self.log
        sync = sync or log.start_offset > log.held.bases[0]
        self.checkpoint = replace(self.checkpoint, start=log.start_offset, cleaned=log.cleaned_offset)
        path = f"{log.directory}/{FILE_NAME}"
        try:
            log.shared.disk.write_file(path, self.checkpoint.encode(), sync=sync)
        except OSError as error:
            log.counters.write_errors += 1
            raise refused(error, f"write {path}") from error
        self._on_disk = True
        self._disk_segment = self.checkpoint.segment
        self._changed()

    def drop_snapshots(self) -> None:
        """Removes the snapshots that recovery cannot need."""
        log = self.log
        with suppress(OSError):
            drop_snapshots(log.directory, log.held.bases, self.checkpoint.recovery, log.shared.disk)

    def in_summary(self) -> bool:
        """Returns whether the log's summary is to hold the checkpoint's content."""
        return self.log.shared.summaries is not None and is_small(self.log)

    def settled(self, *, leaving: bool) -> bool:
        """Returns whether nothing needs to be forced to the disk (or nothing can be) and nothing needs to be
        written, except the summary of a log that is `leaving`.
        """
        if self.failed:
            return True
        if self.unflushed or self.directory_dirty:
            return False
        return (leaving and self.in_summary()) or self.covered()

    def covered(self) -> bool:
        """Returns whether the checkpoint on disk covers the whole log, or nothing needs one."""
        found, log = self.checkpoint, self.log
        if not log.has_files:
            return True
        return (
            self._on_disk
            and not self.unflushed
            and (found.start, found.cleaned) == (log.start_offset, log.cleaned_offset)
            and (found.segment, found.position) == (log.held.active.base_offset, log.held.active.size)
            and os.path.exists(stem(log.directory, log.end_offset) + ".snapshot")
        )
