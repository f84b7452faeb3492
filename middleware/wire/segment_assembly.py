"""Messages put together again from their segments, within memory bounds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from .segment import After, Kind, Message, Segment

# The overhead of a reassembly besides its bytes, so that segments without payload are bounded too.
_COST_OF_MESSAGE: Final = 200
_COST_OF_PART: Final = 64


class Partial:
    """A message of which some segments have arrived."""

    __slots__ = ("after", "content", "cost", "kind", "parts", "records", "size", "total")

    def __init__(self, segment: Segment) -> None:
        self.records = segment.records
        self.total = segment.total
        self.content = segment.content
        self.after: tuple[After, ...] = ()
        self.parts: dict[int, bytes] = {}
        self.cost = _COST_OF_MESSAGE + len(segment.content)
        self.size = 0  # payload bytes of each segment but the last; 0: unknown
        self.kind = Kind.DATA  # REPAIR or REPLAY if any of its segments was one

    def is_cut_otherwise(self, segment: Segment) -> bool:
        """Whether the segment is of the same message, cut to another size. (The number of segments tells the
        size, see `segment.size_for`; an earlier version cut otherwise.)"""
        if (self.records, self.content) != (segment.records, segment.content):
            return False
        whole = self.size if segment.number + 1 < segment.total else 0
        return self.total != segment.total or (whole > 0 and whole != len(segment.payload))

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

        If the message was cut to another size in the meantime, for a path that takes that, what arrived of
        the former size is discarded. Raises ValueError if the segment contradicts others of its message.
        """
        sequence = segment.sequence
        partial = self._partials.get(sequence)
        if partial is not None and partial.is_cut_otherwise(segment):
            self.drop(sequence)
            partial = None
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
        if segment.number + 1 < segment.total:
            partial.size = len(segment.payload)
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
