"""Runs of publishes: messages without properties, one after the other, as the bytes of MQTT's PUBLISH.

A run is whole packets of one QoS, neither duplicates nor retained. `format` says how a body is laid out; its
numbers are MQTT's protocol levels:

    0x30 | remaining length | topic length (2), topic | format 5: 0x00 | payload                      QoS 0
    0x32 | remaining length | topic length (2), topic | packet id (2) | format 5: 0x00 | payload      QoS 1

The remaining length has seven bits a byte, lowest first, at most four bytes. The broker keeps publishes in
this form, and event streams carry them in it, so that whoever speaks the format is sent the very bytes. What
is here takes the word of `RunScan`, or of `count_run`, that a run is in order, and looks at lengths only.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_le
from mypy_extensions import i64

PUBLISH_0: Final = 0x30  # the first byte of a publish of QoS 0, new and not retained
PUBLISH_1: Final = 0x32  # and of QoS 1
PLAIN: Final = 4  # the format of MQTT 3.1.1
WITH_PROPERTIES: Final = 5  # that of MQTT 5: a body says how long its properties are


def write_varint(out: BytesWriter, value: int) -> None:
    """Writes a remaining length."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def head_at(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """(remaining length, where the body begins) of the packet at `at`; (-1, 0) where its length is not all
    there, or longer than need be."""
    at += 1
    if at >= end:
        return -1, 0
    size: i64 = data[at]
    if size < 0x80:
        return size, at + 1
    size &= 0x7F
    shift: i64 = 7
    while shift <= 21:
        at += 1
        if at >= end:
            return -1, 0
        byte: i64 = data[at]
        size |= (byte & 0x7F) << shift
        if byte == 0:
            return -1, 0
        if byte < 0x80:
            return size, at + 1
        shift += 7
    return -1, 0


def section(data: bytes, begin: int, end: int) -> bytes:
    """`data[begin:end]`; all of it is not copied."""
    return data if begin == 0 and end == len(data) else data[begin:end]


def uint16_at(data: bytes, at: i64) -> i64:
    high: i64 = data[at]
    low: i64 = data[at + 1]
    return high << 8 | low


def same(data: bytes, one: i64, other: i64, size: i64) -> bool:
    """Whether the `size` bytes at two places are the same."""
    while size >= 8:
        if read_i64_le(data, one) != read_i64_le(data, other):
            return False
        one += 8
        other += 8
        size -= 8
    while size > 0:
        if data[one] != data[other]:
            return False
        one += 1
        other += 1
        size -= 1
    return True


def skip(data: bytes, at: i64, most: i64, room: i64) -> tuple[i64, i64, i64]:
    """Steps over at most `most` packets, of which the last begins within `room` bytes: (how many, where the
    next begins, the sum of their remaining lengths)."""
    end: i64 = len(data)
    begin = at
    count: i64 = 0
    lengths: i64 = 0
    while count < most and at - begin <= room:
        size, body = head_at(data, at, end)
        lengths += size
        at = body + size
        count += 1
    return count, at, lengths


def count_run(data: bytes, format: i64) -> int:
    """How many messages the run is; -1 where it is none. Topic names are not looked at."""
    end: i64 = len(data)
    if end == 0 or (format != PLAIN and format != WITH_PROPERTIES):
        return -1
    first: i64 = data[0]
    if first != PUBLISH_0 and first != PUBLISH_1:
        return -1
    between: i64 = (2 if first == PUBLISH_1 else 0) + (1 if format == WITH_PROPERTIES else 0)
    count: i64 = 0
    at: i64 = 0
    while at < end:
        if data[at] != first:
            return -1
        size, body = head_at(data, at, end)
        at = body + size
        if size < 2 or at > end:
            return -1
        payload = body + 2 + uint16_at(data, body) + between
        if payload > at or (format == WITH_PROPERTIES and data[payload - 1] != 0):
            return -1
        count += 1
    return count


def topics_of(data: bytes) -> list[bytes]:
    """The topics of a run, in order; of messages in a row with the same topic it is there once."""
    found: list[bytes] = []
    end: i64 = len(data)
    at: i64 = 0
    known_at: i64 = 0
    known: i64 = -1
    while at < end:
        size, body = head_at(data, at, end)
        length = uint16_at(data, body)
        if length != known or not same(data, known_at, body + 2, length):
            known_at = body + 2
            known = length
            found.append(data[known_at : known_at + length])
        at = body + size
    return found


def without_ids(data: bytes) -> bytes:
    """A run of QoS 1 as one of QoS 0."""
    out = BytesWriter()
    end: i64 = len(data)
    at: i64 = 0
    while at < end:
        size, body = head_at(data, at, end)
        named = body + 2 + uint16_at(data, body)
        at = body + size
        out.append(PUBLISH_0)
        write_varint(out, size - 2)
        out.write(data[body:named])
        out.write(data[named + 2 : at])
    return out.getvalue()


def in_other_format(data: bytes, format: i64) -> bytes:
    """A run of `format`, PLAIN or WITH_PROPERTIES, in the other one of these."""
    out = BytesWriter()
    end: i64 = len(data)
    at: i64 = 0
    first = PUBLISH_1 if data[0] == PUBLISH_1 else PUBLISH_0
    ids: i64 = 2 if first == PUBLISH_1 else 0
    while at < end:
        size, body = head_at(data, at, end)
        named = body + 2 + uint16_at(data, body) + ids
        at = body + size
        out.append(first)
        if format == PLAIN:
            write_varint(out, size + 1)
            out.write(data[body:named])
            out.append(0)
            out.write(data[named:at])
        else:
            write_varint(out, size - 1)
            out.write(data[body:named])
            out.write(data[named + 1 : at])
    return out.getvalue()
