"""Encoding and decoding of whole control packets, for both versions and both directions.

`decode` takes the body without the fixed header; `encode` returns the whole packet. The generic PUBLISH
codec here serves clients, tests and wills; the server uses `wire.mqtt_publish` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from . import codec
from .codec import V5, V311, MqttError, malformed, protocol_error
from .codec_properties import NONE, WILL, Properties, read_properties, write_properties
from .codec_read import MAX_FILTERS, Reader, check_topic, read_length, sized, uint16_bytes, varint_bytes

_PROTOCOL: Final = b"MQTT"
_OLD_PROTOCOL: Final = b"MQIsdp"
_ANNOUNCES_5: Final = sized(_PROTOCOL) + bytes([V5])


class Will(Struct, frozen=True):
    """The message published for a client whose connection ends without a normal DISCONNECT."""

    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE


class Connect(Struct, frozen=True):
    """CONNECT. `keep_alive` is in seconds, 0 for none.

    `bridge`: the client is a bridge of Mosquitto, by the highest bit of the version. Only those of 3.1.1 set
    it: bridges of version 5 state subscription options instead.
    """

    version: int
    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = NONE
    bridge: bool = False


class Connack(Struct, frozen=True):
    """CONNACK. `reason` is the version 5.0 reason code or the version 3.1.1 return code."""

    session_present: bool
    reason: int
    properties: Properties = NONE


class Publish(Struct, frozen=True):
    topic: bytes
    payload: bytes
    qos: int = 0
    retain: bool = False
    duplicate: bool = False
    packet_id: int = 0
    properties: Properties = NONE


class Ack(Struct, frozen=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, depending on `kind`."""

    kind: int
    packet_id: int
    reason: int = 0
    properties: Properties = NONE


class FilterRequest(Struct, frozen=True):
    """One topic filter of SUBSCRIBE and its options."""

    filter: bytes
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(Struct, frozen=True):
    packet_id: int
    filters: tuple[FilterRequest, ...]
    properties: Properties = NONE


class Unsubscribe(Struct, frozen=True):
    packet_id: int
    filters: tuple[bytes, ...]
    properties: Properties = NONE


class Suback(Struct, frozen=True):
    """SUBACK or UNSUBACK, depending on `kind`. The UNSUBACK of version 3.1.1 has no reasons."""

    kind: int
    packet_id: int
    reasons: bytes
    properties: Properties = NONE


class Ping(Struct, frozen=True):
    """PINGREQ or PINGRESP."""

    kind: int


class Disconnect(Struct, frozen=True):
    reason: int = 0
    properties: Properties = NONE


class Auth(Struct, frozen=True):
    reason: int = 0
    properties: Properties = NONE


Packet = Connect | Connack | Publish | Ack | Subscribe | Unsubscribe | Suback | Ping | Disconnect | Auth

# The lower four bits of the first byte for packet types where they are fixed and not 0 (section 2.1.3).
_FLAGS: Final = {codec.PUBREL: 2, codec.SUBSCRIBE: 2, codec.UNSUBSCRIBE: 2}
_FLAG_RULES: Final = {
    codec.PUBREL: "MQTT-3.6.1-1",
    codec.SUBSCRIBE: "MQTT-3.8.1-1",
    codec.UNSUBSCRIBE: "MQTT-3.10.1-1",
    codec.DISCONNECT: "MQTT-3.14.1-1",
    codec.AUTH: "MQTT-3.15.1-1",
}
_ACK_KINDS: Final = frozenset({codec.PUBACK, codec.PUBREC, codec.PUBREL, codec.PUBCOMP})


def check_flags(first: int) -> None:
    """Checks the first byte of any packet other than PUBLISH. Raises MqttError."""
    kind = first >> 4
    if kind == 0 or first & 0x0F != _FLAGS.get(kind, 0):
        rule = _FLAG_RULES.get(kind, "MQTT-2.1.3-1")
        raise malformed(rule, f"{codec.NAMES[kind]} with flags {first & 0x0F:04b}")


