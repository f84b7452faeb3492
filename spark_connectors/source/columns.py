"""Records of a batch directly into columns: one walk over the bytes, no object per record.

A hot module, compiled if there is a compiler. `wire.record_values.read_records` is the reference.
"""

from __future__ import annotations

from mypy_extensions import i64

from treecast.middleware.filters.records import RecordFilter
from treecast.middleware.model.records import Record
from treecast.middleware.wire.batch import BatchHeader, read_varint, read_varlong

Headers = list[tuple[str, bytes | None]]


class Columns:
    """One list a column; all have the same length. `headers` stays empty unless they are wanted."""

    def __init__(self, with_headers: bool) -> None:
        self.with_headers = with_headers
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.offsets: list[int] = []
        self.timestamps: list[int] = []  # ms since the Unix epoch
        self.timestamp_types: list[int] = []  # 0: by the producer, 1: by the log
        self.headers: list[Headers | None] = []

    def __len__(self) -> int:
        return len(self.offsets)

    def passing(self, wanted: RecordFilter) -> Columns:
        """Returns those that a filter lets pass. Daemons leave the others out beforehand, other brokers do
        not.
        """
        found = Columns(self.with_headers)
        for place in range(len(self.offsets)):
            headers = self.headers[place] if self.with_headers else None
            record = Record(
                self.keys[place],
                self.values[place],
                tuple(headers or ()),
                self.timestamps[place],
                self.offsets[place],
            )
            if wanted.matches(record):
                self._copy(place, found)
        return found

    def _copy(self, place: int, found: Columns) -> None:
        found.keys.append(self.keys[place])
        found.values.append(self.values[place])
        found.offsets.append(self.offsets[place])
        found.timestamps.append(self.timestamps[place])
        found.timestamp_types.append(self.timestamp_types[place])
        if self.with_headers:
            found.headers.append(self.headers[place])


def add_records(columns: Columns, header: BatchHeader, data: bytes, first: int, until: int) -> None:
    """Appends the records of a batch with offsets from `first` up to, not including, `until`.

    `data` are the batch's records, decompressed. Raises ValueError if they contradict the header; nothing is
    undone then.
    """
    try:
        _add(columns, header, data, first, until)
    except IndexError:
        raise ValueError(f"the records end before there are {header.count}") from None


def _add(columns: Columns, header: BatchHeader, data: bytes, first: i64, until: i64) -> None:
    base_offset: i64 = header.base_offset
    base_time: i64 = header.base_timestamp
    append_time: i64 = header.max_timestamp
    by_log = header.log_append_time
    kind = 1 if by_log else 0
    count: i64 = header.count
    size: i64 = len(data)
    position: i64 = 0
    index: i64 = 0
    keys, values, offsets = columns.keys, columns.values, columns.offsets
    times, kinds = columns.timestamps, columns.timestamp_types
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
            keys.append(_cut(data, position, length, end))
            position += length if length > 0 else 0
            length, position = read_varint(data, position)
            values.append(_cut(data, position, length, end))
            position += length if length > 0 else 0
            offsets.append(place)
            times.append(append_time if by_log else base_time + delta)
            kinds.append(kind)
            if columns.with_headers:
                columns.headers.append(_headers(data, position, end))
        position = end
        index += 1


def _cut(data: bytes, position: i64, length: i64, end: i64) -> bytes | None:
    if length < 0:
        return None
    if position + length > end:
        raise ValueError("a record's parts are longer than the record")
    return data[position : position + length]


def _headers(data: bytes, position: i64, end: i64) -> Headers | None:
    """Returns the headers; None if there are none, as in Spark's Kafka source."""
    count: i64 = 0
    length: i64 = 0
    count, position = read_varint(data, position)
    if count == 0:
        return None
    found: Headers = []
    while count > 0:
        length, position = read_varint(data, position)
        name = _cut(data, position, length, end)
        position += length if length > 0 else 0
        length, position = read_varint(data, position)
        value = _cut(data, position, length, end)
        position += length if length > 0 else 0
        found.append(((name or b"").decode("utf-8", "replace"), value))
        count -= 1
    return found
