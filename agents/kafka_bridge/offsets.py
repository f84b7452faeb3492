"""`OffsetMap`: which record of the source is which record of the target, for one partition of one way. Pure.

    source   first ........ end        first .. end
                |            |            |      |
    target   target .. target_end     target .. target_end

An exact segment maps each offset. Old segments are joined in pairs: such a segment maps all of its offsets to
its beginning, so that a group that goes on there reads again what it had, and misses nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

MOST: Final = 512  # segments
NOTHING: Final = (1 << 63) - 1  # no record was carried from there on
_UNKNOWN: Final = -1


class Segment(Struct, frozen=True, array_like=True):
    """Records `first` to `end` of the source (exclusive) are among `target` to `target_end`, which is NOTHING
    as long as it is not known. `exact`: one after the other."""

    first: int
    end: int
    target: int
    target_end: int
    exact: bool = True


class OffsetMap:
    """`floor`: what was carried from there on is known; -1: nothing yet. `whole`: that is all that ever
    was."""

    def __init__(
        self, floor: int = _UNKNOWN, segments: Iterable[Segment] = (), *, whole: bool = False
    ) -> None:
        self.floor = floor
        self.whole = whole
        self.segments = list(segments)

    @property
    def target_end(self) -> int:
        """The offset after the last record at the target; -1 if none is known."""
        if not self.segments:
            return _UNKNOWN
        last = self.segments[-1]
        return last.target if last.target_end == NOTHING else last.target_end

    def begin(self, position: int, *, new: bool) -> None:
        """Carrying begins at `position`. `new`: it never did before."""
        if self.floor == _UNKNOWN:
            self.floor, self.whole = position, new
        elif not self.segments:
            self.floor, self.whole = max(self.floor, position), self.whole and position == self.floor
        elif position > self.segments[-1].end:  # carried by a run that could not say so before its end
            self._put(Segment(self.segments[-1].end, position, self.target_end, NOTHING, False))

    def add(self, first: int, count: int, target: int) -> None:
        """Records `first` to `first + count` were carried to `target`. Both only grow."""
        self._put(Segment(first, first + count, target, target + count))

    def _put(self, one: Segment) -> None:
        last = self._closed(one.target)
        if last is not None and (one.first < last.end or one.target < last.target_end):
            return  # carried again after the source has lost records: the first place counts
        together = None if last is None else joined(last, one)
        if together is not None and together.exact:
            self.segments[-1] = together
        else:
            self.segments.append(one)
        if len(self.segments) > MOST:
            self._thin()

    def _closed(self, target: int) -> Segment | None:
        """Returns the last segment, whose end is known now that the next one begins at `target`."""
        if not self.segments:
            return None
        last = self.segments[-1]
        if last.target_end == NOTHING:
            end = max(target, last.target)
            last = self.segments[-1] = Segment(last.first, last.end, last.target, end, False)
        return last

    def _thin(self) -> None:
        """Joins the older half in pairs: half of the bound stays exact, what is older gets coarser."""
        half = MOST // 2
        old, new = self.segments[:half], self.segments[half:]
        self.segments = [joined(*old[at : at + 2]) for at in range(0, half, 2)] + new

    def next_of(self, offset: int) -> int | None:
        """Returns where at the target the records from `offset` on begin; NOTHING if none was carried, None
        if that is not known."""
        if self.floor == _UNKNOWN or (offset < self.floor and not self.whole):
            return None
        at = bisect_right(self.segments, offset, key=lambda one: one.end)
        if at == len(self.segments):
            return NOTHING
        one = self.segments[at]
        return one.target + max(offset - one.first, 0) if one.exact else one.target

    def source_of(self, target: int) -> int | None:
        """Returns where at the source the records begin that are at `target` or behind it; as `next_of`."""
        if not self.segments:
            return NOTHING if self.whole else None
        if target < self.segments[0].target and not self.whole:
            return None
        at = bisect_right(self.segments, target, key=lambda one: one.target_end)
        if at == len(self.segments):
            return NOTHING
        one = self.segments[at]
        return one.first + max(target - one.target, 0) if one.exact else one.first


def joined(one: Segment, other: Segment) -> Segment:
    """Returns one segment for two that follow one another."""
    touches = (one.end, one.target_end) == (other.first, other.target)
    exact = one.exact and other.exact and touches
    return Segment(one.first, other.end, one.target, other.target_end, exact)


def translated(offset: int, own: OffsetMap, back: OffsetMap | None, back_position: int) -> int | None:
    """Returns where a group that has read the source up to `offset` goes on at the target; None: not known.

    `back`: the map of the other direction, where both logs hold the records of both clusters; `back_position`
    is how far that one has read the target. Then the group goes on at the first record that it has not read,
    whichever cluster it was written to.
    """
    here = own.next_of(offset)
    if back is None:
        return own.target_end if here == NOTHING and own.segments else (None if here == NOTHING else here)
    there = back.source_of(offset)
    if here is None or there is None:
        return None
    return min(here, there, back_position)
