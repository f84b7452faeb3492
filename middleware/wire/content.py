"""The content header: fixed-width values of a message's fields, which P4 switches match filters with.

All numbers are big-endian. It stands before the segment in the packets of the `content` carrier, and in the
segment's own room for a content header (`wire.segment`), where the tag covers it.

     0  topic uint32: `number_of` the topic's name in MQTT's spelling; 0 in a packet for one host
     4  to uint32: `number_of` the name of the one host that the packet is for; 0: whoever wants the content
     8  flags uint16: bit 15 loose, then one bit for each field, from bit 14 down: the message has a value
    10  0 uint16
    12  the fields' values, zero where there is none; strings end with zero bytes
     .  zero bytes up to a multiple of four

A layout is the same at all hosts and switches of a network; it is written as a schema's fields are
(`model.topic_schema`): `stock:8s,price:u32`. A value that has no exact place, such as 50.5 in a `u32`, makes
the header loose: the message then goes to all that have any filter for its topic, and hosts filter it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from treecast.middleware.model.topic_schema import FILLER, DeclaredField, read_fields

HEAD: Final = struct.Struct(">IIHH")
MOST_FIELDS: Final = 15
LONGEST_STRING: Final = 16  # bytes: what tables of switches match
LOOSE: Final = 0x8000
Value = int | float | str | bool | None


class ContentError(ValueError):
    """The bytes are no content header of the layout."""


class ContentHeader(Struct, frozen=True):
    """A header as values. A field without a value is None."""

    topic: int
    to: int
    loose: bool
    values: tuple[int | str | None, ...]


class Layout:
    """A network's layout. Raises ValueError if `text` has fields that a header cannot hold."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields = read_fields(text)
        if len(self.fields) > MOST_FIELDS:
            raise ValueError(f"a content header has at most {MOST_FIELDS} fields, not {len(self.fields)}")
        for field in self.fields:
            _check(field)
        used = HEAD.size + sum([field.size for field in self.fields])
        self.size = -(-used // 4) * 4
        self._padding = bytes(self.size - used)

    def encode(self, topic: int, values: Sequence[Value]) -> bytes:
        """Returns the header of a message with these values, in the order of `fields`."""
        flags = 0
        parts: list[bytes] = []
        for place, (field, value) in enumerate(zip(self.fields, values, strict=True)):
            encoded = _bytes_of(field, value)
            if encoded is None:
                if _belongs(field, value):
                    flags |= LOOSE
                parts.append(bytes(field.size))
            else:
                flags |= LOOSE >> (place + 1)
                parts.append(encoded)
        return b"".join((HEAD.pack(topic, 0, flags, 0), *parts, self._padding))

    def directed(self, to: int) -> bytes:
        """Returns the header of a packet for one host."""
        return HEAD.pack(0, to, 0, 0) + bytes(self.size - HEAD.size)

    def decode(self, data: bytes | memoryview) -> ContentHeader:
        """Returns the header at the beginning of `data`. Raises ContentError."""
        if len(data) < self.size:
            raise ContentError(f"{len(data)} bytes, and a header has {self.size}")
        topic, to, flags, zero = HEAD.unpack_from(data, 0)
        if zero or (topic == 0) == (to == 0) or flags & (LOOSE >> len(self.fields)) - 1:
            raise ContentError("the header is of another layout")
        values: list[int | str | None] = []
        at = HEAD.size
        for place, field in enumerate(self.fields):
            found = bytes(data[at : at + field.size])
            at += field.size
            values.append(_value_of(field, found) if flags & LOOSE >> (place + 1) else None)
        return ContentHeader(topic, to, flags & LOOSE != 0, tuple(values))


@lru_cache(maxsize=65_536)
def number_of(name: bytes) -> int:
    """Returns the number of a topic or host by its name: never 0. Two names may share one: then a switch
    sends too much, and hosts drop it."""
    return int.from_bytes(blake2b(name, digest_size=4).digest()) or 1


def _check(field: DeclaredField) -> None:
    string = field.kind == "s" and 0 < field.size <= LONGEST_STRING
    if field.name != FILLER and field.kind != "u" and not string:
        held = f"u8 to u64, and strings of 1s to {LONGEST_STRING}s"
        raise ValueError(f"a content header cannot hold {field.text}: it holds {held}")


def _belongs(field: DeclaredField, value: Value) -> bool:
    """Whether constraints on the field may hold of the value: a number or a string, as declared."""
    if value is None or isinstance(value, bool) or field.name == FILLER:
        return False
    return isinstance(value, str) is (field.kind == "s")


def _bytes_of(field: DeclaredField, value: Value) -> bytes | None:
    """Returns a value's bytes; None if it has no exact place."""
    if not _belongs(field, value):
        return None
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return None if len(data) > field.size or b"\0" in data else data.ljust(field.size, b"\0")
    if isinstance(value, float):
        if not value.is_integer():
            return None
        value = int(value)
    assert isinstance(value, int)
    return value.to_bytes(field.size) if 0 <= value < 1 << 8 * field.size else None


def _value_of(field: DeclaredField, data: bytes) -> int | str:
    if field.kind == "u":
        return int.from_bytes(data)
    return data.rstrip(b"\0").decode("utf-8", "replace")
