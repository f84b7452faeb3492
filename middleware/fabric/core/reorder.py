"""A receiver's memory: what has arrived beyond the next record, and what is known to be missing."""

from __future__ import annotations

from collections.abc import Iterator

from treecast.middleware.wire.segment import Kind, Segment
from treecast.middleware.wire.segment_assembly import Assembly, AssemblyBudget, Message
from treecast.middleware.wire.segment_bodies import Expiry, Gap, Skipped

from .counters import Refused
from .gaps import Gaps, Missing
from .settings import NEVER, StreamSettings

_COST_OF_MESSAGE = 200


class Oversized:
    """A message that is larger than this host allows: its place, for nothing of it is kept."""

    __slots__ = ("end", "first")

    def __init__(self, first: int, end: int) -> None:
        self.first = first
        self.end = end


def _cost_of(item: tuple[Message, Kind] | Skipped | Oversized) -> int:
    return _COST_OF_MESSAGE + (len(item[0].payload) if isinstance(item, tuple) else 0)


class Reorder:
    """Records from `next` to before `known`: each is here, skipped, or in a gap. Never two of these."""

    def __init__(self, settings: StreamSettings, budget: AssemblyBudget, first: int) -> None:
        self.next = first
        self.known = first
        self.newest = (
            first,
            0,
        )  # the farthest of which something has arrived: a message, and its parts so far
        self.gaps = Gaps()
        self.assembly = Assembly(budget, settings.assembly_bytes)
        self._settings = settings
        self._here: dict[int, tuple[Message, Kind] | Skipped | Oversized] = {}
        self._bytes = 0
        self._arriving = (-1, -1)  # first and end of the newest message, while its parts come in order

    @property
    def room(self) -> int:
        """Bytes that can still be taken, in whole messages and in incomplete ones."""
        settings = self._settings
        return max(0, min(settings.buffer_bytes - self._bytes, settings.assembly_bytes - self.assembly.used))

    @property
    def missing(self) -> int:
        """Records that are known to exist, and of which nothing has arrived."""
        return sum([gap.end - gap.first for gap in self.gaps]) - self.assembly.records

    @property
    def bytes(self) -> int:
        return self._bytes + self.assembly.used

    def __len__(self) -> int:
        return len(self._here)

    def know(self, end: int, due: float) -> None:
        """Records exist up to `end`; those that were not known are missing, to be asked for at `due`."""
        if end > self.known:
            self.gaps.open(self.known, end, due)
            self.known = end

    def add_next(self, segment: Segment) -> bool:
        """The short way of `add`, for what comes whole and in its order while nothing is missing.

        Whether the segment was such a one, and is here now; if not, `add` says what becomes of it.
        """
        sequence, size = segment.sequence, len(segment.payload)
        if sequence != self.known or segment.total != 1 or segment.kind is not Kind.DATA or len(self.gaps):
            return False
        if size > self._settings.message_bytes or not self._has_room(sequence, False):
            return False
        message = Message(sequence, segment.records, segment.payload, segment.after, segment.content)
        self.known = message.end
        self.newest = (message.end, 0)
        self._here[sequence] = (message, Kind.DATA)
        self._bytes += size + _COST_OF_MESSAGE
        return True

    def add(self, segment: Segment, due: float, later: float) -> Refused | None:
        """Takes a segment of data. `due`: when to ask for what it shows to be missing.

        `later`: when to ask for what it does not show to be missing: what a stream of repairs has not brought
        yet, and the rest of a message that is still coming in.
        """
        sequence, end = segment.sequence, segment.end
        refused = self._refusal(sequence, end)
        if refused is not None:
            return refused
        if sequence >= self.known:
            self.passed(due)
            self.know(sequence, due)
            self.know(end, due)
        again = segment.kind is not Kind.DATA
        if not self._has_room(sequence, again):
            return Refused.NO_ROOM
        reached = (end, 0) if segment.number + 1 == segment.total else (sequence, segment.number + 1)
        if reached > self.newest:
            if segment.kind is Kind.REPLAY:  # it goes in its order, and what it leaves out is lost
                self.gaps.passed(sequence, due)
            self.newest = reached
        if self._is_oversized(segment):
            self.gaps.fill(sequence, end)
            self.assembly.drop(sequence)
            self._here[sequence] = Oversized(sequence, end)
            self._bytes += _COST_OF_MESSAGE
            return Refused.OVERSIZED
        if again:
            self.gaps.reschedule(sequence, due, later)
        return self._assemble(segment, due, later)

    def _is_oversized(self, segment: Segment) -> bool:
        """Whether the message must be too large: all parts but the last have this size, or more."""
        return max(1, segment.total - 1) * len(segment.payload) > self._settings.message_bytes

    def _refusal(self, sequence: int, end: int) -> Refused | None:
        if sequence >= self.known or self.gaps.holding(sequence, end) is not None:
            return None
        if end > self.known or self.gaps.touches(sequence, end):
            return Refused.MISALIGNED
        return Refused.DUPLICATE

    def _has_room(self, sequence: int, repair: bool) -> bool:
        """Repairs may take as much again: they fill the gap before what fills the buffer."""
        if sequence == self.next:
            return True
        times = 2 if repair else 1
        full = self._bytes >= times * self._settings.buffer_bytes
        return not full and len(self._here) < times * self._settings.buffer_messages

    def passed(self, due: float, before: int = 1 << 64) -> None:
        """All before `before` was sent: what the newest message lacks is missing where it is of that."""
        first, end = self._arriving
        if end > before:
            return
        if first >= 0 and self.assembly.partial(first) is not None:
            gap = self.gaps.part(first, end)
            gap.due = min(gap.due, due)
            self.gaps.sooner(gap.due)
        self._arriving = (-1, -1)

    def _assemble(self, segment: Segment, due: float, later: float) -> Refused | None:
        if segment.total == 1 and self.assembly.partial(segment.sequence) is None:
            message = Message(
                segment.sequence, segment.records, segment.payload, segment.after, segment.content
            )
            self._put(message, segment.kind)
            return None
        before = self.assembly.partial(segment.sequence)
        if before is not None and segment.number in before.parts:
            return Refused.DUPLICATE
        try:
            done = self.assembly.add(segment)
        except ValueError:
            return Refused.CONTRADICTION
        if done is not None:
            self._put(*done)
        else:
            self._wait_for_rest(segment, due, later)
        return None

    def _wait_for_rest(self, segment: Segment, due: float, later: float) -> None:
        """A gap of its own, that is not asked for while its parts stream in.

        Of the newest message they may be on their way, however long the path takes for a burst; where one is
        left out, or something else has come after it, they are missing.
        """
        gap = self.gaps.part(segment.sequence, segment.end)
        partial = self.assembly.partial(segment.sequence)  # None: others needed the room
        newest = segment.end == self.known and segment.kind is Kind.DATA
        if newest and partial is not None and len(partial.parts) == segment.number + 1:
            self._arriving = (segment.sequence, segment.end)
            gap.due = later
        else:
            gap.due = due if gap.asked == -NEVER else later
        self.gaps.sooner(gap.due)

    def _put(self, message: Message, kind: Kind) -> None:
        self.gaps.fill(message.sequence, message.end)
        self._here[message.sequence] = (message, kind)
        self._bytes += len(message.payload) + _COST_OF_MESSAGE

    def skip(self, skipped: Skipped, due: float) -> None:
        """What is missing of a range will not come. What is here of it stays."""
        self.know(skipped.end, due)
        for first, end in list(self.gaps.within(max(skipped.first, self.next), skipped.end)):
            self.gaps.fill(first, end)
            self._here[first] = Skipped(first, end, skipped.reason)
            self._bytes += _COST_OF_MESSAGE
            self.assembly.drop(first)

    def give_up(self, reason: Expiry) -> None:
        """All gaps are skipped."""
        for gap in list(self.gaps):
            self.skip(Skipped(gap.first, gap.end, reason), gap.due)

    def head(self) -> tuple[Message, Kind] | Skipped | Oversized | None:
        """What is at `next`, if it is here: a message and what it came by, or what is passed by."""
        return self._here.get(self.next)

    def pop(self) -> None:
        """The head is settled."""
        item = self._here.pop(self.next)
        self._bytes -= _COST_OF_MESSAGE
        if isinstance(item, (Skipped, Oversized)):
            self.next = item.end
            self.assembly.drop_below(self.next)
        else:
            self.next = item[0].end
            self._bytes -= len(item[0].payload)

    def wanted(self, gap: Missing, before: int, whole: bool = True) -> Iterator[Gap]:
        """What to ask for of a gap: the parts that a message lacks, or all of it before `before`.

        Without `whole`, parts behind the farthest that has arrived of the newest message are not asked for:
        they may be on their way, or not sent yet.
        """
        partial = self.assembly.partial(gap.first)
        if partial is not None and gap.first < before:
            newest, parts = self.newest
            end = parts if not whole and gap.first == newest else partial.total
            for run in partial.missing():
                if run.start < end:
                    yield Gap(gap.first, gap.end, run.start, min(run.stop, end) - run.start)
        elif gap.first < before:
            yield Gap(gap.first, min(gap.end, before))

    def messages(self, first: int, end: int) -> Iterator[Message]:
        """What is here of [first, end), to repair it for others."""
        for item in self._here.values():
            if isinstance(item, tuple) and item[0].sequence < end and item[0].end > first:
                yield item[0]

    def forget_ahead(self, due: float) -> None:
        """Lets go what lies behind the first gap: all of it is replayed, and needs the room."""
        end = self.next
        kept: dict[int, tuple[Message, Kind] | Skipped | Oversized] = {}
        while (item := self._here.get(end)) is not None:
            kept[end] = item
            end = item[0].end if isinstance(item, tuple) else item.end
        self._here = kept
        self.newest = (end, 0)
        self._bytes = sum([_cost_of(item) for item in kept.values()])
        self.assembly.clear()
        self.gaps.clear()
        if end < self.known:
            self.gaps.open(end, self.known, due)

    def clear(self) -> None:
        self.gaps.clear()
        self.assembly.clear()
        self._here.clear()
        self._bytes = 0
