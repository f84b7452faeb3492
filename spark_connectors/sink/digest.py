"""A digest of rows that does not depend on their order, without an object per row.

A hot module, compiled if there is a compiler. `tests/unit/spark/test_digest.py` has the plain reference, and
docs/spark.md the definition:

- A row is the sequence of its fields, in this order: topic, partition, timestamp, key, value, and for each
  header its name and its value. Null fields are left out.
- A field is a word of 64 bits, its length * 8 + the field's number, and its bytes in little-endian words,
  the last one filled up with zeros. Numbers are 8 bytes, timestamps are in ms.
- Two lanes of 32 bits take each word by the steps of MurmurHash3_x86_128, and are mixed at the end.
- The digest is the sum of the rows' lanes, each modulo 2^32.

It finds accidental differences; it is no protection against rows that are made to have the same digest.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i64_le
from mypy_extensions import i64

from .rows import Headers, Values

TOPIC: Final = 1
PARTITION: Final = 2
TIMESTAMP: Final = 3
KEY: Final = 4
VALUE: Final = 5
HEADER_NAME: Final = 6
HEADER_VALUE: Final = 7

_MASK: Final = 0xFFFFFFFF
# The constants of MurmurHash3, Austin Appleby, public domain. Those above 2^31 are written minus 2^32: a
# product of 32 bits by one then fits into 64 bits with a sign.
_C1: Final = 0x239B961B
_C2: Final = 0xAB0E9789 - 0x100000000
_C3: Final = 0x38B34AE5
_N1: Final = 0x561CCD1B
_N2: Final = 0x0BCAA747
_F1: Final = 0x85EBCA6B - 0x100000000
_F2: Final = 0xC2B2AE35 - 0x100000000


def _mixed(lane: i64) -> i64:
    """Returns MurmurHash3's final mix of 32 bits."""
    lane ^= lane >> 16
    lane = (lane * _F1) & _MASK
    lane ^= lane >> 13
    lane = (lane * _F2) & _MASK
    return lane ^ (lane >> 16)


def _last(data: bytes, at: i64, end: i64) -> i64:
    """Returns the word of less than 8 bytes."""
    word: i64 = 0
    place: i64 = 0
    while at < end:
        byte: i64 = data[at]
        word |= byte << place
        place += 8
        at += 1
    return word


class Digest:
    """The sum over all rows that were added. `topic`: of rows without one of their own."""

    def __init__(self, topic: str) -> None:
        self.first: i64 = 0
        self.second: i64 = 0
        self._a: i64 = 0
        self._b: i64 = 0
        self._begun_a: i64 = 0
        self._begun_b: i64 = 0
        if topic:
            self._text(TOPIC, topic.encode())
            self._begun_a, self._begun_b = self._a, self._b

    def add(
        self,
        topics: Values | None,
        partitions: Values | None,
        timestamps: Values | None,
        keys: Values | None,
        values: Values,
        headers: list[Headers | None] | None,
    ) -> None:
        """Adds one row for each of `values`. Columns that are not there are as if null in each row."""
        row: i64 = 0
        while row < values.count:
            self._a, self._b = self._begun_a, self._begun_b
            if topics is not None:
                self._field(TOPIC, topics, row)
            if partitions is not None:
                self._field(PARTITION, partitions, row)
            if timestamps is not None:
                self._field(TIMESTAMP, timestamps, row)
            if keys is not None:
                self._field(KEY, keys, row)
            self._field(VALUE, values, row)
            if headers is not None:
                found = headers[row]
                if found:
                    self._headers(found)
            self._close()
            row += 1

    def _field(self, number: i64, column: Values, row: i64) -> None:
        length = column.length(row)
        if length >= 0:
            self._bytes(number, column.data, read_i64_le(column.ends, row * 8), length)

    def _headers(self, found: Headers) -> None:
        for header in found:
            name, value = header["key"], header["value"]
            self._text(HEADER_NAME, b"" if name is None else str(name).encode())
            if isinstance(value, bytes):
                self._text(HEADER_VALUE, value)

    def _text(self, number: i64, data: bytes) -> None:
        self._bytes(number, data, 0, len(data))

    def _bytes(self, number: i64, data: bytes, at: i64, length: i64) -> None:
        """Takes the word of a field, and its bytes from `at` on."""
        a, b = self._a, self._b
        end: i64 = at + length
        word: i64 = length * 8 + number
        while True:
            low: i64 = ((word & _MASK) * _C1) & _MASK
            a ^= (((low << 15) | (low >> 17)) & _MASK) * _C2 & _MASK
            a = ((((a << 19) | (a >> 13)) & _MASK) + b) * 5 + _N1 & _MASK
            high: i64 = (((word >> 32) & _MASK) * _C2) & _MASK
            b ^= (((high << 16) | (high >> 16)) & _MASK) * _C3 & _MASK
            b = ((((b << 17) | (b >> 15)) & _MASK) + a) * 5 + _N2 & _MASK
            if at >= end:
                break
            word = read_i64_le(data, at) if at + 8 <= end else _last(data, at, end)
            at += 8
        self._a, self._b = a, b

    def _close(self) -> None:
        """Adds the row whose fields were taken."""
        a = (self._a + self._b) & _MASK
        b = (self._b + a) & _MASK
        a, b = _mixed(a), _mixed(b)
        a = (a + b) & _MASK
        self.first = (self.first + a) & _MASK
        self.second = (self.second + a + b) & _MASK
