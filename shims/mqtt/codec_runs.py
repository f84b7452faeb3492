"""PUBLISH and PUBACK that follow each other in a chunk, as the bytes that they are.

A run is whole PUBLISH packets of one QoS, one after the other, neither duplicates nor retained; those of
version 5 have no properties:

    0x30 | remaining length | topic length (2), topic | version 5: 0x00 | payload                      QoS 0
    0x32 | remaining length | topic length (2), topic | packet id (2) | version 5: 0x00 | payload      QoS 1

`runs.Scan` finds them. What is here takes its word that they are in order, and looks at lengths only. Packets
one by one are in `codec_publish`; tests hold the two equal.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_le, write_i32_be
from mypy_extensions import i32, i64, u8

from .codec_publish import write_varint

PUBLISH_0: Final = 0x30  # the first byte of a publish of QoS 0, new and not retained
PUBLISH_1: Final = 0x32  # and of QoS 1
_PUBACK: Final = 0x40020000  # a PUBACK without a reason, as a number, less its packet id


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


def write_numbered(out: BytesWriter, data: bytes, first: i64) -> None:
    """Writes a run of QoS 1 with `first` and the packet ids after it in place of its own."""
    begin: i64 = len(out)
    out.write(data)
    end: i64 = len(data)
    at: i64 = 0
    packet_id = first
    while at < end:
        size, body = head_at(data, at, end)
        place = begin + body + 2 + uint16_at(data, body)
        out[place] = u8(packet_id >> 8)
        out[place + 1] = u8(packet_id & 0xFF)
        packet_id += 1
        at = body + size


def write_acks(out: BytesWriter, data: bytes) -> None:
    """Writes a PUBACK for each packet of a run of QoS 1."""
    end: i64 = len(data)
    at: i64 = 0
    while at < end:
        size, body = head_at(data, at, end)
        packet_id = uint16_at(data, body + 2 + uint16_at(data, body))
        write_i32_be(out, i32(_PUBACK | packet_id))
        at = body + size


def rising_acks(data: bytes, at: i64, end: i64, packet_id: i64, most: i64) -> i64:
    """How many PUBACKs without a reason, for `packet_id` and the ids after it, follow each other at `at`."""
    wanted: i64 = _PUBACK | packet_id
    count: i64 = 0
    while count < most and at + 4 <= end and i64(read_i32_be(data, at)) == wanted:
        count += 1
        wanted += 1
        at += 4
    return count


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
