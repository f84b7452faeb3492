"""The state of messages by queue and position: settled, handed out, failed deliveries.

Ranges may be added in any order and may overlap; they are sorted and merged at the first query.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from . import entries


class Ranges:
    """A set of positions, as ranges."""

    def __init__(self) -> None:
        self._raw = array("Q")  # first, end, first, end ...
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def add(self, first: int, count: int) -> None:
        self._raw.append(first)
        self._raw.append(first + count)

    def _order(self) -> None:
        """Merges the added ranges into `_firsts` and `_ends`."""
        if not self._raw:
            return
        pairs = sorted(
            [*zip(self._firsts, self._ends, strict=True), *zip(self._raw[::2], self._raw[1::2], strict=True)]
        )
        self._raw = array("Q")
        self._firsts, self._ends = [], []
        for first, end in pairs:
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._firsts.append(first)
                self._ends.append(end)

    def all(self) -> Iterator[tuple[int, int]]:
        """Yields (first, end) of each range."""
        self._order()
        return zip(self._firsts, self._ends, strict=True)

    def within(self, first: int, end: int) -> list[tuple[int, int]]:
        """Returns the parts of the ranges between `first` and `end`."""
        self._order()
        found = []
        at = max(bisect_right(self._firsts, first) - 1, 0)
        while at < len(self._firsts) and self._firsts[at] < end:
            begin, stop = max(self._firsts[at], first), min(self._ends[at], end)
            if begin < stop:
                found.append((begin, stop))
            at += 1
        return found


class QueueMarks:
    """The marks of one queue's messages whose runs are in one segment."""

    def __init__(self) -> None:
        self.settled = Ranges()
        self.handed = Ranges()
        self.failed: dict[int, Ranges] = {}  # by the number of failed deliveries

    def add(self, kind: int, first: int, count: int, deliveries: int) -> None:
        if kind == entries.SETTLED:
            self.settled.add(first, count)
        elif kind == entries.HANDED:
            self.handed.add(first, count)
        else:
            self.failed.setdefault(deliveries, Ranges()).add(first, count)

    def left(self, first: int, end: int) -> list[tuple[int, int]]:
        """Returns the ranges between `first` and `end` that are not settled."""
        found = []
        for begin, stop in self.settled.within(first, end):
            if first < begin:
                found.append((first, begin))
            first = stop
        if first < end:
            found.append((first, end))
        return found

    def pieces(self, first: int, end: int) -> list[tuple[int, int, bool, int]]:
        """Returns the unsettled ranges, cut into uniform pieces: (first, end, handed out, failures)."""
        found = []
        for begin, stop in self.left(first, end):
            edges = {begin, stop}
            for ranges in (self.handed, *self.failed.values()):
                for one in ranges.within(begin, stop):
                    edges.update(one)
            ordered = sorted(edges)
            for low, high in pairwise(ordered):
                failures = max(
                    (n for n, ranges in self.failed.items() if ranges.within(low, high)), default=-1
                )
                handed = failures >= 0 or bool(self.handed.within(low, high))
                found.append((low, high, handed, max(failures, 0)))
        return found


class Marks:
    """All marks, by the segment of the runs and by queue."""

    def __init__(self) -> None:
        self.by_segment: dict[int, dict[int, QueueMarks]] = {}

    def read(self, kind: int, data: bytes, at: int) -> int:
        """Adds an entry. Returns the segment that it refers to."""
        queue, segment, first, count = entries.read_range(data, at)
        deliveries = entries.read_deliveries(data, at) if kind == entries.RETURNED else 0
        queues = self.by_segment.setdefault(segment, {})
        marks = queues.get(queue)
        if marks is None:
            marks = queues[queue] = QueueMarks()
        marks.add(kind, first, count, deliveries)
        return segment

    def of(self, segment: int, queue: int) -> QueueMarks | None:
        return self.by_segment.get(segment, {}).get(queue)

    def encode(self) -> list[bytes]:
        """Returns all marks as entries, merged as far as possible."""
        found = []
        for segment, queues in self.by_segment.items():
            for queue, marks in queues.items():
                for kind, ranges in ((entries.SETTLED, marks.settled), (entries.HANDED, marks.handed)):
                    found += [entries.ranged(kind, queue, segment, a, b - a) for a, b in ranges.all()]
                for deliveries, ranges in marks.failed.items():
                    found += [entries.returned(queue, segment, a, b - a, deliveries) for a, b in ranges.all()]
        return found
