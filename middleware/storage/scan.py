"""A scan of the batches in a segment file, for recovery, index rebuilding and compaction."""

from __future__ import annotations

import os
from typing import Final

from treecast.middleware.wire.crc import crc32c
from treecast.middleware.wire.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, read_header

_CRC_FROM: Final = 21
_SMALLEST: Final = HEADER_SIZE
HEADER_BLOCK: Final = 64 * 1024
WHOLE_BLOCK: Final = 1024 * 1024


class BatchScanner:
    """Reads `descriptor` from `position` up to `size`, a block at a time.

    `next()` is None at the end and at the first batch that is truncated or invalid; `position` is then its
    place, and `reason` states the reason ("" at the proper end).
    """

    def __init__(self, descriptor: int, position: int, size: int, *, whole: bool) -> None:
        self.position = position  # of the batch that `next` returned; finally of the end
        self.reason = ""
        self._descriptor = descriptor
        self._size = size
        self._whole = whole  # whether the scan reads more than batches' headers
        self._block_bytes = WHOLE_BLOCK if whole else HEADER_BLOCK
        self._block = memoryview(b"")
        self._start = position  # of the block in the file
        self._following = position

    def next(self) -> BatchHeader | None:
        """Returns the next batch's header; None at the end."""
        self.position = self._following
        if self.position >= self._size:
            return None
        if not self._have(HEADER_SIZE):
            self.reason = "torn header"
            return None
        header = read_header(self._block, self.position - self._start)
        if header.size < _SMALLEST or header.magic != MAGIC or header.last_offset_delta < 0:
            self.reason = "not a batch"
            return None
        if self.position + header.size > self._size:
            self.reason = "torn batch"
            return None
        if self._whole and not self._have(header.size):
            self.reason = "torn batch"
            return None
        self._following = self.position + header.size
        return header

    def batch(self, header: BatchHeader) -> memoryview:
        """Returns the bytes of the batch that `next` returned last (only with `whole`)."""
        start = self.position - self._start
        return self._block[start : start + header.size]

    def checksum_fits(self, header: BatchHeader) -> bool:
        """Returns whether the CRC-32C of the batch that `next` returned last is right (only with `whole`)."""
        start = self.position - self._start
        found: int = crc32c(self._block[start + _CRC_FROM : start + header.size])
        return found == header.crc

    def _have(self, size: int) -> bool:
        """Makes the block hold `size` bytes from `position`; returns whether it does."""
        if self.position + size <= self._start + len(self._block) and self.position >= self._start:
            return True
        wanted = max(size, self._block_bytes)
        wanted = min(wanted, self._size - self.position)
        self._block = memoryview(read_fully(self._descriptor, wanted, self.position))
        self._start = self.position
        return len(self._block) >= size


def read_fully(descriptor: int, size: int, position: int) -> bytes:
    """Returns `size` bytes from `position`, or fewer at the end of the file."""
    data = os.pread(descriptor, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    missing = size - len(data)
    while missing > 0:
        data = os.pread(descriptor, missing, position + size - missing)
        if not data:
            break
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def plausible(header: BatchHeader, expected_offset: int, base_offset: int) -> bool:
    """Returns whether a batch may follow at `expected_offset` or later, in a segment that begins at
    `base_offset`.
    """
    return header.base_offset >= expected_offset and header.last_offset - base_offset < 2**31


__all__ = ["HEADER_BLOCK", "LOG_OVERHEAD", "BatchScanner", "plausible", "read_fully"]
