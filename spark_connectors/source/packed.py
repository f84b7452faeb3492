"""Records of a batch directly into Arrow's buffers: one walk over the bytes, and no object per row.

A hot module, compiled if there is a compiler. `columns.add_records` is the reference.
"""

from __future__ import annotations

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from treecast.middleware.wire.batch import BatchHeader, read_varint, read_varlong


class Blobs:
    """Keys or values as Arrow holds a column of type binary.

    `ends`: an int32 for 0 and for the end of each in `data`; `present`: a byte each, 0 if it is null. While
    all are null, nothing is in the two: topics without keys cost nothing.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self.nulls: i64 = 0
        self.size: i64 = 0
        self.ends = BytesWriter()
        self.present = BytesWriter()
        self.data = BytesWriter()

    def add(self, data: bytes, position: i64, length: i64) -> None:
        """Appends `data[position : position + length]`, or null if `length` is negative."""
        if length >= 0:
            if self.nulls == self.count:
                self._begin()
            self.data.write(data[position : position + length])
            self.size += length
            write_i32_le(self.ends, i32(self.size))
            self.present.append(1)
        else:
            if self.nulls != self.count:
                write_i32_le(self.ends, i32(self.size))
                self.present.append(0)
            self.nulls += 1
        self.count += 1

    def _begin(self) -> None:
        """Prepares the buffers before the first value that is not null."""
        write_i32_le(self.ends, 0)
        row: i64 = 0
        while row < self.count:
            write_i32_le(self.ends, 0)
            self.present.append(0)
            row += 1


class Packed:
    """Columns without headers. All have the same length.

    `offsets`: int64; `timestamps`: int64, ms since the Unix epoch; `timestamp_types`: int32, 0 by the
    producer, 1 by the log. All are little-endian, as Arrow's buffers on the machines that Spark runs on. The
    bytes of keys and of values must stay below 2 GiB each: the caller starts new columns in time.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self.keys = Blobs()
        self.values = Blobs()
        self.offsets = BytesWriter()
        self.timestamps = BytesWriter()
        self.timestamp_types = BytesWriter()

    def __len__(self) -> int:
        return self.count


def add_packed(packed: Packed, header: BatchHeader, data: bytes, first: int, until: int) -> None:
    """Appends the records of a batch with offsets from `first` up to, not including, `until`.

    `data` are the batch's records, decompressed. Raises ValueError if they contradict the header; nothing is
    undone then.
    """
    try:
        _add(packed, header, data, first, until)
    except IndexError:
        raise ValueError(f"the records end before there are {header.count}") from None
    except OverflowError:  # raised when interpreted
        raise ValueError("a time or an offset is more than 64 bits hold") from None


def _add(packed: Packed, header: BatchHeader, data: bytes, first: i64, until: i64) -> None:
    base_offset: i64 = header.base_offset
    base_time: i64 = header.base_timestamp
    append_time: i64 = header.max_timestamp
    by_log = header.log_append_time
    kind: i32 = 1 if by_log else 0
    count: i64 = header.count
    size: i64 = len(data)
    position: i64 = 0
    index: i64 = 0
    keys, values, offsets = packed.keys, packed.values, packed.offsets
    times, kinds = packed.timestamps, packed.timestamp_types
    while index < count:
        length: i64 = 0
        length, position = read_varint(data, position)
        end: i64 = position + length
        if length < 0 or end > size:
            raise ValueError(f"record {index} is longer than the batch")
        delta: i64 = 0
        place: i64 = 0
        delta, position = read_varlong(data, position + 1)
        place, position = read_varint(data, position)
        place += base_offset
        if place >= until:
            return
        if place >= first:
            length, position = read_varint(data, position)
            if length >= 0 and position + length > end:
                raise ValueError("a record's parts are longer than the record")
            keys.add(data, position, length)
            position += length if length > 0 else 0
            length, position = read_varint(data, position)
            if length >= 0 and position + length > end:
                raise ValueError("a record's parts are longer than the record")
            values.add(data, position, length)
            write_i64_le(offsets, place)
            write_i64_le(times, append_time if by_log else base_time + delta)
            write_i32_le(kinds, kind)
            packed.count += 1
        position = end
        index += 1
