"""MQTT's PUBLISH and its acknowledgements as bytes: single packets, and runs of publishes.

    type 3, DUP, QoS (2), RETAIN | remaining length | topic | packet id if QoS > 0
        | version 5: property length, properties | payload                                         PUBLISH
    type 4 (PUBACK) to 7 (PUBCOMP), flags | 2 | packet id                  an acknowledgement without a reason

A run is consecutive whole packets of one QoS without properties, neither duplicates nor retained. `format`
says how a body is laid out; its numbers are MQTT's protocol levels:

    0x30 | remaining length | topic length (2), topic | format 5: 0x00 | payload                      QoS 0
    0x32 | remaining length | topic length (2), topic | packet id (2) | format 5: 0x00 | payload      QoS 1

The remaining length has seven bits a byte, lowest first, at most four bytes. The broker keeps publishes in
this form, and event streams carry them in it, so that a client of the same format gets the very bytes. The
functions for runs rely on `RunScan`, or on `count_run`, that a run is in order, and look at lengths only.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_le, write_i32_be
from mypy_extensions import i32, i64, u8

PUBLISH_0: Final = 0x30  # the first byte of a publish of QoS 0, new and not retained
PUBLISH_1: Final = 0x32  # and of QoS 1
PLAIN: Final = 4  # the format of MQTT 3.1.1
WITH_PROPERTIES: Final = 5  # that of MQTT 5: a body says how long its properties are
RETAIN: Final = 0x01
_PUBREL: Final = 6
_PUBACK: Final = 0x40020000  # a PUBACK without a reason as a 32-bit number; the packet id is added


# --- numbers


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


# --- single packets


def varint_size(value: int) -> int:
    if value < 0x80:
        return 1
    if value < 0x4000:
        return 2
    return 3 if value < 0x200000 else 4


def write_publish(
    out: BytesWriter,
    flags: int,
    topic: bytes,
    packet_id: int,
    properties: bytes,
    payload: bytes,
    version: int,
) -> int:
    """Writes one PUBLISH and returns its size in bytes. `packet_id` is 0 for QoS 0.

    `flags` holds DUP, QoS and RETAIN. `version` is the protocol level; `properties` are those of version 5
    without their length.
    """
    length = len(topic)
    size = 2 + length + len(payload)
    if packet_id:
        size += 2
    if version == WITH_PROPERTIES:
        size += varint_size(len(properties)) + len(properties)
    out.append(PUBLISH_0 | flags)
    write_varint(out, size)
    out.append(length >> 8)
    out.append(length & 0xFF)
    out.write(topic)
    if packet_id:
        out.append(packet_id >> 8)
        out.append(packet_id & 0xFF)
    if version == WITH_PROPERTIES:
        write_varint(out, len(properties))
        if properties:
            out.write(properties)
    out.write(payload)
    return 1 + varint_size(size) + size


def publish_size(topic: bytes, qos: int, properties: bytes, payload: bytes, version: int) -> int:
    """Returns the size in bytes of the packet that `write_publish` would write."""
    size = 2 + len(topic) + len(payload)
    if qos:
        size += 2
    if version == WITH_PROPERTIES:
        size += varint_size(len(properties)) + len(properties)
    return 1 + varint_size(size) + size


def write_ack(out: BytesWriter, first: int, packet_id: int) -> None:
    """Writes a PUBACK, PUBREC, PUBREL or PUBCOMP without a reason.

    The upper four bits of `first` are the packet type; the flags are added here.
    """
    write_i32_be(out, _ACK_HEADS[first >> 4] | packet_id)


def _ack_head(kind: int) -> int:
    """Returns type, flags and remaining length 2 as the upper half of a signed 32-bit number."""
    head = (kind << 4 | (2 if kind == _PUBREL else 0)) << 24 | 2 << 16
    return head if head < 1 << 31 else head - (1 << 32)


_ACK_HEADS: Final = tuple([_ack_head(kind) for kind in range(8)])


# --- runs


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


def write_numbered(out: BytesWriter, data: bytes, first: i64) -> None:
    """Writes a QoS 1 run with its packet ids replaced by consecutive ids from `first` on."""
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
    """Writes a PUBACK for each packet of a QoS 1 run."""
    end: i64 = len(data)
    at: i64 = 0
    while at < end:
        size, body = head_at(data, at, end)
        packet_id = uint16_at(data, body + 2 + uint16_at(data, body))
        write_i32_be(out, i32(_PUBACK | packet_id))
        at = body + size


def rising_acks(data: bytes, at: i64, end: i64, packet_id: i64, most: i64) -> i64:
    """Counts consecutive PUBACKs without a reason at `at`, for `packet_id` and the ids after it."""
    wanted: i64 = _PUBACK | packet_id
    count: i64 = 0
    while count < most and at + 4 <= end and i64(read_i32_be(data, at)) == wanted:
        count += 1
        wanted += 1
        at += 4
    return count
