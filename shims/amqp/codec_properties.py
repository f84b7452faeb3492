"""Message properties in encoded form: parses them, and rewrites them where the server must.

    flags (2) | content-type, content-encoding | headers | delivery-mode (1), priority (1) | correlation-id,
    reply-to, expiration, message-id | timestamp (8) | type, user-id, app-id, cluster-id

Each is present only if its flag is set; the first flag is bit 15. Strings are short strings; headers are a
table preceded by its length (4).
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from .codec import SYNTAX_ERROR, AmqpError

CONTENT_TYPE_BIT: Final = 15
HEADERS_BIT: Final = 13
MODE_BIT: Final = 12
PRIORITY_BIT: Final = 11
CORRELATION_BIT: Final = 10
REPLY_TO_BIT: Final = 9
EXPIRATION_BIT: Final = 8
USER_BIT: Final = 4
_TIMESTAMP_BIT: Final = 6
_LAST_BIT: Final = 2
_PERSISTENT: Final = 2

# Size in bytes of a table value by type; -1: the value is preceded by a length of four bytes.
_SIZES: Final = {
    ord("t"): 1,
    ord("b"): 1,
    ord("B"): 1,
    ord("s"): 2,
    ord("u"): 2,
    ord("I"): 4,
    ord("i"): 4,
    ord("l"): 8,
    ord("L"): 8,
    ord("f"): 4,
    ord("d"): 8,
    ord("D"): 5,
    ord("T"): 8,
    ord("V"): 0,
    ord("S"): -1,
    ord("x"): -1,
    ord("A"): -1,
    ord("F"): -1,
}


class Seen:
    """The properties of a message that matter for routing and queueing.

    `expiration` is the original text, in milliseconds, or None if absent. `priority` is -1 if absent. The
    encoded headers lie between `headers_begin` and `headers_end`, both 0 if absent.
    """

    def __init__(self) -> None:
        self.persistent = False
        self.priority = -1
        self.expiration: bytes | None = None
        self.reply_to: bytes | None = None
        self.user: bytes | None = None
        self.headers_begin = 0
        self.headers_end = 0

    def same(self, other: Seen) -> bool:
        """Whether messages with these properties are handled identically, apart from headers."""
        return (
            self.persistent == other.persistent
            and self.priority == other.priority
            and self.expiration == other.expiration
            and self.reply_to == other.reply_to
            and self.user == other.user
        )


def bad_properties() -> AmqpError:
    return AmqpError(SYNTAX_ERROR, "properties end within a value", 60 << 16 | 40)


def look(data: bytes, begin: i64, end: i64) -> Seen:
    """Reads the properties between `begin` and `end`. Raises SYNTAX_ERROR if they are malformed."""
    seen = Seen()
    at = begin + 2
    if at > end:
        raise bad_properties()
    high: i64 = data[begin]
    low: i64 = data[begin + 1]
    flags = high << 8 | low
    if flags & 3:
        raise AmqpError(SYNTAX_ERROR, "properties have unknown flags", 60 << 16 | 40)
    bit: i64 = 15
    while bit >= _LAST_BIT:
        if flags & (1 << bit):
            stop = _value_end(data, at, end, bit)
            if stop > end:
                raise bad_properties()
            _note(seen, data, at, stop, bit)
            at = stop
        bit -= 1
    if at != end:
        raise AmqpError(SYNTAX_ERROR, "bytes follow the properties", 60 << 16 | 40)
    return seen


def _value_end(data: bytes, at: i64, end: i64, bit: i64) -> i64:
    """Returns the end of a property's value, or an offset beyond `end` if the value is cut off."""
    if bit == HEADERS_BIT:
        if at + 4 > end:
            return end + 1
        size = i64(read_i32_be(data, at))
        return at + 4 + size if size >= 0 else end + 1
    if bit in (MODE_BIT, PRIORITY_BIT):
        return at + 1
    if bit == _TIMESTAMP_BIT:
        return at + 8
    if at >= end:
        return end + 1
    length: i64 = data[at]
    return at + 1 + length


def _note(seen: Seen, data: bytes, at: i64, stop: i64, bit: i64) -> None:
    if bit == MODE_BIT:
        seen.persistent = data[at] == _PERSISTENT
    elif bit == PRIORITY_BIT:
        seen.priority = data[at]
    elif bit == HEADERS_BIT:
        seen.headers_begin = at
        seen.headers_end = stop
    elif bit == EXPIRATION_BIT:
        seen.expiration = data[at + 1 : stop]
    elif bit == REPLY_TO_BIT:
        seen.reply_to = data[at + 1 : stop]
    elif bit == USER_BIT:
        seen.user = data[at + 1 : stop]


def values(properties: bytes) -> dict[int, bytes]:
    """Returns the encoded value of each property by its bit. Raises SYNTAX_ERROR."""
    look(properties, 0, len(properties))
    flags = int.from_bytes(properties[:2], "big")
    found = {}
    at = 2
    for bit in range(15, _LAST_BIT - 1, -1):
        if flags >> bit & 1:
            stop = _value_end(properties, at, len(properties), bit)
            found[bit] = properties[at:stop]
            at = stop
    return found


def joined(found: dict[int, bytes]) -> bytes:
    """Encodes properties; the inverse of `values`."""
    flags = sum([1 << bit for bit in found])
    parts = [found[bit] for bit in sorted(found, reverse=True)]
    return flags.to_bytes(2, "big") + b"".join(parts)


def fields(table: bytes) -> list[tuple[bytes, bytes]]:
    """Returns (name, value with its type) of each field of a table, which is preceded by its length.

    Raises SYNTAX_ERROR if the table is malformed.
    """
    found = []
    at, end = 4, len(table)
    while at < end:
        name_end = at + 1 + table[at]
        if name_end >= end:
            raise AmqpError(SYNTAX_ERROR, "a table ends within a field")
        stop = name_end + 1 + _size(table, name_end, end)
        if stop > end:
            raise AmqpError(SYNTAX_ERROR, "a table ends within a value")
        found.append((table[at + 1 : name_end], table[name_end:stop]))
        at = stop
    return found


def _size(table: bytes, at: int, end: int) -> int:
    """Returns the size in bytes of the value whose type is at `at`, excluding the type."""
    size = _SIZES.get(table[at])
    if size is None:
        raise AmqpError(SYNTAX_ERROR, f"a table with a value of type {table[at]}")
    if size >= 0:
        return size
    return 4 + int.from_bytes(table[at + 1 : at + 5], "big") if at + 5 <= end else end


def table_of(found: list[tuple[bytes, bytes]]) -> bytes:
    """Encodes a table; the inverse of `fields`."""
    body = b"".join([bytes((len(name),)) + name + value for name, value in found])
    return len(body).to_bytes(4, "big") + body
