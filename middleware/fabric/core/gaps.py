"""The gaps that a receiver knows of, and when it requests them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from treecast.middleware.model.timers import NEVER

_MANY = 8192  # gaps; from this many on, adjacent ones merge even if already requested


class Missing:
    """Missing records in [first, end); last requested at `asked`, next due at `due`.

    `attempts`: requests since the last repair of anything; 0: not requested yet. `near`: requests to hosts
    nearer than the origin.
    """

    __slots__ = ("asked", "attempts", "due", "end", "first", "near")

    def __init__(
        self, first: int, end: int, due: float, attempts: int = 0, asked: float = -NEVER, near: int = 0
    ) -> None:
        self.first = first
        self.end = end
        self.due = due
        self.attempts = attempts
        self.asked = asked
        self.near = near

    def piece(self, first: int, end: int) -> Missing:
        """A part of this gap, with the same history."""
        return Missing(first, end, self.due, self.attempts, self.asked, self.near)


class Gaps:
    """Disjoint gaps in ascending order."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self.all: list[Missing] = []  # changed only here
        self._earliest = NEVER  # no gap is due earlier

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Missing]:
        return iter(self.all)

    @property
    def first(self) -> Missing | None:
        """The lowest gap."""
        return self.all[0] if self.all else None

    def open(self, first: int, end: int, due: float) -> None:
        """Adds a gap after all others. Extends the last gap instead if it is adjacent and was not requested
        yet."""
        last = self.all[-1] if self.all else None
        # A gap that was requested keeps its times to itself: the new records were not asked for with it.
        if last is not None and last.end == first and (not last.attempts or len(self) >= _MANY):
            last.end = end
            return
        self._firsts.append(first)
        self.all.append(Missing(first, end, due))
        self._earliest = min(self._earliest, due)

    def holding(self, first: int, end: int) -> Missing | None:
        """The gap that contains all of [first, end)."""
        at = bisect_right(self._firsts, first) - 1
        if at < 0 or self.all[at].end < end:
            return None
        return self.all[at]

    def touches(self, first: int, end: int) -> bool:
        """Whether any record of [first, end) is missing."""
        return next(self.within(first, end), None) is not None

    def within(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The missing parts of [first, end)."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        while at < len(self.all) and self.all[at].first < end:
            low, high = max(first, self.all[at].first), min(end, self.all[at].end)
            if low < high:
                yield low, high
            at += 1

    def fill(self, first: int, end: int) -> None:
        """Marks [first, end), which lies in one gap, as no longer missing."""
        at = bisect_right(self._firsts, first) - 1
        gap = self.all[at]
        rest = []
        if gap.first < first:
            rest.append(gap.piece(gap.first, first))
        if end < gap.end:
            rest.append(gap.piece(end, gap.end))
        self.all[at : at + 1] = rest
        self._firsts[at : at + 1] = [one.first for one in rest]

    def reschedule(self, sequence: int, passed: float, ahead: float) -> None:
        """Takes note of a repair at `sequence`. The part of its gap that the repair passed over is due at
        `passed`.

        The part after it may still be in flight and is due at `ahead`.
        """
        at = bisect_right(self._firsts, sequence) - 1
        gap = self.all[at] if at >= 0 else None
        if gap is None or gap.end <= sequence or not gap.attempts:
            return
        if gap.first < sequence:
            rest = Missing(sequence, gap.end, ahead)
            self._firsts.insert(at + 1, sequence)
            self.all.insert(at + 1, rest)
            gap.end, gap.due = sequence, passed
        else:
            gap.due = ahead
        gap.attempts = 0
        self._earliest = min(self._earliest, passed, ahead)

    def passed(self, sequence: int, due: float) -> None:
        """Notes that in-order data has reached `sequence`. If the gap there was not requested yet, its part
        before `sequence` is due at `due`."""
        at = bisect_right(self._firsts, sequence) - 1
        gap = self.all[at] if at >= 0 else None
        if gap is None or gap.attempts or not gap.first < sequence < gap.end or gap.due <= due:
            return
        self._firsts.insert(at + 1, sequence)
        self.all.insert(at + 1, Missing(sequence, gap.end, gap.due))
        gap.end, gap.due = sequence, due
        self._earliest = min(self._earliest, due)

    def part(self, first: int, end: int) -> Missing:
        """Splits [first, end), which lies in one gap, off as a gap of its own."""
        at = bisect_left(self._firsts, first)
        if at < len(self.all) and self.all[at].first == first and self.all[at].end == end:
            return self.all[at]
        gap = self.all[bisect_right(self._firsts, first) - 1]
        self.fill(first, end)
        at = bisect_left(self._firsts, first)
        own = gap.piece(first, end)
        self._firsts.insert(at, first)
        self.all.insert(at, own)
        return own

    def due(self, now: float) -> Iterator[Missing]:
        """Iterates over due gaps. The caller sets their next `due`."""
        if now < self._earliest:
            return
        for gap in self.all:
            if gap.due <= now:
                yield gap
        self._earliest = min((gap.due for gap in self.all), default=NEVER)

    def sooner(self, due: float) -> None:
        """Notes that the caller has set a gap's time to `due`."""
        self._earliest = min(self._earliest, due)

    def next_deadline(self) -> float:
        return self._earliest if self.all else NEVER

    def clear(self) -> None:
        self.all.clear()
        self._firsts.clear()
        self._earliest = NEVER
