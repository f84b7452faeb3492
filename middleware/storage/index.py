"""The sparse indexes of one segment, in Kafka's file formats (big-endian, no header, no padding).

  .index      relative offset int32, position int32        8 bytes
  .timeindex  timestamp int64 (ms), relative offset int32  12 bytes

An offset entry holds the last offset of a batch and the position where that batch begins. A time entry holds
the largest timestamp so far and the last offset of the batch that has it. Both only grow. In memory they have
the form of their files; entries that a file lacks are found by scanning the segment.
"""

from __future__ import annotations

import struct
from typing import Final

from treecast.middleware.wire.crc import crc32c

OFFSET_ENTRY: Final = 8
TIME_ENTRY: Final = 12

_OFFSET: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")
_TIME: Final = struct.Struct(">qi")
_INT64: Final = struct.Struct(">q")

NO_TIMESTAMP: Final = -1


class OffsetIndex:
    """Offset to position, one entry every index.interval.bytes.

    In addition to the file's bytes, it holds in memory, if all entries were made in this process, the size of
    each entry's batch and the next offset of a reader who has read everything before it.
    """

    def __init__(self, base_offset: int, data: bytearray | None = None) -> None:
        self.base_offset = base_offset
        self.data = bytearray() if data is None else data
        self._batches = bytearray()  # relative offset, size; for each entry or for none

    def __len__(self) -> int:
        return len(self.data) // OFFSET_ENTRY

    def append(self, last_offset: int, position: int, after: int = -1, size: int = 0) -> None:
        """Adds an entry. `after` is the last offset before the batch plus one, -1 if unknown; `size` is the
        batch's bytes.
        """
        if after >= 0 and len(self._batches) == len(self.data):
            self._batches += _OFFSET.pack(after - self.base_offset, size)
        self.data += _OFFSET.pack(last_offset - self.base_offset, position)

    def cut(self, number: int, limit: int) -> int:
        """Returns the next offset after all batches before the entry's, if the entry's batch is known to end
        after the position `limit`; else -1.
        """
        at = number * OFFSET_ENTRY
        if number < 0 or at >= len(self._batches):
            return -1
        relative, size = _OFFSET.unpack_from(self._batches, at)
        return self.base_offset + relative if self._position(number) + size > limit else -1

    @property
    def size(self) -> int:
        """The size in memory in bytes."""
        return len(self.data) + len(self._batches)

    def entry(self, number: int) -> tuple[int, int]:
        """Returns (last offset of the batch, its position)."""
        relative, position = _OFFSET.unpack_from(self.data, number * OFFSET_ENTRY)
        return self.base_offset + relative, position

    def find_offset(self, offset: int) -> int:
        """Returns the last entry whose offset is at most `offset`, or -1. Its batch does not lie after
        `offset`.
        """
        wanted = offset - self.base_offset
        low, high = 0, len(self.data) // OFFSET_ENTRY
        while low < high:
            middle = (low + high) // 2
            relative: int = _INT32.unpack_from(self.data, middle * OFFSET_ENTRY)[0]
            if relative <= wanted:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def find_position(self, limit: int) -> int:
        """Returns the last entry whose position is at most `limit`, or -1.

        Positions grow nearly evenly, so the search starts at the interpolated entry and widens from there.
        """
        count = len(self.data) // OFFSET_ENTRY
        if not count:
            return -1
        last = self._position(count - 1)
        if last <= limit:
            return count - 1
        low, high = self._around(max(limit, 0) * count // max(last, 1), count, limit)
        while low < high:
            middle = (low + high) // 2
            if self._position(middle) <= limit:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _around(self, guess: int, count: int, limit: int) -> tuple[int, int]:
        """Returns (low, high): entries before `low` are at most `limit`, and those from `high` on are above
        it.
        """
        step = 1
        low = high = guess
        if self._position(guess) <= limit:
            while high < count and self._position(high) <= limit:
                low = high + 1
                high = min(low + step, count)
                step *= 2
        else:
            while low > 0 and self._position(low) > limit:
                high = low
                low = max(high - step, 0)
                step *= 2
        return low, high

    def _position(self, number: int) -> int:
        position: int = _INT32.unpack_from(self.data, number * OFFSET_ENTRY + 4)[0]
        return position

    def truncate(self, position: int) -> None:
        """Removes entries of batches at or after `position`."""
        count = len(self)
        while count and self._position(count - 1) >= position:
            count -= 1
        del self.data[count * OFFSET_ENTRY :]
        del self._batches[count * OFFSET_ENTRY :]

    def sane(self, size: int) -> bool:
        """Returns whether this can be the index of a segment of `size` bytes. An entry is trusted only after
        a check against the batch that it points to (`Segment.locate`).
        """
        count = len(self)
        return len(self.data) % OFFSET_ENTRY == 0 and (not count or 0 <= self._position(count - 1) < size)


class TimeIndex:
    """Timestamp to offset: an entry for each offset entry at which the largest timestamp has grown."""

    def __init__(self, base_offset: int, data: bytearray | None = None) -> None:
        self.base_offset = base_offset
        self.data = bytearray() if data is None else data

    def __len__(self) -> int:
        return len(self.data) // TIME_ENTRY

    def append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if its timestamp exceeds the last one."""
        if timestamp > self.last()[0]:
            self.data += _TIME.pack(timestamp, offset - self.base_offset)

    def entry(self, number: int) -> tuple[int, int]:
        """Returns (timestamp, offset)."""
        timestamp, relative = _TIME.unpack_from(self.data, number * TIME_ENTRY)
        return timestamp, self.base_offset + relative

    def last(self) -> tuple[int, int]:
        """Returns the largest timestamp and its offset, or (-1, base offset)."""
        count = len(self)
        return self.entry(count - 1) if count else (NO_TIMESTAMP, self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """Returns an offset before which all records are earlier than `timestamp`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            found: int = _INT64.unpack_from(self.data, middle * TIME_ENTRY)[0]
            if found <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1)[1] if low else self.base_offset

    def truncate(self, offset: int) -> None:
        """Removes entries at or after `offset`."""
        count = len(self)
        while count and self.entry(count - 1)[1] >= offset:
            count -= 1
        del self.data[count * TIME_ENTRY :]

    def sane(self, next_offset: int) -> bool:
        """Returns whether this can be the index of a segment that ends at `next_offset`: both values strictly
        grow.
        """
        if len(self.data) % TIME_ENTRY:
            return False
        last_timestamp, last_relative = NO_TIMESTAMP, -1
        for timestamp, relative in _TIME.iter_unpack(self.data):
            if timestamp <= last_timestamp or relative <= last_relative:
                return False
            last_timestamp, last_relative = timestamp, relative
        return self.base_offset + last_relative < next_offset


