"""Runs and pages in a log of blocks on disk, with the durable entries about the queues that hold them.

New data is gathered in memory and written as one block by `flush`, with the entries of the `journal`:

    runs and pages | entries of the journal (`entries`) | size of the entries (uint32)

A place is a number: segment (24 bits) | byte in the segment (40 bits). At that place lies

    size of the rest (uint32) | CRC-32C of the rest (uint32) | format (1) | flags (1) | priority (int16) |
    expiration (int64) | messages (uint32) | bytes of their bodies (uint32) | exchange, key | copies | hidden
    copies | deaths | data

with names as a length (uint16) and bytes, and lists as a count (uint16) and entries. A page is size, CRC and
its bytes. A segment in which nothing is held any more is removed, wherever it lies in the log, after its
entries about other segments have been rewritten.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sized
from typing import Final

from librt.strings import BytesWriter

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.block_log import BlockLog, BlockSegment, SyncTicket
from treecast.middleware.storage.disk import Disk, refused
from treecast.middleware.wire.crc import crc32c

from .journal import QueueJournal
from .message import Run, decode_run, encode_run

_HEAD: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">I")
_TRAILER: Final = 4
_BLOCK_HEAD: Final = 8  # bytes of the log's own header before each block
_OFFSET_BITS: Final = 40
_OFFSET: Final = (1 << _OFFSET_BITS) - 1
_OPEN_FILES: Final = 8
_LARGE: Final = 4 * 1024 * 1024  # more than this is written before the turn's end


class BlockStore:
    """The store in one directory, from `open` to `close`. Implements `store.RunStore` and `turn.Store`.

    `gathered`: bytes that are not yet written. `error`: the last disk error; `failing`: it persists.
    `unsynced`: entries were written and not yet forced to disk. Runs and pages alone need no sync: without
    entries they are not found after a restart.
    """

    def __init__(self, log: BlockLog, journal: QueueJournal, segment_bytes: int, syncs: bool) -> None:
        self.error = ""
        self.failing = False
        self.refusals = 0
        self.unsynced = False
        self.journal = journal
        self._log = log
        self._syncs = syncs
        self._segment_bytes = self._roll_at = segment_bytes
        self._segment = log.segments[-1]
        self._by_number = {segment.number: segment for segment in log.segments}
        self._out = BytesWriter()
        self._files: OrderedDict[int, int] = OrderedDict()
        self._defined = 0  # the segment that begins with the latest definitions
        self._needless: list[BlockSegment] = []  # segments in which nothing is held
        self._leaving: list[BlockSegment] = []  # their entries about others have been rewritten
        self._syncing: list[BlockSegment] = []  # a sync of the rewritten entries is running
        self.pending: tuple[Sized, ...] = (self._out, self._needless, *journal.pending)

    @classmethod
    def open(
        cls,
        directory: str,
        disk: Disk,
        journal: QueueJournal,
        read: Callable[[BlockSegment, bytes], None],
        *,
        segment_bytes: int = 16 << 20,
        syncs: bool = False,
    ) -> BlockStore:
        """Opens the store. `read` is called with each block in order, for `entries_in`. `begin` and `tidy`
        have to be called next. Raises STORAGE on a disk error.
        """
        return cls(BlockLog.open(directory, disk, syncs, read), journal, segment_bytes, syncs)

    def begin(self) -> None:
        """Begins the segment for new data, with the definitions. Raises STORAGE on a disk error."""
        try:
            if self._segment.size:
                self._roll()
            else:
                self._define()
        except OSError as error:
            raise refused(error, f"write {self._log.directory}") from error

    def tidy(self) -> None:
        """Removes segments that are not held, after the data of an earlier process is held again."""
        for segment in list(self._by_number.values()):
            self._drop_if_needless(segment)
        if not self.flush():
            raise TreecastError(Fault.STORAGE, self.error)

    @property
    def rolled(self) -> bool:
        """Whether full segments are not forced to the disk yet, or some may go once that is done."""
        return self._log.rolled or len(self._leaving) > 0

    @property
    def gathered(self) -> int:
        return len(self._out)

    @property
    def size(self) -> int:
        """The size on disk in bytes."""
        return self._log.size

    @property
    def segments(self) -> list[int]:
        """The numbers of the segments."""
        return [segment.number for segment in self._log.segments]

    # --- putting

    def put(self, run: Run) -> None:
        if run.place == 0:
            run.place = self._put(encode_run(run))

    def put_page(self, page: bytes) -> int:
        place = self._put(page)
        self.hold(place, 1)
        return place

    def _put(self, body: bytes) -> int:
        if len(self._out) > _LARGE:
            self._write(b"")
        place = self._segment.number << _OFFSET_BITS | (self._segment.size + _BLOCK_HEAD + len(self._out))
        self._out.write(_HEAD.pack(len(body), crc32c(body)))
        self._out.write(body)
        return place

    # --- the turn

    @property
    def only_notes(self) -> bool:
        """Whether nothing is gathered that deliveries would have to wait for."""
        return len(self._out) == 0 and self.journal.only_notes

    def flush(self) -> bool:
        """Writes the gathered data. Returns whether all is written; on an error the data stays in memory."""
        self._carry()
        entries = self.journal.gathered()
        if (len(self._out) or entries) and not self._write(entries):
            return False
        if self._segment.size >= self._roll_at and not self._rolled():
            return False
        if not self._syncs:
            self._remove(self._leaving)
            self._leaving = []
        return True

    def _write(self, entries: bytes) -> bool:
        body = self._out.getvalue() + entries + len(entries).to_bytes(_TRAILER, "big")
        try:
            self._log.append(body)
            self._out.truncate(0)
            if entries:
                self.unsynced = True
                self.journal.written(self._segment.number)
        except (OSError, TreecastError) as error:
            self._refused(str(error))
            return False
        self.failing = False
        return True

    def _rolled(self) -> bool:
        """Begins a segment. Returns whether it succeeded. Only called between turns, since a run and the
        entries about it have to be in one segment."""
        full = self._segment
        try:
            self._roll()
        except (OSError, TreecastError) as error:
            self._refused(str(error))
            return False
        self._drop_if_needless(full)
        return True

    def _refused(self, error: str) -> None:
        self.error = error
        self.failing = True
        self.refusals += 1

    def _roll(self) -> None:
        """Begins a segment with the definitions."""
        self._segment = self._log.roll()
        self._by_number[self._segment.number] = self._segment
        self._define()

    def _define(self) -> None:
        """Writes the definitions in one block, which makes them atomic."""
        entries = self.journal.snapshot()
        self._log.append(entries + len(entries).to_bytes(_TRAILER, "big"))
        self._defined = self._segment.number
        self._roll_at = max(self._segment_bytes, 4 * len(entries))
        self.unsynced = True

    def begin_sync(self) -> tuple[SyncTicket, int]:
        """Returns the sync to run beside the loop, and the number for `end_sync`. Raises OSError."""
        self.unsynced = False
        ticket = self._log.begin_sync()
        self._syncing, self._leaving = self._syncing + self._leaving, []
        return ticket, self._segment.number

    def end_sync(self, segment: int, error: str) -> None:
        """Handles the end of a sync; `error` is "" on success. Removes segments no longer needed."""
        syncing, self._syncing = self._syncing, []
        if error:
            self.unsynced = True
            self._leaving = syncing + self._leaving
            self._refused(error)
        else:
            self._remove(syncing)

    # --- holding

    def hold(self, place: int, count: int) -> None:
        self._by_number[place >> _OFFSET_BITS].live += count

    def let_go(self, place: int, count: int) -> None:
        segment = self._by_number[place >> _OFFSET_BITS]
        segment.live -= count
        assert segment.live >= 0
        self._drop_if_needless(segment)

    def _drop_if_needless(self, segment: BlockSegment) -> None:
        if segment.live or segment is self._segment or segment.number >= self._defined:
            return
        if self._by_number.pop(segment.number, None) is not None:
            self._needless.append(segment)

    def _carry(self) -> None:
        """Rewrites the entries of needless segments about other segments."""
        needless = list(self._needless)
        self._needless.clear()
        for segment in needless:
            needed = self.journal.needs(segment.number, self._by_number)
            if needed:
                self.journal.carry(needed, self.entries_of(segment.number))
            self._leaving.append(segment)

    def _remove(self, segments: list[BlockSegment]) -> None:
        for segment in segments:
            descriptor = self._files.pop(segment.number, -1)
            if descriptor >= 0:
                os.close(descriptor)
            self.journal.gone(segment.number)
            self._log.drop(segment)

    # --- reading

    def load(self, place: int) -> Run:
        run = decode_run(self._read(place))
        run.place = place
        return run

    def take_page(self, place: int) -> bytes:
        page = self._read(place)
        self.let_go(place, 1)
        return page

    def drop_page(self, place: int) -> None:
        self.let_go(place, 1)

    def _read(self, place: int) -> bytes:
        number, offset = place >> _OFFSET_BITS, place & _OFFSET
        if number == self._segment.number and offset >= self._segment.size:
            data = self._out.getvalue()
            at = offset - self._segment.size - _BLOCK_HEAD
            size, checksum = _HEAD.unpack_from(data, at)
            body = data[at + _HEAD.size : at + _HEAD.size + size]
        else:
            body, checksum = self._read_file(number, offset)
        if crc32c(body) != checksum:
            detail = f"{self._log.directory}: segment {number} is damaged at byte {offset}"
            raise TreecastError(Fault.STORAGE, detail)
        return body

    def _read_file(self, number: int, offset: int) -> tuple[bytes, int]:
        try:
            descriptor = self._file(number)
            size, checksum = _HEAD.unpack(os.pread(descriptor, _HEAD.size, offset))
            return os.pread(descriptor, size, offset + _HEAD.size), checksum
        except (OSError, struct.error) as error:
            reason = error if isinstance(error, OSError) else OSError(5, "the segment is shorter than it was")
            raise refused(reason, f"read {self._log.directory}") from error

    def entries_of(self, number: int) -> Iterator[bytes]:
        """Yields the journal's entries in each block of a segment. Raises STORAGE on a disk error."""
        offset, end = 0, self._size_of(number)
        try:
            descriptor = self._file(number)
            while offset < end:
                (size,) = _SIZE.unpack(os.pread(descriptor, _TRAILER, offset))
                offset += _BLOCK_HEAD + size
                (count,) = _SIZE.unpack(os.pread(descriptor, _TRAILER, offset - _TRAILER))
                if count:
                    yield os.pread(descriptor, count, offset - _TRAILER - count)
        except (OSError, struct.error) as error:
            reason = error if isinstance(error, OSError) else OSError(5, "the segment is shorter than it was")
            raise refused(reason, f"read {self._log.directory}") from error

    def _size_of(self, number: int) -> int:
        return next(segment.size for segment in self._log.segments if segment.number == number)

    def _file(self, number: int) -> int:
        descriptor = self._files.get(number)
        if descriptor is None:
            descriptor = self._files[number] = self._log.open_segment(number)
            if len(self._files) > _OPEN_FILES:
                os.close(self._files.popitem(last=False)[1])
        else:
            self._files.move_to_end(number)
        return descriptor

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
        self._log.close()


def entries_in(block: bytes) -> bytes:
    """Returns the journal's part of a block."""
    size = int.from_bytes(block[-_TRAILER:], "big")
    return block[len(block) - _TRAILER - size : len(block) - _TRAILER]