def decode(first: int, body: bytes, version: int) -> Packet:
    """Decodes one packet. `first` is its first byte, `version` that of CONNECT (any for CONNECT itself)."""
    kind = first >> 4
    reader = Reader(body, 0, len(body))
    if kind == codec.PUBLISH:
        return _publish(first, reader, version)
    check_flags(first)
    if kind in _ACK_KINDS:
        return _ack(kind, reader, version)
    if kind == codec.SUBACK or kind == codec.UNSUBACK:
        return _suback(kind, reader, version)
    if kind == codec.PINGREQ or kind == codec.PINGRESP:
        reader.finish()
        return Ping(kind)
    if kind == codec.AUTH and version == V311:
        raise malformed("MQTT-2.2.2-1", "version 3.1.1 has no AUTH")
    return _DECODERS[kind](reader, version)


# --- CONNECT and CONNACK

_BRIDGE: Final = 0x80  # of the version


def announced_version(data: bytes) -> int:
    """Returns the version announced by a CONNECT at the start of `data`, even if the rest is malformed.

    Returns version 3.1.1 if it cannot be determined: those clients accept a closed connection as the answer.
    """
    if not data or data[0] >> 4 != codec.CONNECT:
        return V311
    try:
        size, body = read_length(data, 0, len(data))
    except MqttError:
        return V311
    announced = size > 0 and data[body : body + len(_ANNOUNCES_5)] == _ANNOUNCES_5
    return V5 if announced else V311


def _connect(reader: Reader, _: int) -> Packet:
    name = reader.binary()
    if name != _PROTOCOL and name != _OLD_PROTOCOL:
        raise MqttError(codec.UNSUPPORTED_VERSION, "MQTT-3.1.2-1", f"protocol name {name[:20]!r}")
    version = reader.byte()
    bridge = version == V311 | _BRIDGE
    if bridge:
        version = V311
    if name == _OLD_PROTOCOL or version not in (V311, V5):
        raise MqttError(codec.UNSUPPORTED_VERSION, "MQTT-3.1.2-2", f"protocol version {version}")
    flags = reader.byte()
    if flags & 1:
        raise malformed("MQTT-3.1.2-3", "the reserved flag of CONNECT is set")
    keep_alive = reader.uint16()
    properties = read_properties(reader, codec.CONNECT) if version == V5 else NONE
    if properties.auth_data is not None and properties.auth_method is None:
        raise protocol_error("3.1.2.11.10", "authentication data without a method")
    client_id = reader.text()
    will = _will(reader, flags, version)
    username = reader.text() if flags & 0x80 else None
    if flags & 0x40 and not flags & 0x80 and version == V311:
        raise malformed("MQTT-3.1.2-22", "a password without a user name")
    password = reader.binary() if flags & 0x40 else None
    reader.finish()
    clean_start = bool(flags & 2)
    return Connect(version, client_id, clean_start, keep_alive, will, username, password, properties, bridge)


def _will(reader: Reader, flags: int, version: int) -> Will | None:
    qos = flags >> 3 & 3
    if not flags & 4:
        if qos:
            raise malformed("MQTT-3.1.2-11", "a will QoS without a will")
        if flags & 0x20:
            raise malformed("MQTT-3.1.2-13", "a will retain flag without a will")
        return None
    if qos == 3:
        raise malformed("MQTT-3.1.2-12", "a will with QoS 3")
    properties = read_properties(reader, WILL) if version == V5 else NONE
    check_response_topic(properties)
    topic = reader.binary()
    check_topic(topic)
    return Will(topic, reader.binary(), qos, bool(flags & 0x20), properties)


def check_response_topic(properties: Properties) -> None:
    topic = properties.response_topic
    if topic is not None and (not topic or "+" in topic or "#" in topic):
        raise protocol_error("MQTT-3.3.2-14", f"wildcards in the response topic, or nothing: {topic[:80]!r}")


def _connack(reader: Reader, version: int) -> Packet:
    flags = reader.byte()
    if flags > 1:
        raise malformed("MQTT-3.2.2-1", "reserved flags of CONNACK are set")
    reason = reader.byte()
    properties = read_properties(reader, codec.CONNACK) if version == V5 else NONE
    reader.finish()
    return Connack(bool(flags), reason, properties)


# --- PUBLISH and its acknowledgements