class SegmentIndexes:
    """Both indexes of one segment, with the growth since their last entries."""

    def __init__(self, offsets: OffsetIndex, times: TimeIndex, *, from_file: bool = False) -> None:
        self.offsets = offsets
        self.times = times
        self.from_file = from_file
        self.max_timestamp, self.max_timestamp_offset = times.last()
        self.unindexed = 0  # bytes since the last entry
        self.after = -1  # the offset after the last noted batch

    def note(self, last_offset: int, max_timestamp: int, position: int, size: int, interval: int) -> None:
        """Notes a batch of `size` bytes at `position`, and adds an entry every `interval` bytes.

        `LogWriter` does the same in place.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.unindexed > interval:
            self.add_entries(last_offset, position, size)
        self.unindexed += size
        self.after = last_offset + 1

    def add_entries(self, last_offset: int, position: int, size: int) -> None:
        """Adds an entry for the batch of `size` bytes at `position`."""
        self.offsets.append(last_offset, position, self.after, size)
        self.times.append(self.max_timestamp, self.max_timestamp_offset)
        self.unindexed = 0

    def finish(self) -> None:
        """Makes the time index end with the largest timestamp."""
        if self.max_timestamp >= 0:
            self.times.append(self.max_timestamp, self.max_timestamp_offset)

    @property
    def crc(self) -> int:
        """CRC-32C of both indexes."""
        crc: int = crc32c(bytes(self.times.data), crc32c(bytes(self.offsets.data)))
        return crc

    @property
    def size(self) -> int:
        return self.offsets.size + len(self.times.data)


def empty_indexes(base_offset: int) -> SegmentIndexes:
    return SegmentIndexes(OffsetIndex(base_offset), TimeIndex(base_offset))
