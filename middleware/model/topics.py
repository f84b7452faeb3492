"""Topic names: one canonical form, a tuple of UTF-8 levels, and its spelling in each face.

| face  | joined by | escaped                                                                        |
| ----- | --------- | ------------------------------------------------------------------------------ |
| MQTT  | `/`       | nothing (a level cannot hold `/`)                                              |
| Kafka | `.`       | each byte outside `[A-Za-z0-9_-]` as `-xHH`; the `-` of a literal `-xHH` as `-x2D` |
| AMQP  | `.`       | only a `.` inside a level, as `-x2E`; the `-` of a literal `-xHH` as `-x2D`    |

Empty levels are kept. A face refuses `.`, `..` and names that are too long for its protocol.
"""

from __future__ import annotations

import re

from msgspec import Struct

from .errors import Fault, TreecastError

KAFKA_MAX_NAME = 249  # characters, Kafka's Topic.MAX_NAME_LENGTH
AMQP_MAX_KEY = 255  # bytes, a shortstr
MQTT_MAX_NAME = 65535  # bytes, a UTF-8 string

_ESCAPE = re.compile(rb"-x[0-9A-F]{2}")
_KAFKA_LEGAL = re.compile(r"[A-Za-z0-9._-]+\Z")
_KAFKA_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def _escape(level: bytes, keep: frozenset[int] | None, forbidden: bytes) -> bytes:
    """Escapes one level. `keep` lists the plain bytes; if it is None, all bytes but `forbidden` are plain."""
    out = bytearray()
    for position, byte in enumerate(level):
        literal = byte == 0x2D and _ESCAPE.match(level, position) is not None
        plain = byte in keep if keep is not None else byte not in forbidden
        if plain and not literal:
            out.append(byte)
        else:
            out += b"-x%02X" % byte
    return bytes(out)


def _unescape(level: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match[0][2:], 16)]), level)


# Topics of the cluster itself: telemetry, topology, advice. Not marked as internal in Metadata, because some
# producers refuse topics with that mark, and programs beside a daemon write advice.
OWN_PREFIX = "_treecast."

# Kafka's brokers reserve these names for their own topics.
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


def check_new_kafka_name(name: str) -> None:
    """Applies `check_kafka_name`, and raises TOPIC_EXISTS for the names of internal topics."""
    check_kafka_name(name)
    if name in INTERNAL_TOPICS:
        raise TreecastError(Fault.TOPIC_EXISTS, f"{name} is the name of an internal topic: choose another")


def check_kafka_name(name: str) -> None:
    """Raises INVALID_TOPIC with Kafka's own reasons if no Kafka topic can have this name."""
    if not name:
        raise TreecastError(Fault.INVALID_TOPIC, "a topic name cannot be empty")
    if name in (".", ".."):
        raise TreecastError(Fault.INVALID_TOPIC, "a topic name cannot be '.' or '..'")
    if len(name) > KAFKA_MAX_NAME:
        raise TreecastError(
            Fault.INVALID_TOPIC, f"a topic name has at most {KAFKA_MAX_NAME} characters, this one {len(name)}"
        )
    if not _KAFKA_LEGAL.match(name):
        raise TreecastError(
            Fault.INVALID_TOPIC, f"topic name {name!r} holds characters outside [a-zA-Z0-9._-]"
        )


class TopicName(Struct, frozen=True):
    """A canonical topic name: its levels, each UTF-8 text."""

    levels: tuple[str, ...]

    @classmethod
    def from_mqtt(cls, name: str) -> TopicName:
        return cls(tuple(name.split("/")))

    @classmethod
    def from_kafka(cls, name: str) -> TopicName:
        return cls(_decode(name, "Kafka topic"))

    @classmethod
    def from_amqp(cls, routing_key: str) -> TopicName:
        return cls(_decode(routing_key, "routing key"))

    def to_mqtt(self) -> str:
        for level in self.levels:
            if "/" in level or "+" in level or "#" in level or "\0" in level:
                raise TreecastError(Fault.INVALID_TOPIC, f"level {level!r} is not allowed in an MQTT topic")
        return _bounded("/".join(self.levels), MQTT_MAX_NAME, "an MQTT topic")

    def spelled(self) -> str:
        """Returns the name as Kafka spells it, also if it is too long for a Kafka topic, or empty."""
        return ".".join([_escape(level.encode(), _KAFKA_PLAIN, b"").decode() for level in self.levels])

    def to_kafka(self) -> str:
        name = self.spelled()
        check_kafka_name(name)
        return name

    def to_amqp(self) -> str:
        key = ".".join(_escape(level.encode(), None, b".").decode() for level in self.levels)
        return _bounded(key, AMQP_MAX_KEY, "a routing key")


def _decode(name: str, what: str) -> tuple[str, ...]:
    try:
        return tuple(_unescape(level.encode()).decode() for level in name.split("."))
    except UnicodeDecodeError as error:
        raise TreecastError(Fault.INVALID_TOPIC, f"{what} {name!r} does not decode to UTF-8 text") from error


def _bounded(name: str, limit: int, what: str) -> str:
    size = len(name.encode())
    if not 0 < size <= limit:
        raise TreecastError(Fault.INVALID_TOPIC, f"{what} takes 1 to {limit} bytes, {name!r} has {size}")
    return name
