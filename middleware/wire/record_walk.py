"""A walk over a batch's records that creates no values: one pass, no allocation.

A record, after Kafka's protocol guide ("Record", magic 2); every number but `attributes` is a zigzag varint:

  length | attributes (int8) | timestampDelta | offsetDelta | keyLength | key | valueLength | value
         | headerCount | (keyLength | key | valueLength | value)*

A key, value or header value of length -1 is null.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from .varint import read_varint, read_varlong

_CONTINUED: Final = 0x80  # a varint's byte with this bit is followed by another
_LOW: Final = 0x7F  # the bits of such a byte that belong to the number
_NULL: Final = 1  # the length -1 as a varint


class RecordFacts:
    """The result of a walk: the index of the first record without a key (-1 if all have one), and the time
    bounds.
    """

    def __init__(self, first_keyless: int, min_delta: int, max_delta: int) -> None:
        self.first_keyless: Final = first_keyless
        self.min_delta: Final = min_delta
        self.max_delta: Final = max_delta


def walk_records(data: bytes, position: int, count: int) -> RecordFacts:
    """Checks that `data` from `position` to its end is exactly `count` records, numbered from 0.

    Raises ValueError with the reason.
    """
    try:
        return _walk(data, position, count)
    except IndexError:
        raise ValueError(f"the records end before there are {count}") from None


def _walk(data: bytes, position: i64, count: i64) -> RecordFacts:
    """Walks the records. Reads varints of one and two bytes, the most common ones, in place: calls would
    double the time.
    """
    size: i64 = len(data)
    first_keyless: i64 = -1
    min_delta: i64 = 0
    max_delta: i64 = 0
    number: i64 = 0
    following: i64 = 0
    index: i64 = 0
    while index < count:
        number = data[position]
        if number < _CONTINUED:
            number = (number >> 1) ^ -(number & 1)
            position += 1
        else:
            following = data[position + 1]
            if following < _CONTINUED:
                number = (number & _LOW) | following << 7
                number = (number >> 1) ^ -(number & 1)
                position += 2
            else:
                number, position = read_varint(data, position)
        if number < 0 or number > size - position:
            raise ValueError(f"record {index} is longer than the batch")
        end: i64 = position + number
        position += 1
        number = data[position]
        if number < _CONTINUED:
            number = (number >> 1) ^ -(number & 1)
            position += 1
        else:
            number, position = read_varlong(data, position)
        if index == 0:
            min_delta = max_delta = number
        elif number > max_delta:
            max_delta = number
        elif number < min_delta:
            min_delta = number
        number = data[position]
        if number < _CONTINUED:
            number = (number >> 1) ^ -(number & 1)
            position += 1
        else:
            following = data[position + 1]
            if following < _CONTINUED:
                number = (number & _LOW) | following << 7
                number = (number >> 1) ^ -(number & 1)
                position += 2
            else:
                number, position = read_varint(data, position)
        if number != index:
            raise ValueError(f"record {index} has the offset delta {number}")
        number = data[position]
        if number == _NULL:
            position += 1
            if first_keyless < 0:
                first_keyless = index
        else:
            position = _skip_bytes(data, position, end)
        position = _skip_bytes(data, position, end)
        number = data[position]
        if number == 0:
            position += 1
        else:
            number, position = read_varint(data, position)
            position = _skip_headers(data, position, number, end)
        if position != end:
            raise ValueError(f"record {index} does not have the length of its parts")
        index += 1
    if position != size:
        raise ValueError(f"bytes are left after {count} records")
    return RecordFacts(first_keyless, min_delta, max_delta)


def _skip_bytes(data: bytes, position: i64, end: i64) -> i64:
    """Returns the position after a key or value, its length included."""
    length: i64 = data[position]
    if length < _CONTINUED:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    else:
        following: i64 = data[position + 1]
        if following < _CONTINUED:
            length = (length & _LOW) | following << 7
            length = (length >> 1) ^ -(length & 1)
            position += 2
        else:
            length, position = read_varint(data, position)
    return _skip(length, position, end)


def _skip(length: i64, position: i64, end: i64) -> i64:
    """Returns the position after a key or value of `length` (-1: null)."""
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
