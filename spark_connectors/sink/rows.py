"""Rows into the records of batches, without an object per record.

A hot module, compiled if there is a compiler. `wire.record_values.build_batch` is the reference.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_le
from mypy_extensions import i64

_TABLE: Final = 1 << 14  # numbers with precomputed bytes
_MASK: Final = 0xFFFFFFFF
_MURMUR: Final = 0x5BD1E995

Headers = list[dict[str, object]]


def _spelled(number: i64) -> bytes:
    """Returns a signed number, zigzag, 7 bits a byte, lowest first."""
    raw: i64 = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw < 0 or raw >= 0x80:
        out.append((raw & 0x7F) | 0x80)
        raw = (raw >> 7) & 0x01FF_FFFF_FFFF_FFFF
    out.append(raw)
    return bytes(out)


_NUMBERS: Final[list[bytes]] = [_spelled(number) for number in range(_TABLE)]
_NULL: Final = b"\x01"  # -1
_ATTRIBUTES: Final = 0
_NO_HEADERS: Final = b"\0"


def _number(number: i64) -> bytes:
    if 0 <= number < _TABLE:
        return _NUMBERS[number]
    return _spelled(number)


class Pending:
    """The records of one partition that wait to be sent. Times in ms since the Unix epoch."""

    def __init__(self) -> None:
        self.out = BytesWriter()
        self.count: i64 = 0
        self.size: i64 = 0
        self.base_time: i64 = 0
        self.max_time: i64 = 0

    def body(self) -> bytes:
        return self.out.getvalue()

    def take_time(self, time: i64) -> i64:
        """Returns how long after the first record's time that of the next one is."""
        if self.count == 0:
            self.base_time = self.max_time = time
        elif time > self.max_time:
            self.max_time = time
        return time - self.base_time


class Values:
    """A column of values as Arrow has it: row n is `data` from the n-th of `ends` (int64) to the next one.

    `present` is a byte for each row, 0 if it is null, and empty if no row is.
    """

    def __init__(self, count: int, ends: bytes, data: bytes, present: bytes) -> None:
        """Raises ValueError if `ends` and `present` are not of that length."""
        if len(ends) != 8 * (count + 1) or len(present) not in (0, count):
            raise ValueError(f"these are not {count} values")
        self.count: i64 = count
        self.ends = ends
        self.data = data
        self.present = present
        self._all_there = len(present) == 0

    def length(self, row: i64) -> i64:
        """Returns the length; -1 for null."""
        if self._all_there or self.present[row] != 0:
            return read_i64_le(self.ends, row * 8 + 8) - read_i64_le(self.ends, row * 8)
        return -1


def add_rows(
    pending: list[Pending],
    places: list[int] | None,
    place: int,
    keys: list[bytes | None] | None,
    values: Values,
    times: list[int] | None,
    now: int,
    headers: list[Headers | None] | None,
    first: int,
    limit: int,
) -> int:
    """Appends rows from `first` on: each to `pending[places[row]]`, or all to `pending[place]`.

    `keys`, `times` and `headers` may be missing as columns; a row then has no key, `now`, and no headers.
    Stops after the row that makes one of `pending` larger than `limit`; returns the next row.
    """
    row: i64 = first
    most: i64 = limit
    time: i64 = now
    ends, data = values.ends, values.data
    target = pending[place]
    out = target.out
    while row < values.count:
        if places is not None:
            target = pending[places[row]]
            out = target.out
        if times is not None:
            time = times[row]
        stamp = _number(target.take_time(time))
        order = _number(target.count)
        key = None if keys is None else keys[row]
        named = _NULL if key is None else _number(len(key))
        length = values.length(row)
        spelled = _NULL if length < 0 else _number(length)
        size: i64 = 2 + len(stamp) + len(order) + len(named) + len(spelled)
        if key is not None:
            size += len(key)
        if length > 0:
            size += length
        tail = _NO_HEADERS
        if headers is not None:
            found = headers[row]
            if found:
                tail = _headers(found)
                size += len(tail) - 1
        spelled_size = _number(size)
        out.write(spelled_size)
        out.append(_ATTRIBUTES)
        out.write(stamp)
        out.write(order)
        out.write(named)
        if key is not None:
            out.write(key)
        out.write(spelled)
        if length > 0:
            start = read_i64_le(ends, row * 8)
            out.write(data[start : start + length])
        out.write(tail)
        target.count += 1
        target.size += size + len(spelled_size)
        row += 1
        if target.size > most:
            break
    return row


def _headers(found: Headers) -> bytes:
    pieces = [_number(len(found))]
    for header in found:
        name, value = header["key"], header["value"]
        raw = b"" if name is None else str(name).encode()
        pieces.append(_number(len(raw)))
        pieces.append(raw)
        if isinstance(value, bytes):
            pieces.append(_number(len(value)))
            pieces.append(value)
        else:
            pieces.append(_NULL)
    return b"".join(pieces)


def by_key(keys: list[bytes | None], partitions: int, without: int) -> list[int]:
    """Returns the partition of each key as Kafka's own producers choose it (murmur2); `without` for
    no key.
    """
    found: list[int] = []
    for key in keys:
        if key is None:
            found.append(without)
        else:
            found.append((murmur2(key) & 0x7FFFFFFF) % partitions)
    return found


def murmur2(data: bytes) -> int:
    """Returns Austin Appleby's MurmurHash2 with Kafka's seed, as an unsigned number of 32 bits."""
    length: i64 = len(data)
    mixed: i64 = (0x9747B28C ^ length) & _MASK
    place: i64 = 0
    while place + 4 <= length:
        word: i64 = data[place]
        word |= (data[place + 1] << 8) | (data[place + 2] << 16)
        byte: i64 = data[place + 3]
        word |= byte << 24
        word = (word * _MURMUR) & _MASK
        word ^= word >> 24
        word = (word * _MURMUR) & _MASK
        mixed = ((mixed * _MURMUR) & _MASK) ^ word
        place += 4
    left: i64 = length - place
    if left == 3:
        mixed ^= data[place + 2] << 16
    if left >= 2:
        mixed ^= data[place + 1] << 8
    if left >= 1:
        mixed ^= data[place]
        mixed = (mixed * _MURMUR) & _MASK
    mixed ^= mixed >> 13
    mixed = (mixed * _MURMUR) & _MASK
    mixed ^= mixed >> 15
    return mixed
