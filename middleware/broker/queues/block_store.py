"""Runs and pages in a log of blocks on the disk: what queues hold beyond what memory has room for.

What is put gathers in memory and is written as one block by `flush`, once a turn. A place is a number that
says where: segment (24 bits) | byte in it (40 bits). There lies

    size of the rest (uint32) | CRC-32C of the rest (uint32) | format (1) | flags (1) | priority (int16) |
    expiration (int64) | messages (uint32) | bytes of their bodies (uint32) | exchange, key | copies | hidden
    copies | deaths | data

with names as a length (uint16) and bytes, lists as a count (uint16) and their entries; a page is the same
head and its bytes. A segment in which nothing is held any more is removed, wherever it lies.
"""

from __future__ import annotations

import os
import struct
from collections import OrderedDict
from typing import Final

from librt.strings import BytesWriter

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.block_log import BlockLog, BlockSegment
from treecast.middleware.storage.disk import Disk, refused
from treecast.middleware.wire.crc import crc32c

from . import block_codec
from .message import Run

_HEAD: Final = struct.Struct(">II")
_BLOCK_HEAD: Final = 8  # of the log's own, before each block
_OFFSET_BITS: Final = 40
_OFFSET: Final = (1 << _OFFSET_BITS) - 1
_OPEN_FILES: Final = 8
_LARGE: Final = 4 * 1024 * 1024  # what gathers is written before the turn's end beyond that


class BlockStore:
    """The store in one directory, from `open` to `close`. `gathered`: bytes that are not written yet.

    `error`: why the disk refused last, "" where it never did.

    What an earlier process has left there is removed by opening: nobody knows its places any more.
    """

    def __init__(self, log: BlockLog, segment_bytes: int) -> None:
        self.error = ""
        self._log = log
        self._segment_bytes = segment_bytes
        self._segment = log.segments[-1]
        self._by_number: dict[int, BlockSegment] = {self._segment.number: self._segment}
        self._out = BytesWriter()
        self._files: OrderedDict[int, int] = OrderedDict()

    @classmethod
    def open(cls, directory: str, disk: Disk, *, segment_bytes: int = 64 << 20) -> BlockStore:
        """Opens it empty. STORAGE where the disk refuses."""
        log = BlockLog.open(directory, disk, False, _ignore)
        try:
            if log.segments[-1].size:
                log.roll()
            while len(log.segments) > 1:
                log.drop_first()
        except OSError as error:
            raise refused(error, f"empty {directory}") from error
        return cls(log, segment_bytes)

    @property
    def gathered(self) -> int:
        return len(self._out)

    @property
    def failing(self) -> bool:
        """Whether the disk refused what was written last."""
        return bool(self.error)

    @property
    def promising(self) -> bool:
        return False

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._log.size

    # --- putting

    def put(self, run: Run) -> None:
        if run.place == 0:
            run.place = self._put(block_codec.encode(run))

    def put_page(self, page: bytes) -> int:
        place = self._put(page)
        self.hold(place, 1)
        return place

    def _put(self, body: bytes) -> int:
        if len(self._out) > _LARGE:
            self.flush()
        place = self._segment.number << _OFFSET_BITS | (self._segment.size + _BLOCK_HEAD + len(self._out))
        self._out.write(_HEAD.pack(len(body), crc32c(body)))
        self._out.write(body)
        return place

    def flush(self) -> bool:
        """Writes what has gathered; whether all is written. What the disk refuses stays in memory."""
        if len(self._out) == 0:
            return True
        try:
            self._log.append(self._out.getvalue())
            self._out.truncate(0)
            self.error = ""
            if self._segment.size >= self._segment_bytes:
                self._roll()
        except (OSError, TreecastError) as error:
            self.error = str(error)
            return False
        return True

    def _roll(self) -> None:
        full = self._segment
        self._segment = self._log.roll()
        self._by_number[self._segment.number] = self._segment
        self._drop_if_needless(full)

    # --- holding

    def hold(self, place: int, count: int) -> None:
        self._by_number[place >> _OFFSET_BITS].live += count

    def let_go(self, place: int, count: int) -> None:
        segment = self._by_number[place >> _OFFSET_BITS]
        segment.live -= count
        assert segment.live >= 0
        self._drop_if_needless(segment)

    def _drop_if_needless(self, segment: BlockSegment) -> None:
        if segment.live or segment is self._segment:
            return
        descriptor = self._files.pop(segment.number, -1)
        if descriptor >= 0:
            os.close(descriptor)
        del self._by_number[segment.number]
        try:
            self._log.drop(segment)
        except OSError as error:
            raise refused(error, f"empty {self._log.directory}") from error

    # --- reading

    def load(self, place: int) -> Run:
        run = block_codec.decode(self._read(place))
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


def _ignore(segment: BlockSegment, block: bytes) -> None:
    """Nobody knows its places."""
