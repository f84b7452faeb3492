"""What an end of a stream wants sent."""

from __future__ import annotations

from collections import deque
from typing import Final

from treecast.middleware.wire.segment import MAX_SEGMENTS, KeyRing, Kind, Segment, encode
from treecast.middleware.wire.segment_assembly import (
    Message,
    StreamKey,
    cut,
    cut_encoded,
    numbers_of,
    size_for,
)

from .turn import OF_MESSAGE

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

    def parted(self, size: int) -> tuple[OutgoingMessage, OutgoingMessage | None]:
        """Its first parts, of `size` bytes of payload at most but at least one; and the rest, if any."""
        numbers = numbers_of(self.message, self.mtu, self.only)
        middle = numbers.start + max(1, size // size_for(self.message, self.mtu))
        if middle >= numbers.stop:
            return self, None
        return self._only(range(numbers.start, middle)), self._only(range(middle, numbers.stop))

    def _only(self, numbers: range) -> OutgoingMessage:
        return OutgoingMessage(self.message, self.mtu, self.key, self.sender, self.kind, numbers, self.to)


class Slices:
    """Messages that are sent in their order, some bytes a turn: so what is large stands in nobody's way."""

    __slots__ = ("_waiting", "size")

    def __init__(self) -> None:
        self.size = 0  # bytes that wait
        self._waiting: deque[OutgoingMessage] = deque()

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    @property
    def first(self) -> Message | None:
        """The message of what comes next."""
        return self._waiting[0].message if self._waiting else None

    def sent_of(self, message: Message) -> int:
        """How many parts of it do not wait, counted from the first."""
        if not self._waiting or message.sequence < self._waiting[0].message.sequence:
            return MAX_SEGMENTS
        first = self._waiting[0]
        same = first.message.sequence == message.sequence
        return first.only.start if same and first.only is not None else 0

    def add(self, one: OutgoingMessage) -> None:
        """`one` is sent after what waits already."""
        self._waiting.append(one)
        self.size += one.size

    def give(self, out: list[Outgoing], left: int) -> int:
        """Moves what comes next to `out`; what is left then of what this turn may cost (`turn`)."""
        while self._waiting and left > 0:
            first, rest = self._waiting.popleft().parted(left)
            out.append(first)
            self.size -= first.size
            if rest is not None:
                self._waiting.appendleft(rest)
                return 0
            left -= first.size + OF_MESSAGE
        return left

    def drop_before(self, sequence: int) -> None:
        """Messages that end by then are not needed."""
        while self._waiting and self._waiting[0].message.end <= sequence:
            self.size -= self._waiting.popleft().size

    def drop(self, host: int) -> None:
        """What is for that host alone."""
        self._waiting = deque([one for one in self._waiting if one.to != host])
        self.size = sum([one.size for one in self._waiting])

    def clear(self) -> None:
        """None of it is sent."""
        self._waiting.clear()
        self.size = 0


def _size_of(message: Message, mtu: int, numbers: range) -> int:
    """Bytes of payload of the parts with these numbers."""
    size = size_for(message, mtu)
    return max(0, min(len(message.payload), numbers.stop * size) - numbers.start * size)
