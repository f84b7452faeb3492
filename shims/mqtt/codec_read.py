"""Packet fields: numbers, UTF-8 text, binary data, topic names and filters (sections 1.5 and 4.7)."""

from __future__ import annotations

from typing import Final

from .codec import (
    BAD_FILTER,
    BAD_TOPIC,
    MAX_REMAINING,
    QUOTA_EXCEEDED,
    MqttError,
    malformed,
    protocol_error,
)

MAX_USER_PROPERTIES: Final = 25_000  # of one packet; a packet of 16 MiB has room for three million
MAX_FILTERS: Final = 10_000  # of one SUBSCRIBE or UNSUBSCRIBE

SHARE: Final = b"$share/"
_USER_PROPERTY: Final = 0x26


class TooManyProperties(MqttError):
    """A packet with more user properties than are read."""

    def __init__(self) -> None:
        super().__init__(QUOTA_EXCEEDED, "4.13", f"more than {MAX_USER_PROPERTIES} user properties")


class Reader:
    """Reads fields between `position` and `end` of `data`. Raises MqttError if one is malformed."""

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    @property
    def left(self) -> int:
        return self.end - self.position

    def byte(self) -> int:
        position = self.position
        if position >= self.end:
            raise malformed("2.1.4", "the packet ends early")
        self.position = position + 1
        return self.data[position]

    def uint16(self) -> int:
        position = self.position
        if position + 2 > self.end:
            raise malformed("2.1.4", "the packet ends early")
        self.position = position + 2
        return self.data[position] << 8 | self.data[position + 1]

    def uint32(self) -> int:
        return self.uint16() << 16 | self.uint16()

    def varint(self) -> int:
        """Reads a Variable Byte Integer (1.5.5), which must use the shortest encoding."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 21:
                raise malformed("MQTT-1.5.5-1", "a variable byte integer takes more than four bytes")
        if byte == 0 and shift:
            raise malformed("MQTT-1.5.5-1", "a variable byte integer has superfluous bytes")
        return value

    def raw(self, size: int) -> bytes:
        position = self.position
        if size > self.end - position:
            raise malformed("2.1.4", "a field is longer than the packet")
        self.position = position + size
        return self.data[position : position + size]

    def binary(self) -> bytes:
        """Reads Binary Data (1.5.6): a uint16 size and that many bytes."""
        return self.raw(self.uint16())

    def text_bytes(self) -> bytes:
        """Reads a UTF-8 Encoded String (1.5.4), checks it, and returns its bytes."""
        found = self.binary()
        check_text(found)
        return found

    def text(self) -> str:
        return check_text(self.binary())

    def rest(self) -> bytes:
        return self.raw(self.end - self.position)

    def packet_id(self) -> int:
        found = self.uint16()
        if found == 0:
            raise protocol_error("MQTT-2.2.1-3", "packet identifier 0")
        return found

    def finish(self) -> None:
        """Raises MqttError if unread bytes remain."""
        if self.position != self.end:
            raise malformed("2.1.4", f"{self.left} bytes are left over at the end of the packet")


def check_text(data: bytes) -> str:
    """Decodes UTF-8 text. Raises MqttError if it is ill-formed or contains U+0000."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed("MQTT-1.5.4-1", "text is not well-formed UTF-8") from None
    if b"\0" in data:
        raise malformed("MQTT-1.5.4-2", "text contains U+0000")
    return text


def user_properties_end(data: bytes, position: int, end: int) -> int:
    """Returns where the row of user properties that begins at `position` ends, having checked their text.

    They may be many and cost little to send, so the row is checked as a whole: if all its bytes are ASCII,
    and only lengths among them are zero, then so are its texts. Raises MqttError if a text is malformed, or
    if there are more than `MAX_USER_PROPERTIES`.
    """
    at = position
    count = zeros = 0
    while at < end and data[at] == _USER_PROPERTY:
        if at + 5 > end:
            raise malformed("2.1.4", "the packet ends early")
        high, low = data[at + 1], data[at + 2]
        zeros += (high == 0) + (low == 0)
        at += 3 + (high << 8 | low)
        if at + 2 > end:
            raise malformed("2.1.4", "a field is longer than the packet")
        high, low = data[at], data[at + 1]
        zeros += (high == 0) + (low == 0)
        at += 2 + (high << 8 | low)
        if at > end:
            raise malformed("2.1.4", "a field is longer than the packet")
        count += 1
        if count > MAX_USER_PROPERTIES:
            raise TooManyProperties()
    row = data[position:at]
    if not row.isascii() or row.count(0) != zeros:
        user_pairs(data, position, at)
    return at


