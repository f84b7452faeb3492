"""One segment of a partition log: a .log file of whole batches, its indexes and its aborted transactions."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final

from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.wire.record_batch import HEADER_SIZE, LOG_OVERHEAD, read_header

from .aborted import ENTRY_SIZE, AbortedEntry, decode_entries, encode_entry
from .disk import Disk
from .file_range import SENDFILE_BYTES, LogRange
from .files import FilePool, LogFile
from .index import NO_TIMESTAMP, TIME_ENTRY, OffsetIndex, SegmentIndexes, TimeIndex, empty_indexes
from .scan import BatchScanner, read_fully

if TYPE_CHECKING:
    from .log import PartitionLog
    from .summaries import LogSummaries

_WALK_BLOCK: Final = 4096
_PREFIX: Final = 27  # up to and including lastOffsetDelta
_BASE_AND_LENGTH: Final = struct.Struct(">qi")
_LAST_DELTA: Final = struct.Struct(">i")
_LAST_DELTA_AT: Final = 23
_UNKNOWN: Final = -2


def stem(directory: str, base_offset: int) -> str:
    """Returns the path of a segment's files without their suffix."""
    return f"{directory}/{base_offset:020d}"


class SharedFiles:
    """The resources that all logs of a daemon share: the disk, open files, and loaded indexes."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        open_files: int = 512,
        index_bytes: int = 16 << 20,
        summaries: LogSummaries | None = None,
    ) -> None:
        """`summaries`: trusted at start instead of opening logs, and written at stop."""
        self.summaries = summaries
        self.changed: dict[PartitionLog, None] = {}  # logs that may differ from their summaries
        self.disk = disk or Disk()
        self.pool = FilePool(self.disk, open_files)
        self.index_bytes = index_bytes
        self._loaded: dict[int, tuple[Segment, int]] = {}  # by file serial, with bytes, oldest first
        self._loaded_bytes = 0
        self.unflushed: dict[PartitionLog, None] = {}  # logs with data that is not durable

    def to_flush(self) -> list[PartitionLog]:
        """Returns the logs with data that is not durable."""
        for log in [log for log in self.unflushed if log.closed or not log.durability.unflushed]:
            del self.unflushed[log]
        return list(self.unflushed)

    def loaded(self, segment: Segment, size: int) -> None:
        """Records that a sealed segment has `size` bytes of indexes in memory. Unloads those loaded longest
        ago.
        """
        self._leave(segment)
        while self._loaded and self._loaded_bytes + size > self.index_bytes:
            oldest = next(iter(self._loaded.values()))[0]
            self._leave(oldest)
            oldest.unload()
        self._loaded[segment.file.serial] = (segment, size)
        self._loaded_bytes += size

    def closed(self, segment: Segment) -> None:
        """Releases everything held for `segment`."""
        self._leave(segment)
        self.pool.drop(segment.file)

    def _leave(self, segment: Segment) -> None:
        known = self._loaded.pop(segment.file.serial, None)
        if known is not None:
            self._loaded_bytes -= known[1]


class Segment:
    """A segment. Only the last one of a log is not sealed; sealed ones never change.

    `next_offset` is the log's end in the last segment, and a bound (the next one's base) in others.
    `first_timestamp` is that of the first batch, which segment.ms is measured from.
    """

    def __init__(
        self, shared: SharedFiles, directory: str, base_offset: int, file: LogFile, size: int
    ) -> None:
        self.shared = shared
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size = size
        self.next_offset = base_offset
        self.sealed = False
        self.first_timestamp = NO_TIMESTAMP
        self.created_ms = 0
        self.loaded: SegmentIndexes | None = empty_indexes(base_offset)  # `indexes`, if in memory
        self._max_timestamp = _UNKNOWN  # while the indexes are not loaded
        self._aborted: list[AbortedEntry] | None = None

    # --- what is known of it

    @property
    def indexes(self) -> SegmentIndexes:
        """The indexes: loaded from disk if they are not in memory, rebuilt if they are missing or damaged."""
        if self.loaded is None:
            self.loaded = self._load()
        return self.loaded

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, or -1."""
        if self.loaded is not None:
            return self.loaded.max_timestamp
        if self._max_timestamp == _UNKNOWN:
            self._max_timestamp = self._read_max_timestamp()
        return self._max_timestamp

    @property
    def aborted(self) -> list[AbortedEntry]:
        """The transactions whose abort markers are in this segment, in the order of markers."""
        if self._aborted is None:
            self._aborted = decode_entries(self._read_file(".txnindex"))
        return self._aborted

    def set_aborted(self, entries: list[AbortedEntry]) -> None:
        """Sets the entries, in the file as well."""
        path = self.path(".txnindex")
        size = os.path.getsize(path) if os.path.exists(path) else 0
        if entries != self.aborted or size != ENTRY_SIZE * len(entries):
            self.shared.disk.write_file(path, b"".join(map(encode_entry, entries)), sync=False)
        self._aborted = entries

    def path(self, suffix: str) -> str:
        return stem(self.directory, self.base_offset) + suffix

    def modified_ms(self) -> int:
        try:
            return int(os.stat(self.file.path).st_mtime * 1000)
        except OSError:
            return 0

    def oldest_timestamp(self) -> int:
        """Returns the largest timestamp of the first batch, or -1."""
        if self.first_timestamp < 0 and self.size >= HEADER_SIZE:
            self.first_timestamp = read_header(self._block(0, HEADER_SIZE), 0).max_timestamp
        return self.first_timestamp

    # --- growing

    def note(self, last_offset: int, max_timestamp: int, position: int, size: int, interval: int) -> None:
        """Notes a batch written at `position`."""
        if position == 0:
            self.first_timestamp = max_timestamp
        self.indexes.note(last_offset, max_timestamp, position, size, interval)

    def seal(self) -> None:
        """Closes the segment for writing: completes the time index and writes the indexes to disk."""
        self.indexes.finish()
        self.sealed = True
        self.write_indexes()
        self.shared.loaded(self, self.indexes.size)

    def write_indexes(self) -> None:
        """Writes the indexes. If the disk refuses, removes the old files; they are rebuilt on demand."""
        indexes = self.indexes
        for suffix, data in ((".index", indexes.offsets.data), (".timeindex", indexes.times.data)):
            try:
                self.shared.disk.write_file(self.path(suffix), data, sync=False)
            except OSError:
                self.shared.disk.unlink(self.path(suffix))

    # --- indexes of sealed segments

    def forget_indexes(self) -> None:
        """Treats the segment as sealed, and its indexes as on disk."""
        self.sealed = True
        self._max_timestamp = _UNKNOWN
        self.loaded = None

    def unload(self) -> None:
        """Releases the indexes of a sealed segment."""
        if self.sealed and self.loaded is not None:
            self._max_timestamp = self.loaded.max_timestamp
            self.loaded = None

    def adopt_indexes(self, indexes: SegmentIndexes) -> None:
        """Sets indexes that cover the segment so far."""
        self.loaded = indexes
        if self.sealed:
            self.shared.loaded(self, indexes.size)

    def start_indexes(self) -> None:
        """Sets empty indexes, to be filled by noting the segment's batches from its beginning."""
        self.sealed = False
        self.loaded = empty_indexes(self.base_offset)

    def rebuild_indexes(self, end: int, interval: int = 4096) -> SegmentIndexes:
        """Builds the indexes of the first `end` bytes from the log file; those of a sealed segment are
        written to disk.
        """
        indexes = empty_indexes(self.base_offset)
        scanner = BatchScanner(self.shared.pool.descriptor(self.file), 0, end, whole=False)
        header = scanner.next()
        while header is not None:
            if scanner.position == 0:
                self.first_timestamp = header.max_timestamp
            indexes.note(header.last_offset, header.max_timestamp, scanner.position, header.size, interval)
            header = scanner.next()
        self.loaded = indexes
        if self.sealed:
            indexes.finish()
            self.write_indexes()
        return indexes

    def _load(self) -> SegmentIndexes:
        offsets = OffsetIndex(self.base_offset, bytearray(self._read_file(".index")))
        times = TimeIndex(self.base_offset, bytearray(self._read_file(".timeindex")))
        known = os.path.exists(self.path(".index")) and (len(times) > 0 or self.size == 0)
        if known and offsets.sane(self.size) and times.sane(self.next_offset):
            indexes = SegmentIndexes(offsets, times, from_file=True)
        else:
            indexes = self.rebuild_indexes(self.size)
        self.shared.loaded(self, indexes.size)
        return indexes

    def _read_max_timestamp(self) -> int:
        """Returns the last entry's timestamp of the time index, without loading the rest."""
        try:
            with open(self.path(".timeindex"), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size and size % TIME_ENTRY == 0:
                    file.seek(size - TIME_ENTRY)
                    return TimeIndex(self.base_offset, bytearray(file.read())).last()[0]
        except OSError:
            pass
        return self.indexes.max_timestamp

    def _read_file(self, suffix: str) -> bytes:
        try:
            with open(self.path(suffix), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise TreecastError(Fault.STORAGE, f"cannot read {self.path(suffix)}: {error}") from error

    # --- finding

    def locate(self, offset: int) -> int:
        """Returns the position of the batch that holds `offset`, or of the first one after it."""
        if offset <= self.base_offset:
            return 0
        if offset >= self.next_offset:
            return self.size
        return self._walk_to(offset, self._trusted_position(self.indexes.offsets.find_offset(offset)))

    def end_within(self, start: int, max_bytes: int, bound: int, *, at_least_one: bool) -> tuple[int, int]:
        """Returns (end of the last whole batch within `max_bytes` from `start` and before `bound`; the
        reader's next offset, or -1 if unknown).

        With `at_least_one`, the first batch counts whatever its size. Reads the file if the index is not
        enough.
        """
        if bound - start <= max_bytes:
            return bound, -1
        limit = start + max_bytes
        entry = self.indexes.offsets.find_position(limit)
        position = self._trusted_position(entry)
        after = self.indexes.offsets.cut(entry, limit)
        if after >= 0 and start < position:
            return position, after
        position = max(position, start)
        while True:
            block = self._block(position, _WALK_BLOCK)
            usable = len(block) - LOG_OVERHEAD
            if usable < 0:
                raise self._broken(position)
            at = 0
            while at <= usable:
                base, length = _BASE_AND_LENGTH.unpack_from(block, at)
                if length < HEADER_SIZE - LOG_OVERHEAD:
                    raise self._broken(position + at)
                following = at + LOG_OVERHEAD + length
                if position + following > limit:
                    if position + at == start and at_least_one:
                        return position + following, -1
                    return position + at, base
                at = following
            position += at

    def _trusted_position(self, entry: int) -> int:
        """Returns the position of an index entry. Checks an entry from a file against the batch there, and
        rebuilds the indexes if they disagree.
        """
        if entry < 0:
            return 0
        last_offset, position = self.indexes.offsets.entry(entry)
        if not self.indexes.from_file:
            return position
        if 0 <= position < self.size:
            block = self._block(position, _PREFIX)
            if len(block) >= _PREFIX:
                base: int = _BASE_AND_LENGTH.unpack_from(block, 0)[0]
                delta: int = _LAST_DELTA.unpack_from(block, _LAST_DELTA_AT)[0]
                if base + delta == last_offset:
                    return position
        self.rebuild_indexes(self.size)
        return 0

    def _walk_to(self, offset: int, position: int) -> int:
        while position < self.size:
            block = self._block(position, _WALK_BLOCK)
            usable = len(block) - _PREFIX
            if usable < 0:
                raise self._broken(position)
            at = 0
            while at <= usable:
                base, length = _BASE_AND_LENGTH.unpack_from(block, at)
                delta: int = _LAST_DELTA.unpack_from(block, at + _LAST_DELTA_AT)[0]
                if base + delta >= offset:
                    return position + at
                if length < HEADER_SIZE - LOG_OVERHEAD:
                    raise self._broken(position + at)
                at += LOG_OVERHEAD + length
            position += at
        return self.size

    def _broken(self, position: int) -> TreecastError:
        return TreecastError(Fault.STORAGE, f"{self.file.path} is damaged at byte {position}")

    # --- reading

    def _block(self, position: int, size: int) -> bytes:
        try:
            return os.pread(self.shared.pool.descriptor(self.file), min(size, self.size - position), position)
        except OSError as error:
            raise TreecastError(Fault.STORAGE, f"cannot read {self.file.path}: {error}") from error

    def read(self, start: int, end: int) -> Chunk:
        """Returns the bytes from `start` to `end`: read if few, else a range to be sent from the file.

        Raises STORAGE if there are fewer bytes or the disk refuses.
        """
        if end - start >= SENDFILE_BYTES and end <= self.size:
            return LogRange(self.shared.pool, self.file, start, end - start)
        try:
            data = read_fully(self.shared.pool.descriptor(self.file), end - start, start)
        except OSError as error:
            raise TreecastError(Fault.STORAGE, f"cannot read {self.file.path}: {error}") from error
        if len(data) != end - start:
            raise self._broken(start + len(data))
        return data

    # --- leaving

    def close(self) -> None:
        """Releases the file."""
        self.shared.closed(self)
