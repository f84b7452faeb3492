"""Segments that one end of a stream wants to send."""

from __future__ import annotations

from collections import deque
from typing import Final

from treecast.middleware.wire.segment import (
    MAX_SEGMENTS,
    Datagram,
    KeyRing,
    Kind,
    Message,
    Segment,
    StreamKey,
    cut,
    cut_encoded,
    encode,
    numbers_of,
    size_for,
)

from .turn import OF_MESSAGE

# Counter names by kind number, because reading an enum member's name is slow.
NAMES: Final = tuple([kind.name for kind in Kind])
PURPOSES: Final = tuple([name.lower() for name in NAMES])


class Outgoing:
    """Segments to send to one host, or to all live receivers (`to` is None)."""

    __slots__ = ("count", "hosts", "kind", "purpose", "size", "to")

    def __init__(self, to: int | None, kind: Kind, count: int, size: int) -> None:
        self.to = to
        self.hosts: frozenset[int] | None = None  # with `to` None: those of the live receivers; None: all
        self.kind = kind
        self.purpose: str = PURPOSES[int(kind)]  # counted under this name
        self.count = count  # segments
        self.size = size  # bytes of payload

    def segments(self) -> list[Segment]:
        """The segments in order."""
        raise NotImplementedError

    def encode(self, keys: KeyRing) -> list[Datagram]:
        """The encoded bytes of each segment."""
        return [encode(segment, keys) for segment in self.segments()]


class OutgoingSegment(Outgoing):
    """A single segment."""

    __slots__ = ("segment",)

    def __init__(self, segment: Segment, to: int | None) -> None:
        super().__init__(to, segment.kind, 1, len(segment.payload))
        self.segment = segment

    def segments(self) -> list[Segment]:
        return [self.segment]


class OutgoingMessage(Outgoing):
    """A message or some of its parts, cut while encoding without intermediate objects."""

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
        self.hosts = message.hosts
        self.mtu = mtu
        self.key = key
        self.sender = sender
        self.only = only

    def segments(self) -> list[Segment]:
        return list(cut(self.message, self.mtu, self.key, self.sender, self.kind, self.only))

    def encode(self, keys: KeyRing) -> list[Datagram]:
        return cut_encoded(self.message, self.mtu, self.key, self.sender, self.kind, self.only, keys)

    def parted(self, size: int) -> tuple[OutgoingMessage, OutgoingMessage | None]:
        """Splits off the first parts, at most `size` bytes of payload but at least one part. Returns them and
        the rest, if any."""
        numbers = numbers_of(self.message, self.mtu, self.only)
        middle = numbers.start + max(1, size // size_for(self.message, self.mtu))
        if middle >= numbers.stop:
            return self, None
        return self._only(range(numbers.start, middle)), self._only(range(middle, numbers.stop))

    def _only(self, numbers: range) -> OutgoingMessage:
        return OutgoingMessage(self.message, self.mtu, self.key, self.sender, self.kind, numbers, self.to)


class Slices:
    """Messages sent in order, some bytes per turn, so that a large one does not block other traffic."""

    __slots__ = ("size", "waiting")

    def __init__(self) -> None:
        self.size = 0  # bytes waiting
        self.waiting: deque[OutgoingMessage] = deque()

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self.waiting

    @property
    def first(self) -> Message | None:
        """The message that comes next."""
        return self.waiting[0].message if self.waiting else None

    def sent_of(self, message: Message) -> int:
        """The number of its parts, counted from the first, that are not waiting."""
        if not self.waiting or message.sequence < self.waiting[0].message.sequence:
            return MAX_SEGMENTS
        first = self.waiting[0]
        same = first.message.sequence == message.sequence
        return first.only.start if same and first.only is not None else 0

    def add(self, one: OutgoingMessage) -> None:
        """Appends `one` to what waits."""
        self.waiting.append(one)
        self.size += one.size

    def give(self, out: list[Outgoing], left: int) -> int:
        """Moves what comes next to `out`. `left` is the remaining cost budget of the turn (`turn`); returns
        what remains of it."""
        while self.waiting and left > 0:
            first, rest = self.waiting.popleft().parted(left)
            out.append(first)
            self.size -= first.size
            if rest is not None:
                self.waiting.appendleft(rest)
                return 0
            left -= first.size + OF_MESSAGE
        return left

    def drop_before(self, sequence: int) -> None:
        """Drops messages that end at or before `sequence`."""
        while self.waiting and self.waiting[0].message.end <= sequence:
            self.size -= self.waiting.popleft().size

    def drop(self, host: int) -> None:
        """Drops what is addressed to `host` alone."""
        self.waiting = deque([one for one in self.waiting if one.to != host])
        self.size = sum([one.size for one in self.waiting])

    def clear(self) -> None:
        """Drops everything."""
        self.waiting.clear()
        self.size = 0


def _size_of(message: Message, mtu: int, numbers: range) -> int:
    """Payload bytes of the parts with these numbers."""
    size = size_for(message, mtu)
    return max(0, min(len(message.payload), numbers.stop * size) - numbers.start * size)