def user_pairs(data: bytes, position: int, end: int) -> list[tuple[str, str]]:
    """Returns the user properties between `position` and `end`, which hold nothing else."""
    pairs: list[tuple[str, str]] = []
    at = position
    while at < end:
        middle = at + 3 + (data[at + 1] << 8 | data[at + 2])
        after = middle + 2 + (data[middle] << 8 | data[middle + 1])
        pairs.append((check_text(data[at + 3 : middle]), check_text(data[middle + 2 : after])))
        at = after
    return pairs


def check_topic(topic: bytes) -> None:
    """Checks a topic name as in PUBLISH. Raises MqttError if it is empty or contains wildcards."""
    if not topic:
        raise MqttError(BAD_TOPIC, "MQTT-4.7.3-1", "an empty topic name")
    check_text(topic)
    if b"+" in topic or b"#" in topic:
        raise MqttError(BAD_TOPIC, "MQTT-3.3.2-2", f"wildcards in the topic name {_shown(topic)}")


def check_filter(filter: bytes) -> None:
    """Checks a topic filter without share name. Raises MqttError.

    A wildcard must occupy a whole level, and `#` must be the last level.
    """
    if not filter:
        raise malformed("MQTT-4.7.3-1", "an empty topic filter")
    levels = filter.split(b"/")
    last = len(levels) - 1
    for number, level in enumerate(levels):
        if b"#" in level and (level != b"#" or number != last):
            raise MqttError(BAD_FILTER, "MQTT-4.7.1-1", f"# is not the last level of {_shown(filter)}")
        if b"+" in level and level != b"+":
            raise MqttError(BAD_FILTER, "MQTT-4.7.1-2", f"+ is not a whole level in {_shown(filter)}")


def split_share(filter: bytes) -> tuple[bytes, bytes]:
    """Returns (share name, topic filter) of `$share/NAME/FILTER`; the name is empty for other filters.

    Raises MqttError.
    """
    if not filter.startswith(SHARE) and filter != SHARE[:-1]:
        return b"", filter
    name, slash, rest = filter[len(SHARE) :].partition(b"/")
    if not name:
        raise protocol_error("MQTT-4.8.2-1", f"no share name in {_shown(filter)}")
    if b"+" in name or b"#" in name:
        raise MqttError(BAD_FILTER, "MQTT-4.8.2-2", f"wildcards in the share name of {_shown(filter)}")
    if not slash or not rest:
        raise protocol_error("MQTT-4.8.2-2", f"no topic filter behind the share name in {_shown(filter)}")
    return name, rest


def read_length(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Returns (the varint one byte after `position`, the offset after it), or (-1, 0) if it is incomplete.

    Raises MqttError if it is malformed.
    """
    value = shift = 0
    at = position + 1
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise malformed("MQTT-1.5.5-1", "a length has superfluous bytes")
            return value, at
        shift += 7
        if shift > 21:
            raise malformed("MQTT-1.5.5-1", "a length takes more than four bytes")
    return -1, 0


def varint_bytes(value: int) -> bytes:
    """Encodes `value`, 0 to 268,435,455, as a Variable Byte Integer. Raises ValueError if it is larger."""
    if value < 0x80:
        return bytes([value])
    if value > MAX_REMAINING:
        raise ValueError(f"{value} does not fit into a variable byte integer")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uint16_bytes(value: int) -> bytes:
    return bytes([value >> 8, value & 0xFF])


def sized(data: bytes) -> bytes:
    """Returns `data` prefixed with its length in two bytes."""
    return uint16_bytes(len(data)) + data


def _shown(text: bytes) -> str:
    shown = text[:80].decode("utf-8", "replace")
    return repr(shown + "..." if len(text) > 80 else shown)
