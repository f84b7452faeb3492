"""A receiver's buffer: what has arrived beyond the next record, and what is known to be missing.

The outcomes of its records are counted here as they are reported. `Room` is the share of the host's sockets
that the buffer of a stream may count on.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import Kind, Message, Segment
from treecast.middleware.wire.segment_assembly import Assembly, AssemblyBudget
from treecast.middleware.wire.segment_bodies import Expiry, Gap, Rejection, Skipped, Totals

from .counters import Refused
from .gaps import Gaps, Missing
from .settings import StreamSettings

_COST_OF_MESSAGE = 200
_IN_USE: Final = 1.0  # seconds after the last segment
_LOOK: Final = 0.25  # seconds between counts
_LEAST: Final = 16 * 1024  # minimum bytes of a share, whatever the number of streams


class Oversized:
    """The place of a message larger than this host allows; nothing of it is kept."""

    __slots__ = ("end", "first")

    def __init__(self, first: int, end: int) -> None:
        self.first = first
        self.end = end


def _cost_of(item: tuple[Message, Kind] | Skipped | Oversized) -> int:
    return _COST_OF_MESSAGE + (len(item[0].payload) if isinstance(item, tuple) else 0)


class Reorder:
    """Records from `next` to before `known`, each exactly one of: here, skipped, in a gap."""

    def __init__(self, settings: StreamSettings, budget: AssemblyBudget, first: int) -> None:
        self.next = first
        self.known = first
        self.newest = (
            first,
            0,
        )  # the farthest arrival: a message, and its parts so far
        self.gaps = Gaps()
        self.assembly = Assembly(budget, settings.assembly_bytes)
        self._settings = settings
        self._here: dict[int, tuple[Message, Kind] | Skipped | Oversized] = {}
        self._bytes = 0
        self._arriving = (-1, -1)  # first and end of the newest message while its parts arrive in order

    @property
    def room(self) -> int:
        """Bytes that can still be taken, in complete and incomplete messages."""
        settings = self._settings
        return max(0, min(settings.buffer_bytes - self._bytes, settings.assembly_bytes - self.assembly.used))

    @property
    def missing(self) -> int:
        """The number of records known to exist of which nothing has arrived."""
        return sum([gap.end - gap.first for gap in self.gaps]) - self.assembly.records

    @property
    def bytes(self) -> int:
        return self._bytes + self.assembly.used

    def __len__(self) -> int:
        return len(self._here)

    def know(self, end: int, due: float) -> None:
        """Notes that records exist up to `end`. Those not known before are missing, to be requested at
        `due`."""
        if end > self.known:
            self.gaps.open(self.known, end, due)
            self.known = end

    def add_next(self, segment: Segment) -> bool:
        """Fast path of `add` for a complete message that arrives in order while nothing is missing.

        Returns whether it took the segment; if not, `add` decides.
        """
        sequence, size = segment.sequence, len(segment.payload)
        # With a gap, `add` has to see the segment: it may show that something was overtaken.
        if sequence != self.known or segment.total != 1 or segment.kind is not Kind.DATA or self.gaps.all:
            return False
        if size > self._settings.message_bytes:
            return False
        if sequence != self.next and not self._has_room(sequence, False):
            return False
        message = Message(sequence, segment.records, segment.payload, segment.after, segment.content)
        self.known = message.end
        self.newest = (message.end, 0)
        self._here[sequence] = (message, Kind.DATA)
        self._bytes += size + _COST_OF_MESSAGE
        return True

    def add(self, segment: Segment, due: float, later: float) -> Refused | None:
        """Takes a data segment. Returns why it was refused, or None. `due`: when to request what it shows to
        be missing.

        `later`: when to request what it does not show to be missing: data that a stream of repairs has not
        brought yet, and the rest of a message that is still arriving.
        """
        sequence, end = segment.sequence, segment.end
        refused = self._refusal(sequence, end)
        if refused is not None:
            return refused
        if sequence >= self.known:
            # A stream is sent in order: a later message shows that all parts before it were sent.
            self.passed(due)
            self.know(sequence, due)
            self.know(end, due)
        again = segment.kind is not Kind.DATA
        # After `know`: what is refused now is asked for again once there is room.
        if not self._has_room(sequence, again):
            return Refused.NO_ROOM
        reached = (end, 0) if segment.number + 1 == segment.total else (sequence, segment.number + 1)
        if reached > self.newest:
            if segment.kind is Kind.REPLAY:  # a replay is sent in order, so what it leaves out is lost
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
        """Whether the message must be too large: all parts but the last have at least this size."""
        return max(1, segment.total - 1) * len(segment.payload) > self._settings.message_bytes

    def _refusal(self, sequence: int, end: int) -> Refused | None:
        if sequence >= self.known or self.gaps.holding(sequence, end) is not None:
            return None
        if end > self.known or self.gaps.touches(sequence, end):
            return Refused.MISALIGNED
        return Refused.DUPLICATE

    def _has_room(self, sequence: int, repair: bool) -> bool:
        """Whether there is room. Repairs get twice the room, because they fill the gap before the data that
        fills the buffer."""
        # A full buffer that refused the next message would stay full: all others wait for it.
        if sequence == self.next:
            return True
        times = 2 if repair else 1
        full = self._bytes >= times * self._settings.buffer_bytes
        return not full and len(self._here) < times * self._settings.buffer_messages

    def passed(self, due: float, before: int = 1 << 64) -> None:
        """Notes that everything before `before` was sent: what the newest message lacks is missing if it ends
        by then."""
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
        again = before is not None and segment.number in before.parts
        # A part twice is a duplicate, unless the message is cut to another size by now (`Sender.cut_to`).
        if before is not None and again and not before.is_cut_otherwise(segment):
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
        """Gives an incomplete message a gap of its own, which is not requested while its parts stream in.

        The parts of the newest message may still be in flight, however long the path takes for a burst. If a
        part is left out or something else has arrived after it, its parts are missing.
        """
        gap = self.gaps.part(segment.sequence, segment.end)
        partial = self.assembly.partial(segment.sequence)  # None: evicted to make room for others
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
        """Skips what is missing of a range because it will not come. What has arrived of it stays."""
        self.know(skipped.end, due)
        # A list, because `fill` changes the gaps.
        for first, end in list(self.gaps.within(max(skipped.first, self.next), skipped.end)):
            self.gaps.fill(first, end)
            self._here[first] = Skipped(first, end, skipped.reason)
            self._bytes += _COST_OF_MESSAGE
            self.assembly.drop(first)

    def give_up(self, reason: Expiry) -> None:
        """Skips all gaps."""
        # A list, because `skip` fills them.
        for gap in list(self.gaps):
            self.skip(Skipped(gap.first, gap.end, reason), gap.due)

    def head(self) -> tuple[Message, Kind] | Skipped | Oversized | None:
        """The item at `next` if it is here: a message and the kind it arrived as, or a skipped or oversized
        range."""
        return self._here.get(self.next)

    def pop(self) -> None:
        """Settles the head."""
        item = self._here.pop(self.next)
        self._bytes -= _COST_OF_MESSAGE
        if isinstance(item, (Skipped, Oversized)):
            self.next = item.end
            self.assembly.drop_below(self.next)
        else:
            self.next = item[0].end
            self._bytes -= len(item[0].payload)

    def wanted(self, gap: Missing, before: int, whole: bool = True) -> Iterator[Gap]:
        """Yields what to request of a gap: the parts that a message lacks, or everything before `before`.

        Without `whole`, parts after the farthest arrival of the newest message are not requested: they may be
        in flight or not sent yet.
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
        """Yields the messages held here of [first, end), to repair them for others."""
        for item in self._here.values():
            if isinstance(item, tuple) and item[0].sequence < end and item[0].end > first:
                yield item[0]

    def forget_ahead(self, due: float) -> None:
        """Discards what lies after the first gap: all of it will be replayed, and the room is needed."""
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