def _publish(first: int, reader: Reader, version: int) -> Packet:
    qos = first >> 1 & 3
    if qos == 3:
        raise malformed("MQTT-3.3.1-4", "QoS 3")
    if first & 8 and qos == 0:
        raise malformed("MQTT-3.3.1-2", "a duplicate of QoS 0")
    topic = reader.binary()
    packet_id = reader.packet_id() if qos else 0
    properties = read_properties(reader, codec.PUBLISH) if version == V5 else NONE
    check_response_topic(properties)
    if topic or properties.topic_alias is None:
        check_topic(topic)
    return Publish(topic, reader.rest(), qos, bool(first & 1), bool(first & 8), packet_id, properties)


def _ack(kind: int, reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    reason = reader.byte() if version == V5 and reader.left else 0
    properties = read_properties(reader, kind) if version == V5 and reader.left else NONE
    reader.finish()
    if reason and reason not in _ACK_REASONS[kind]:
        raise malformed(_ACK_RULES[kind], f"{codec.NAMES[kind]} with reason {reason:#x}")
    return Ack(kind, packet_id, reason, properties)


_REFUSALS: Final = frozenset({0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_UNKNOWN: Final = frozenset({codec.PACKET_ID_NOT_FOUND})
_ACK_REASONS: Final = {
    codec.PUBACK: _REFUSALS,
    codec.PUBREC: _REFUSALS,
    codec.PUBREL: _UNKNOWN,
    codec.PUBCOMP: _UNKNOWN,
}
_ACK_RULES: Final = {
    codec.PUBACK: "MQTT-3.4.2-1",
    codec.PUBREC: "MQTT-3.5.2-1",
    codec.PUBREL: "MQTT-3.6.2-1",
    codec.PUBCOMP: "MQTT-3.7.2-1",
}


# --- subscriptions


def _subscribe(reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    properties = read_properties(reader, codec.SUBSCRIBE) if version == V5 else NONE
    filters: list[FilterRequest] = []
    while reader.left:
        _check_count(filters)
        filters.append(_filter(reader, version))
    if not filters:
        raise protocol_error("MQTT-3.8.3-2", "SUBSCRIBE without a topic filter")
    return Subscribe(packet_id, tuple(filters), properties)


def _filter(reader: Reader, version: int) -> FilterRequest:
    filter = _filter_name(reader)
    options = reader.byte()
    if options & 3 == 3:
        raise malformed("3.8.3.1", "a subscription with QoS 3")
    if options & (0xC0 if version == V5 else 0xFC):
        raise malformed("MQTT-3.8.3-5", "reserved bits of subscription options are set")
    handling = options >> 4 & 3
    if handling == 3:
        raise protocol_error("3.8.3.1", "retain handling 3")
    return FilterRequest(filter, options & 3, bool(options & 4), bool(options & 8), handling)


def _check_count(filters: Sequence[object]) -> None:
    if len(filters) == MAX_FILTERS:
        raise MqttError(codec.QUOTA_EXCEEDED, "4.13", f"more than {MAX_FILTERS} filters in one packet")


def _filter_name(reader: Reader) -> bytes:
    found = reader.text_bytes()
    if not found:
        raise malformed("MQTT-4.7.3-1", "an empty topic filter")
    return found


def _unsubscribe(reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    properties = read_properties(reader, codec.UNSUBSCRIBE) if version == V5 else NONE
    filters: list[bytes] = []
    while reader.left:
        _check_count(filters)
        filters.append(_filter_name(reader))
    if not filters:
        raise protocol_error("MQTT-3.10.3-2", "UNSUBSCRIBE without a topic filter")
    return Unsubscribe(packet_id, tuple(filters), properties)


def _suback(kind: int, reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    properties = read_properties(reader, kind) if version == V5 else NONE
    return Suback(kind, packet_id, reader.rest(), properties)


# --- the rest


def _disconnect(reader: Reader, version: int) -> Packet:
    if version == V311:
        reader.finish()
        return Disconnect()
    reason = reader.byte() if reader.left else 0
    properties = read_properties(reader, codec.DISCONNECT) if reader.left else NONE
    reader.finish()
    return Disconnect(reason, properties)


def _auth(reader: Reader, version: int) -> Packet:
    reason = reader.byte() if reader.left else 0
    properties = read_properties(reader, codec.AUTH) if reader.left else NONE
    reader.finish()
    if reason not in (0x00, 0x18, 0x19):
        raise malformed("MQTT-3.15.2-1", f"AUTH with reason {reason:#x}")
    return Auth(reason, properties)


_DECODERS: Final[dict[int, Callable[[Reader, int], Packet]]] = {
    codec.CONNECT: _connect,
    codec.CONNACK: _connack,
    codec.SUBSCRIBE: _subscribe,
    codec.UNSUBSCRIBE: _unsubscribe,
    codec.DISCONNECT: _disconnect,
    codec.AUTH: _auth,
}


# --- encoding


def encode(packet: Packet, version: int) -> bytes:
    """Encodes the whole packet for `version`. Fields that version 3.1.1 does not have are omitted."""
    if isinstance(packet, Publish):
        return _publish_bytes(packet, version)
    if isinstance(packet, Ack):
        return ack_bytes(packet.kind, packet.packet_id, packet.reason, packet.properties, version)
    if isinstance(packet, Connect):
        return framed(codec.CONNECT << 4, _connect_body(packet))
    if isinstance(packet, Connack):
        head = bytes([packet.session_present, packet.reason])
        return framed(codec.CONNACK << 4, head + _written(packet.properties, version))
    if isinstance(packet, Ping):
        return bytes([packet.kind << 4, 0])
    if isinstance(packet, Disconnect):
        return _reasoned(codec.DISCONNECT, packet.reason, packet.properties, version)
    if isinstance(packet, Auth):
        return _reasoned(codec.AUTH, packet.reason, packet.properties, version)
    return _subscription_bytes(packet, version)


def framed(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint_bytes(len(body)) + body


def _written(properties: Properties, version: int) -> bytes:
    return write_properties(properties) if version == V5 else b""


def _connect_body(packet: Connect) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1 | (packet.username is not None) << 7 | (packet.password is not None) << 6
    parts = [sized(_PROTOCOL), bytes([packet.version | (_BRIDGE if packet.bridge else 0)])]
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
    parts += [bytes([flags]), uint16_bytes(packet.keep_alive), _written(packet.properties, packet.version)]
    parts.append(sized(packet.client_id.encode()))
    if will is not None:
        parts += [_written(will.properties, packet.version), sized(will.topic), sized(will.payload)]
    if packet.username is not None:
        parts.append(sized(packet.username.encode()))
    if packet.password is not None:
        parts.append(sized(packet.password))
    return b"".join(parts)


def _publish_bytes(packet: Publish, version: int) -> bytes:
    first = codec.PUBLISH << 4 | packet.duplicate << 3 | packet.qos << 1 | packet.retain
    number = uint16_bytes(packet.packet_id) if packet.qos else b""
    parts = (sized(packet.topic), number, _written(packet.properties, version), packet.payload)
    return framed(first, b"".join(parts))


def ack_bytes(kind: int, packet_id: int, reason: int, properties: Properties, version: int) -> bytes:
    first = kind << 4 | _FLAGS.get(kind, 0)
    body = uint16_bytes(packet_id)
    if version == V5 and (reason or properties != NONE):
        body += bytes([reason])
        if properties != NONE:
            body += write_properties(properties)
    return framed(first, body)


def _reasoned(kind: int, reason: int, properties: Properties, version: int) -> bytes:
    if version == V311 or (reason == 0 and properties == NONE):
        return bytes([kind << 4, 0])
    body = bytes([reason])
    return framed(kind << 4, body if properties == NONE else body + write_properties(properties))


def _subscription_bytes(packet: Subscribe | Unsubscribe | Suback, version: int) -> bytes:
    head = uint16_bytes(packet.packet_id) + _written(packet.properties, version)
    if isinstance(packet, Subscribe):
        return framed(codec.SUBSCRIBE << 4 | 2, head + _filters_bytes(packet.filters))
    if isinstance(packet, Unsubscribe):
        return framed(codec.UNSUBSCRIBE << 4 | 2, head + b"".join([sized(f) for f in packet.filters]))
    keeps_reasons = version == V5 or packet.kind == codec.SUBACK
    return framed(packet.kind << 4, head + packet.reasons if keeps_reasons else head)


def _filters_bytes(filters: Sequence[FilterRequest]) -> bytes:
    out = bytearray()
    for one in filters:
        out += sized(one.filter)
        out.append(one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4)
    return bytes(out)
