"""Messages cut into segments for a path's MTU, and reassembled within memory bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from .segment import (
    AFTER_SIZE,
    HEADER_SIZE,
    MAX_AFTER,
    MAX_CONTENT,
    MAX_PAYLOAD,
    MAX_SEGMENTS,
    TAG_SIZE,
    After,
    Datagram,
    KeyRing,
    Kind,
    Segment,
    encode,
    encode_parts,
)

# The overhead of a reassembly besides its bytes, so that segments without payload are bounded too.
_COST_OF_MESSAGE: Final = 200
_COST_OF_PART: Final = 64

StreamKey = tuple[int, int, int]  # origin, stream, epoch


class Message:
    """A unit of a stream: `records` records from `sequence` on, opaque here. Immutable by convention."""

    __slots__ = ("after", "content", "payload", "records", "sequence")

    def __init__(
        self,
        sequence: int,
        records: int,
        payload: bytes,
        after: tuple[After, ...] = (),
        content: bytes = b"",
    ) -> None:
        self.sequence = sequence
        self.records = records
        self.payload = payload
        self.after = after
        self.content = content

    @property
    def end(self) -> int:
        return self.sequence + self.records

    def fields(self) -> tuple[object, ...]:
        """The fields in the order of the constructor."""
        return (self.sequence, self.records, self.payload, self.after, self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.fields() == other.fields()

    def __hash__(self) -> int:
        return hash(self.fields())

    def __repr__(self) -> str:
        return f"Message{self.fields()!r}"


def part_size(mtu: int, content: int = 0, after: int = 0) -> int:
    """The payload bytes per segment for segments of `mtu` bytes; the same for every part.

    Each segment leaves room for a tag and for the message's `after` list. A message is therefore cut alike
    whether or not it is tagged, and whichever host repairs it. Raises ValueError if no payload fits.
    """
    size = min(mtu - HEADER_SIZE - TAG_SIZE - AFTER_SIZE * after - content, MAX_PAYLOAD)
    if size <= 0 or content > MAX_CONTENT or content % 4 or after > MAX_AFTER:
        raise ValueError(f"segments of {mtu} bytes with {content} bytes of content header hold nothing")
    return size


def size_for(message: Message, mtu: int) -> int:
    """The payload bytes of each segment of the message except the last."""
    return part_size(mtu, len(message.content), len(message.after))


def parts_of(message: Message, mtu: int) -> int:
    """The number of segments of a message. Raises ValueError beyond the 65,535 that can be numbered."""
    total = max(1, -(-len(message.payload) // size_for(message, mtu)))
    if not can_be_cut(message, mtu):
        raise ValueError(f"a message of {len(message.payload)} bytes is too large for segments of {mtu}")
    return total


def can_be_cut(message: Message, mtu: int) -> bool:
    """Whether its segments can be numbered."""
    return len(message.payload) <= size_for(message, mtu) * MAX_SEGMENTS


def numbers_of(message: Message, mtu: int, only: range | None) -> range:
    """The numbers of the message's segments, or those in `only`, which may extend beyond the last."""
    total = parts_of(message, mtu)
    return range(total) if only is None else range(only.start, min(only.stop, total))


def cut(
    message: Message, mtu: int, key: StreamKey, sender: int, kind: Kind = Kind.DATA, only: range | None = None
) -> Iterator[Segment]:
    """Yields the message's segments, or only those with the given numbers."""
    size, total = size_for(message, mtu), parts_of(message, mtu)
    for number in numbers_of(message, mtu, only):
        yield Segment(
            kind,
            key[0],
            key[1],
            key[2],
            message.sequence,
            message.records,
            number,
            total,
            sender,
            message.payload[number * size : (number + 1) * size],
            () if number else message.after,
            message.content,
        )


def cut_encoded(
    message: Message, mtu: int, key: StreamKey, sender: int, kind: Kind, only: range | None, keys: KeyRing
) -> list[Datagram]:
    """Returns the encoded segments that `cut` would yield, but faster."""
    if message.after or message.content:
        return [encode(segment, keys) for segment in cut(message, mtu, key, sender, kind, only)]
    whole = Segment(
        kind,
        key[0],
        key[1],
        key[2],
        message.sequence,
        message.records,
        0,
        parts_of(message, mtu),
        sender,
        message.payload,
    )
    return encode_parts(whole, size_for(message, mtu), numbers_of(message, mtu, only), keys)


