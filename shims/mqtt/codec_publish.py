"""The properties of PUBLISH as the server reads and writes them. The rest of it is in `wire.mqtt_publish`.

The server interprets three properties: it resolves the topic alias, counts down the message expiry, and
generates the subscription identifiers. All others are forwarded unchanged and in their original order.
"""

from __future__ import annotations

from typing import Final

from . import codec
from .codec import MqttError, malformed, protocol_error
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
from .codec_read import Reader, check_text, user_properties_end

_EMPTY: Final = b""


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
        if data[start] == USER_PROPERTY:
            reader.position = user_properties_end(data, start, end)
            parts.append(data[start : reader.position])
            continue
        identifier = reader.byte()
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
    if identifier == PAYLOAD_FORMAT:
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
