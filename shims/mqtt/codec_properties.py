"""Properties of version 5.0, section 2.2.2: `length (varint) | identifier (varint) | value | ...`.

Each property may occur once, except user properties and, in PUBLISH, subscription identifiers.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from . import codec
from .codec import malformed, protocol_error
from .codec_read import Reader, sized, user_pairs, user_properties_end, varint_bytes

# Value types.
BYTE: Final = 0
FLAG: Final = 1  # a byte, 0 or 1
UINT16: Final = 2
UINT32: Final = 3
VARINT: Final = 4
BINARY: Final = 5
TEXT: Final = 6
PAIR: Final = 7

PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_ID: Final = 0x0B
TOPIC_ALIAS: Final = 0x23
USER_PROPERTY: Final = 0x26

WILL: Final = 0  # pseudo packet type of will properties, which are part of CONNECT


class Properties(Struct, frozen=True, omit_defaults=True):
    """The properties of one packet. An absent property is None or empty. Times are in seconds."""

    payload_format: int | None = None
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    auth_method: str | None = None
    auth_data: bytes | None = None
    request_problems: int | None = None
    will_delay: int | None = None
    request_response: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcards_available: int | None = None
    subscription_ids_available: int | None = None
    shared_available: int | None = None


NONE: Final = Properties()
NO_PROPERTIES: Final = b"\0"


class Property(Struct, frozen=True):
    """One row of the table in section 2.2.2.2. `least` is the smallest allowed value, `rule` its clause."""

    name: str
    kind: int
    packets: frozenset[int]
    least: int = 0
    rule: str = ""
    wrong: int = codec.PROTOCOL_ERROR


def _in(*packets: int) -> frozenset[int]:
    return frozenset(packets)


_PUB: Final = _in(codec.PUBLISH, WILL)
_ACKS: Final = (codec.PUBACK, codec.PUBREC, codec.PUBREL, codec.PUBCOMP)
_REASONED: Final = _in(codec.CONNACK, *_ACKS, codec.SUBACK, codec.UNSUBACK, codec.DISCONNECT, codec.AUTH)
_AUTH: Final = _in(codec.CONNECT, codec.CONNACK, codec.AUTH)
_BOTH: Final = _in(codec.CONNECT, codec.CONNACK)
_CONNACK: Final = _in(codec.CONNACK)
_CONNECT: Final = _in(codec.CONNECT)
_ALL: Final = frozenset(range(16)) - {codec.PINGREQ, codec.PINGRESP}

PROPERTIES: Final = {
    0x01: Property("payload_format", FLAG, _PUB, rule="3.3.2.3.2"),
    0x02: Property("message_expiry", UINT32, _PUB),
    0x03: Property("content_type", TEXT, _PUB),
    0x08: Property("response_topic", TEXT, _PUB),
    0x09: Property("correlation_data", BINARY, _PUB),
    0x0B: Property("subscription_ids", VARINT, _in(codec.PUBLISH, codec.SUBSCRIBE), 1, "3.8.2.1.2"),
    0x11: Property("session_expiry", UINT32, _in(codec.CONNECT, codec.CONNACK, codec.DISCONNECT)),
    0x12: Property("assigned_client_id", TEXT, _CONNACK),
    0x13: Property("server_keep_alive", UINT16, _CONNACK),
    0x15: Property("auth_method", TEXT, _AUTH),
    0x16: Property("auth_data", BINARY, _AUTH),
    0x17: Property("request_problems", FLAG, _CONNECT, rule="3.1.2.11.7"),
    0x18: Property("will_delay", UINT32, _in(WILL)),
    0x19: Property("request_response", FLAG, _CONNECT, rule="3.1.2.11.6"),
    0x1A: Property("response_information", TEXT, _CONNACK),
    0x1C: Property("server_reference", TEXT, _in(codec.CONNACK, codec.DISCONNECT)),
    0x1F: Property("reason_string", TEXT, _REASONED),
    0x21: Property("receive_maximum", UINT16, _BOTH, 1, "3.1.2.11.3"),
    0x22: Property("topic_alias_maximum", UINT16, _BOTH),
    0x23: Property("topic_alias", UINT16, _in(codec.PUBLISH), 1, "MQTT-3.3.2-8", codec.BAD_TOPIC_ALIAS),
    0x24: Property("maximum_qos", FLAG, _CONNACK, rule="3.2.2.3.4"),
    0x25: Property("retain_available", FLAG, _CONNACK, rule="3.2.2.3.5"),
    0x26: Property("user", PAIR, _ALL),
    0x27: Property("maximum_packet_size", UINT32, _BOTH, 1, "3.1.2.11.4"),
    0x28: Property("wildcards_available", FLAG, _CONNACK, rule="3.2.2.3.11"),
    0x29: Property("subscription_ids_available", FLAG, _CONNACK, rule="3.2.2.3.12"),
    0x2A: Property("shared_available", FLAG, _CONNACK, rule="3.2.2.3.13"),
}


def read_properties(reader: Reader, packet: int) -> Properties:
    """Reads the properties of a packet of type `packet`, including their length."""
    size = reader.varint()
    if size == 0:
        return NONE
    part = Reader(reader.data, reader.position, reader.position + size)
    reader.raw(size)
    found: dict[str, object] = {}
    pairs: list[tuple[str, str]] = []
    numbers: list[int] = []
    while part.position < part.end:
        if part.data[part.position] == USER_PROPERTY:
            begin, part.position = part.position, user_properties_end(part.data, part.position, part.end)
            pairs += user_pairs(part.data, begin, part.position)
            continue
        identifier = part.varint()
        row = PROPERTIES.get(identifier)
        if row is None:
            raise malformed("2.2.2.2", f"unknown property {identifier:#x}")
        if packet not in row.packets:
            raise _misplaced(row.name, packet)
        value = _read_value(part, row)
        if identifier == SUBSCRIPTION_ID and packet == codec.PUBLISH and isinstance(value, int):
            numbers.append(value)
        elif row.name in found or (identifier == SUBSCRIPTION_ID and numbers):
            raise protocol_error("2.2.2.2", f"{_spoken(row.name)} appears twice")
        elif identifier == SUBSCRIPTION_ID and isinstance(value, int):
            numbers.append(value)
        else:
            found[row.name] = value
    return Properties(user=tuple(pairs), subscription_ids=tuple(numbers), **found)  # type: ignore[arg-type]


def _misplaced(name: str, packet: int) -> codec.MqttError:
    where = "a will" if packet == WILL else codec.NAMES[packet]
    return malformed("2.2.2.2", f"{_spoken(name)} in {where}")


def _read_value(part: Reader, row: Property) -> int | str | bytes:
    kind = row.kind
    if kind == TEXT:
        return part.text()
    if kind == BINARY:
        return part.binary()
    return _read_number(part, row)


def _read_number(part: Reader, row: Property) -> int:
    kind = row.kind
    if kind <= FLAG:
        value = part.byte()
    elif kind == UINT16:
        value = part.uint16()
    elif kind == UINT32:
        value = part.uint32()
    else:
        value = part.varint()
    if value < row.least or (kind == FLAG and value > 1):
        raise codec.MqttError(row.wrong, row.rule, f"{_spoken(row.name)} {value}")
    return value


def _spoken(name: str) -> str:
    return name.replace("_", " ")


def write_properties(properties: Properties) -> bytes:
    """Encodes properties, preceded by their length."""
    if properties is NONE:
        return NO_PROPERTIES
    out = bytearray()
    for identifier, row in PROPERTIES.items():
        value = getattr(properties, row.name)
        if value is None or value == ():
            continue
        for one in value if isinstance(value, tuple) else (value,):
            out += varint_bytes(identifier)
            out += _value_bytes(row.kind, one)
    return varint_bytes(len(out)) + bytes(out)


def _value_bytes(kind: int, value: object) -> bytes:
    if isinstance(value, str):
        return sized(value.encode())
    if isinstance(value, bytes):
        return sized(value)
    if isinstance(value, tuple):
        name, text = value
        return sized(name.encode()) + sized(text.encode())
    assert isinstance(value, int)
    if kind <= FLAG:
        return bytes([value])
    if kind == VARINT:
        return varint_bytes(value)
    return struct.pack(">H" if kind == UINT16 else ">I", value)