class Partial:
    """A message of which some segments have arrived."""

    __slots__ = ("after", "content", "cost", "kind", "parts", "records", "total")

    def __init__(self, segment: Segment) -> None:
        self.records = segment.records
        self.total = segment.total
        self.content = segment.content
        self.after: tuple[After, ...] = ()
        self.parts: dict[int, bytes] = {}
        self.cost = _COST_OF_MESSAGE + len(segment.content)
        self.kind = Kind.DATA  # REPAIR or REPLAY if any of its segments was one

    def missing(self) -> Iterator[range]:
        """Yields the runs of missing segment numbers."""
        start = 0
        for number in sorted(self.parts):
            if number > start:
                yield range(start, number)
            start = number + 1
        if start < self.total:
            yield range(start, self.total)


class AssemblyBudget:
    """The bytes that all assemblies of a host may hold together."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used = 0
        self.assemblies: dict[int, Assembly] = {}  # non-empty ones, longest without room first


class Assembly:
    """The incomplete messages of one stream and epoch.

    Beyond `max_bytes`, or beyond the host's budget, the oldest incomplete message is evicted and counted in
    `evicted`: that of this stream, or for the host's budget that of the stream that holds most. A stream's
    only incomplete message stays as long as the budget allows, however large it is.
    """

    def __init__(self, budget: AssemblyBudget, max_bytes: int) -> None:
        self.budget = budget
        self.max_bytes = max_bytes
        self.used = 0
        self.evicted = 0
        self._partials: OrderedDict[int, Partial] = OrderedDict()  # by sequence, oldest arrival first

    def __len__(self) -> int:
        return len(self._partials)

    @property
    def records(self) -> int:
        """The number of records in all incomplete messages."""
        return sum([partial.records for partial in self._partials.values()])

    def partial(self, sequence: int) -> Partial | None:
        return self._partials.get(sequence)

    def add(self, segment: Segment) -> tuple[Message, Kind] | None:
        """Adds a segment. Returns the message that it completes and how it came: REPLAY or REPAIR if a part
        did.

        Raises ValueError if the segment contradicts others of its message.
        """
        sequence = segment.sequence
        partial = self._partials.get(sequence)
        if partial is None:
            partial = self._partials[sequence] = Partial(segment)
            self._charge(partial.cost)
        elif (partial.total, partial.records, partial.content) != (
            segment.total,
            segment.records,
            segment.content,
        ):
            raise ValueError("segments of one message contradict each other")
        if segment.number in partial.parts:
            return None
        self._take(partial, segment)
        if len(partial.parts) == partial.total:
            return self._complete(sequence, partial)
        self._evict()
        return None

    def _take(self, partial: Partial, segment: Segment) -> None:
        partial.parts[segment.number] = segment.payload
        if segment.kind > partial.kind:
            partial.kind = segment.kind
        if segment.number == 0:
            partial.after = segment.after
        cost = len(segment.payload) + _COST_OF_PART
        partial.cost += cost
        self._charge(cost)

    def _complete(self, sequence: int, partial: Partial) -> tuple[Message, Kind]:
        self.drop(sequence)
        payload = b"".join(partial.parts[number] for number in range(partial.total))
        message = Message(sequence, partial.records, payload, partial.after, partial.content)
        return message, partial.kind

    def drop(self, sequence: int) -> None:
        """Discards what has arrived of a message."""
        partial = self._partials.pop(sequence, None)
        if partial is not None:
            self._charge(-partial.cost)

    def drop_below(self, sequence: int) -> None:
        """Discards all messages before `sequence`."""
        for old in [one for one in self._partials if one < sequence]:
            self.drop(old)

    def clear(self) -> None:
        for sequence in list(self._partials):
            self.drop(sequence)

    def _charge(self, cost: int) -> None:
        self.used += cost
        self.budget.used += cost
        if self._partials:
            self.budget.assemblies[id(self)] = self
        else:
            self.budget.assemblies.pop(id(self), None)

    def _evict(self) -> None:
        while self.used > self.max_bytes and len(self._partials) > 1:
            self._evict_oldest()
        while self.budget.used > self.budget.total_bytes:
            max(self.budget.assemblies.values(), key=lambda one: one.used)._evict_oldest()

    def _evict_oldest(self) -> None:
        self.drop(next(iter(self._partials)))
        self.evicted += 1
