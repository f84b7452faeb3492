"""The encoding of Kafka's flexible messages (KIP-482), for the few requests that Spark's tasks send
themselves.
"""

from __future__ import annotations

import struct

from treecast.middleware.load.frames import LoadError

CLIENT_ID = b"treecast-spark"


class Fields:
    """Reads numbers one after the other. Raises LoadError if they end too soon."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def skip(self, count: int) -> None:
        self.position += count

    def number(self, layout: str) -> int:
        try:
            (value,) = struct.unpack_from(layout, self._data, self.position)
        except struct.error:
            raise LoadError("an answer ends too soon") from None
        self.position += struct.calcsize(layout)
        return int(value)

    def uvarint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise LoadError("a number is too long")

    def raw(self, size: int) -> bytes:
        start = self.position
        self.position += size
        if self.position > len(self._data):
            raise LoadError("an answer ends too soon")
        return self._data[start : self.position]

    def string(self) -> str:
        """Returns a compact string; null is empty."""
        return self.raw(max(self.uvarint() - 1, 0)).decode(errors="replace")

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.skip(self.uvarint())


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def compact(text: str | None) -> bytes:
    """Returns a compact nullable string."""
    if text is None:
        return b"\0"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def framed(key: int, version: int, body: bytes) -> bytes:
    """Returns a request with header version 2 and no tags in it, length first."""
    header = struct.pack(">hhih", key, version, 0, len(CLIENT_ID)) + CLIENT_ID + b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def answered(payload: bytes) -> Fields:
    """Returns an answer, without its length, behind correlation id, tags and throttle time."""
    if len(payload) < 9:
        raise LoadError("an answer ends too soon")
    fields = Fields(payload)
    fields.skip(4)
    fields.tags()
    fields.skip(4)
    return fields
