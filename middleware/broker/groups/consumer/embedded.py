"""The subscription inside JoinGroup and the assignment inside SyncGroup (Kafka's ConsumerProtocol).

Subscription, versions 0 to 3:

    version int16 | topics | user data: int32 length, -1 for null, bytes
    from 1: owned partitions: int32 count, per topic a name and an array of int32
    from 2: generation int32    from 3: rack id, int16 length, -1 for null

Assignment: version int16 | int32 count, per topic a name and an array of int32 | user data. Topics are arrays
of strings: int32 count, each an int16 length and UTF-8. Newer versions start like the newest known one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from msgspec import Struct

NEWEST = 3
NamedPartitions = Mapping[str, tuple[int, ...]]


class Subscription(Struct, frozen=True):
    """A member's subscription. `owned`: the partitions it keeps while joining; empty before version 1."""

    version: int
    topics: frozenset[str]
    owned: NamedPartitions
    rack_id: str


class _Reader:
    """Reads fields. Raises ValueError for invalid data."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        try:
            (value,) = struct.unpack_from(form, self._data, self._at)
        except struct.error as error:
            raise ValueError("it ends too early") from error
        self._at += struct.calcsize(form)
        return int(value)

    def count(self) -> int:
        """Reads an array's element count; 0 for null. Raises ValueError if it exceeds the data's size."""
        value = self.number(">i")
        if not -1 <= value <= len(self._data):
            raise ValueError(f"{value} elements")
        return max(value, 0)

    def text(self) -> str:
        return self._taken(self.number(">h")).decode()

    def skip(self, length: int) -> None:
        if length > 0:
            self._taken(length)

    def _taken(self, length: int) -> bytes:
        found = self._data[self._at : self._at + length] if length >= 0 else b""
        if len(found) != max(length, 0):
            raise ValueError("it ends too early")
        self._at += len(found)
        return found

    def partitions(self) -> NamedPartitions:
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(self.count()):
            topic = self.text()
            found[topic] = found.get(topic, ()) + tuple(self.number(">i") for _ in range(self.count()))
        return found


def parse_subscription(metadata: bytes) -> Subscription:
    """Decodes a subscription. Raises ValueError if `metadata` is not one."""
    reader = _Reader(metadata)
    version = reader.number(">h")
    if version < 0:
        raise ValueError(f"version {version}")
    topics = frozenset(reader.text() for _ in range(reader.count()))
    reader.skip(reader.number(">i"))
    owned = reader.partitions() if version >= 1 else {}
    if version >= 2:
        reader.number(">i")
    rack = reader.text() if version >= 3 else ""
    return Subscription(version, topics, owned, rack)


def parse_assignment(data: bytes) -> NamedPartitions:
    """Decodes an assignment; no bytes are an empty one. Raises ValueError if `data` is not an assignment."""
    if not data:
        return {}
    reader = _Reader(data)
    reader.number(">h")
    return reader.partitions()


def encode_assignment(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """Encodes an assignment. `version`: the version of the member's subscription."""
    out = bytearray(struct.pack(">hi", min(version, NEWEST), len(partitions)))
    for topic, numbers in sorted(partitions.items()):
        name, ordered = topic.encode(), sorted(numbers)
        out += struct.pack(f">h{len(name)}si{len(ordered)}i", len(name), name, len(ordered), *ordered)
    return bytes(out + struct.pack(">i", -1))
