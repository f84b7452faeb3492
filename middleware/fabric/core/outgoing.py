"""What an end of a stream wants sent."""

from __future__ import annotations

from typing import Final

from treecast.middleware.wire.segment import KeyRing, Kind, Segment, encode
from treecast.middleware.wire.segment_assembly import (
    Message,
    StreamKey,
    cut,
    cut_encoded,
    numbers_of,
    part_size,
)

# What segments of a kind are counted as, by its number: an enum tells its name slowly.
NAMES: Final = tuple([kind.name for kind in Kind])
PURPOSES: Final = tuple([name.lower() for name in NAMES])


class Outgoing:
    """Segments to send: to one host, or to all receivers that are live (`to` is None)."""

    __slots__ = ("count", "kind", "purpose", "size", "to")

    def __init__(self, to: int | None, kind: Kind, count: int, size: int) -> None:
        self.to = to
        self.kind = kind
        self.purpose: str = PURPOSES[int(kind)]  # what it is counted as
        self.count = count  # segments
        self.size = size  # bytes of payload

    def segments(self) -> list[Segment]:
        """In their order."""
        raise NotImplementedError

    def encode(self, keys: KeyRing) -> list[bytes]:
        """The bytes of each."""
        return [encode(segment, keys) for segment in self.segments()]


class OutgoingSegment(Outgoing):
    """A single one."""

    __slots__ = ("segment",)

    def __init__(self, segment: Segment, to: int | None) -> None:
        super().__init__(to, segment.kind, 1, len(segment.payload))
        self.segment = segment

    def segments(self) -> list[Segment]:
        return [self.segment]


class OutgoingMessage(Outgoing):
    """A message, or some of its parts. They are cut when they are encoded, without objects in between."""

    __slots__ = ("key", "message", "mtu", "only", "sender")

    def __init__(
        self,
        message: Message,
        mtu: int,
        key: StreamKey,
        sender: int,
        kind: Kind,
        only: range | None,
        to: int | None,
    ) -> None:
        numbers = numbers_of(message, mtu, only)
        super().__init__(to, kind, len(numbers), _size_of(message, mtu, numbers))
        self.message = message
        self.mtu = mtu
        self.key = key
        self.sender = sender
        self.only = only

    def segments(self) -> list[Segment]:
        return list(cut(self.message, self.mtu, self.key, self.sender, self.kind, self.only))

    def encode(self, keys: KeyRing) -> list[bytes]:
        return cut_encoded(self.message, self.mtu, self.key, self.sender, self.kind, self.only, keys)


def _size_of(message: Message, mtu: int, numbers: range) -> int:
    """Bytes of payload of the parts with these numbers."""
    size = part_size(mtu, len(message.content), len(message.after))
    return max(0, min(len(message.payload), numbers.stop * size) - numbers.start * size)
