"""Walks over the records of a batch without making values of them: one pass, nothing allocated.

A record, after Kafka's protocol guide ("Record", magic 2); every number but `attributes` is a zigzag varint:

    length | attributes (int8) | timestampDelta | offsetDelta | keyLength | key | valueLength | value
           | headerCount | (keyLength | key | valueLength | value)*

A key, value or header value of length -1 is null.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from .varint import read_varint, read_varlong


class RecordFacts:
    """What a walk found: the first record without a key (-1: every one has a key), and the bounds of time."""

    def __init__(self, first_keyless: int, min_delta: int, max_delta: int) -> None:
        self.first_keyless: Final = first_keyless
        self.min_delta: Final = min_delta
        self.max_delta: Final = max_delta


def walk_records(data: bytes, position: int, count: int) -> RecordFacts:
    """Checks that `data` from `position` to its end is exactly `count` records, numbered from 0.

    Raises ValueError with the reason where it is not.
    """
    try:
        return _walk(data, position, count)
    except IndexError:
        raise ValueError(f"the records end before there are {count}") from None


def _walk(data: bytes, position: i64, count: i64) -> RecordFacts:
    size: i64 = len(data)
    first_keyless: i64 = -1
    min_delta: i64 = 0
    max_delta: i64 = 0
    index: i64 = 0
    while index < count:
        length, position = read_varint(data, position)
        if length < 0 or length > size - position:
            raise ValueError(f"record {index} is longer than the batch")
        end: i64 = position + length
        delta, position = read_varlong(data, position + 1)
        if index == 0:
            min_delta = max_delta = delta
        elif delta > max_delta:
            max_delta = delta
        elif delta < min_delta:
            min_delta = delta
        offset, position = read_varint(data, position)
        if offset != index:
            raise ValueError(f"record {index} has the offset delta {offset}")
        key_length, position = read_varint(data, position)
        if key_length < 0 and first_keyless < 0:
            first_keyless = index
        position = _skip(key_length, position, end)
        value_length, position = read_varint(data, position)
        position = _skip(value_length, position, end)
        headers, position = read_varint(data, position)
        if headers != 0:
            position = _skip_headers(data, position, headers, end)
        if position != end:
            raise ValueError(f"record {index} has {length} bytes, but its parts do not")
        index += 1
    if position != size:
        raise ValueError(f"bytes are left after {count} records")
    return RecordFacts(first_keyless, min_delta, max_delta)


def _skip(length: i64, position: i64, end: i64) -> i64:
    """The position after a key or value of `length` (-1: null)."""
    if length > end - position or length < -1:
        raise ValueError(f"a length of {length} does not fit the record")
    return position + length if length > 0 else position


def _skip_headers(data: bytes, position: i64, count: i64, end: i64) -> i64:
    if count < 0 or count > end - position:
        raise ValueError(f"a record cannot have {count} headers")
    while count > 0:
        length, position = read_varint(data, position)
        if length < 0:
            raise ValueError("a header has no key")
        position = _skip(length, position, end)
        length, position = read_varint(data, position)
        position = _skip(length, position, end)
        count -= 1
    return position