# --- outcomes


class How(enum.Enum):
    """How a message was delivered."""

    LIVE = "by what was sent to all receivers"
    REPAIRED = "with parts that were requested again"
    REPLAYED = "with parts that its origin replayed"


# In Python 3.11, enum member access goes through EnumType.__getattr__; bind the members once for the hot
# paths.
_LIVE: Final = How.LIVE
_REPAIRED: Final = How.REPAIRED


class Delivery:
    """A message whose turn has come. `how` is for statistics only."""

    __slots__ = ("how", "message")

    def __init__(self, message: Message, how: How) -> None:
        self.message = message
        self.how = how

    def __repr__(self) -> str:
        return f"Delivery({self.message!r}, {self.how.name})"


class Filtered(Struct, frozen=True):
    """Verdict that no application of this host wants the message: the network sent it needlessly."""


FILTERED = Filtered()

# The host's verdict on a message; None accepts it.
Judge = Callable[[Message], Filtered | Rejection | None]


class Progress(Struct, frozen=True):
    """The progress that a receiver stores with the records it has taken, in order to continue after a
    restart.

    It began at `first`, everything before `next` is settled, and `totals` says how.
    """

    first: int
    next: int
    totals: Totals = Totals()


class Outcomes:
    """Running totals of outcomes."""

    def __init__(self, totals: Totals | None = None) -> None:
        totals = totals or Totals()
        self.live = totals.live
        self._repaired = totals.repaired
        self._replayed = totals.replayed
        self._filtered = totals.filtered
        self._expired = dict(totals.expired)
        self._refused = dict(totals.refused)

    def settle(self, records: int, how: How, verdict: Filtered | Rejection | None) -> bool:
        """Counts the outcome of records. Returns whether they are to be delivered."""
        if verdict is None:
            if how is _LIVE:
                self.live += records
            elif how is _REPAIRED:
                self._repaired += records
            else:
                self._replayed += records
        elif isinstance(verdict, Filtered):
            self._filtered += records
        else:
            self.reject(records, verdict)
        return verdict is None

    def expire(self, records: int, reason: Expiry) -> None:
        if reason is Expiry.FILTERED:
            self._filtered += records
            return
        self._expired[reason] = self._expired.get(reason, 0) + records

    def reject(self, records: int, reason: Rejection) -> None:
        """Counts records that were never handed out."""
        self._refused[reason] = self._refused.get(reason, 0) + records

    def totals(self) -> Totals:
        return Totals(
            self.live,
            self._repaired,
            self._replayed,
            self._filtered,
            dict(self._expired),
            dict(self._refused),
        )


class Room:
    """The capacity of a host's sockets, `total` bytes, shared among the streams that have recently reported
    being in use.

    All streams arrive at the same sockets, so the data that all their origins have in flight to this host
    must fit into them together. Each stream in use gets an equal share, and reports no more room than that.
    """

    __slots__ = ("_counted", "_seen", "_share", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self._seen: dict[tuple[int, int, int], float] = {}
        self._share = total
        self._counted = -1e18

    def used(self, stream: tuple[int, int, int], now: float) -> None:
        """Notes that data of `stream` has arrived."""
        new = stream not in self._seen
        self._seen[stream] = now
        if new or now - self._counted >= _LOOK:
            self._count(now)

    def _count(self, now: float) -> None:
        self._counted = now
        self._seen = {stream: at for stream, at in self._seen.items() if now - at < _IN_USE}
        self._share = max(_LEAST, self.total // max(1, len(self._seen)))

    @property
    def share(self) -> int:
        """Bytes for each stream in use."""
        return self._share
