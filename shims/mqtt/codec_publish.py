"""PUBLISH as the server reads and writes it, with as little work between input and output as possible.

    type 3, DUP, QoS (2), RETAIN | remaining length | topic | packet id if QoS > 0
        | version 5: property length, properties | payload

The server interprets three properties: it resolves the topic alias, counts down the message expiry, and
generates the subscription identifiers. All others are forwarded unchanged and in their original order.

For runs (`wire.publish_runs`), this module handles what is specific to MQTT sessions: packet ids and PUBACK.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i32, i64, u8

from treecast.middleware.wire.publish_runs import head_at, uint16_at, write_varint

from . import codec
from .codec import V5, MqttError, malformed, protocol_error
from .codec_properties import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    SUBSCRIPTION_ID,
    TOPIC_ALIAS,
    USER_PROPERTY,
)
from .codec_read import Reader, check_text

DUPLICATE: Final = 0x08
RETAIN: Final = 0x01
_FIRST: Final = codec.PUBLISH << 4
_EMPTY: Final = b""
_PUBACK: Final = 0x40020000  # a PUBACK without a reason as a 32-bit number; the packet id is added


class PublishProperties:
    """The properties of a PUBLISH from a client.

    `passed_on` holds the bytes of all properties except alias and expiry. `expiry` is in seconds, -1 for
    none; `alias` is 0 for none. `text` is whether the payload is declared to be UTF-8.
    """

    def __init__(self) -> None:
        self.passed_on = _EMPTY
        self.expiry = -1
        self.alias = 0
        self.text = False

    @property
    def plain(self) -> bool:
        """Whether all properties are forwarded unchanged."""
        return self.expiry < 0 and not self.alias and not self.text


def read_publish_properties(data: bytes, position: int, end: int) -> PublishProperties:
    """Reads the properties between `position` and `end`, which exclude their length. Raises MqttError."""
    found = PublishProperties()
    reader = Reader(data, position, end)
    parts: list[bytes] = []
    seen = 0
    while reader.position < end:
        start = reader.position
        identifier = reader.byte()
        if identifier != USER_PROPERTY:
            if identifier >= 64:
                raise malformed("2.2.2.2", f"unknown property {identifier:#x}")
            if seen >> identifier & 1:
                raise protocol_error("2.2.2.2", f"property {identifier:#x} appears twice")
            seen |= 1 << identifier
        if _read_one(reader, identifier, found):
            parts.append(data[start : reader.position])
    found.passed_on = parts[0] if len(parts) == 1 else b"".join(parts)
    return found


def _read_one(reader: Reader, identifier: int, found: PublishProperties) -> bool:
    """Reads and checks one value. Returns whether the property is forwarded."""
    if identifier == USER_PROPERTY:
        check_text(reader.binary())
        check_text(reader.binary())
    elif identifier == PAYLOAD_FORMAT:
        value = reader.byte()
        if value > 1:
            raise protocol_error("3.3.2.3.2", f"payload format {value}")
        found.text = value == 1
    elif identifier == MESSAGE_EXPIRY:
        found.expiry = reader.uint32()
        return False
    elif identifier == TOPIC_ALIAS:
        found.alias = reader.uint16()
        if found.alias == 0:
            raise MqttError(codec.BAD_TOPIC_ALIAS, "MQTT-3.3.2-8", "topic alias 0")
        return False
    elif identifier == CONTENT_TYPE:
        check_text(reader.binary())
    elif identifier == RESPONSE_TOPIC:
        _check_response_topic(reader.binary())
    elif identifier == CORRELATION_DATA:
        reader.binary()
    elif identifier == SUBSCRIPTION_ID:
        raise protocol_error("MQTT-3.3.4-6", "a client sends a subscription identifier")
    else:
        raise malformed("2.2.2.2", f"property {identifier:#x} is not allowed in PUBLISH")
    return True


def _check_response_topic(topic: bytes) -> None:
    check_text(topic)
    if not topic or b"+" in topic or b"#" in topic:
        raise protocol_error("MQTT-3.3.2-14", "wildcards in the response topic, or nothing")


def expiry_bytes(seconds: int) -> bytes:
    """Encodes the Message Expiry Interval with the remaining lifetime."""
    return bytes([MESSAGE_EXPIRY]) + seconds.to_bytes(4, "big")


def identifier_bytes(identifiers: tuple[int, ...]) -> bytes:
    """Encodes the subscription identifiers of the matching subscriptions."""
    out = bytearray()
    for value in identifiers:
        out.append(SUBSCRIPTION_ID)
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


def alias_bytes(alias: int) -> bytes:
    return bytes([TOPIC_ALIAS, alias >> 8, alias & 0xFF])


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

    `flags` holds DUP, QoS and RETAIN. `properties` are those of version 5 without their length.
    """
    length = len(topic)
    size = 2 + length + len(payload)
    if packet_id:
        size += 2
    if version == V5:
        size += varint_size(len(properties)) + len(properties)
    out.append(_FIRST | flags)
    write_varint(out, size)
    out.append(length >> 8)
    out.append(length & 0xFF)
    out.write(topic)
    if packet_id:
        out.append(packet_id >> 8)
        out.append(packet_id & 0xFF)
    if version == V5:
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
    if version == V5:
        size += varint_size(len(properties)) + len(properties)
    return 1 + varint_size(size) + size


def write_ack(out: BytesWriter, first: int, packet_id: int) -> None:
    """Writes a PUBACK, PUBREC, PUBREL or PUBCOMP without a reason.

    The upper four bits of `first` are the packet type; the flags are added here.
    """
    write_i32_be(out, _ACK_HEADS[first >> 4] | packet_id)


def _ack_head(kind: int) -> int:
    """Returns type, flags and remaining length 2 as the upper half of a signed 32-bit number."""
    head = (kind << 4 | (2 if kind == codec.PUBREL else 0)) << 24 | 2 << 16
    return head if head < 1 << 31 else head - (1 << 32)


_ACK_HEADS: Final = tuple([_ack_head(kind) for kind in range(8)])


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
