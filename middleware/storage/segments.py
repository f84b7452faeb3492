"""The segments of a log, oldest first: look-up by offset, and reading across segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from treecast.middleware.model.buffers import Chunk

from .segment import Segment

CURSORS: Final = 64  # maximum


class SegmentList:
    """Adjacent segments without a gap; the last one is appended to.

    `bases` are their base offsets, `size` their bytes together. There is at least one, except while a log
    restarts.
    """

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        self.bases: list[int] = [segment.base_offset for segment in segments]
        self.active: Segment = segments[-1]
        self.size = sum(segment.size for segment in segments)
        self.cursors: dict[int, int] = {}  # offset -> position in its segment

    def number_of(self, offset: int) -> int:
        """Returns the number of the segment that holds `offset`, or would hold it."""
        if offset >= self.active.base_offset:
            return len(self.all) - 1
        return max(bisect_right(self.bases, offset) - 1, 0)

    # --- which there are

    def begin(self, segment: Segment) -> None:
        """Adds the empty `segment` as the last one."""
        self.cursors.clear()
        self.all.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment

    def forget(self, segment: Segment) -> None:
        """Removes `segment`."""
        number = self.bases.index(segment.base_offset)
        del self.all[number], self.bases[number]
        self.size -= segment.size
        self.cursors.clear()

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replaces the adjacent segments `old` by `new`, which holds their content."""
        number = self.bases.index(old[0].base_offset)
        self.all[number : number + len(old)] = [new]
        self.bases[number : number + len(old)] = [new.base_offset]
        self.size += new.size - sum(segment.size for segment in old)
        self.active = self.all[-1]
        self.cursors.clear()

    # --- reading

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool
    ) -> tuple[list[Chunk], int]:
        """Implements `PartitionLog.read` for offsets that exist."""
        chunks: list[Chunk] = []
        total = 0
        number = self.number_of(offset)
        while offset < limit_offset:
            segment = self.all[number]
            start = self.cursors.get(offset, -1)
            if start < 0:
                start = segment.locate(offset)
            bound = segment.size if limit_offset >= segment.next_offset else segment.locate(limit_offset)
            end, following = start, -1
            if start < bound:
                end, following = segment.end_within(
                    start, max_bytes - total, bound, at_least_one=at_least_one and total == 0
                )
            if end > start:
                chunks.append(segment.read(start, end))
                total += end - start
            if end < bound or number + 1 == len(self.all):
                if end == bound:
                    following = limit_offset
                self._remember(following, end)
                break
            number += 1
            offset = segment.next_offset
        return chunks, total

    def _remember(self, offset: int, position: int) -> None:
        """Remembers where the same consumer's next read begins: `offset`, at `position` of its segment."""
        if offset >= 0:
            if len(self.cursors) >= CURSORS:
                self.cursors.clear()
            self.cursors[offset] = position

    def aborted_between(self, first: int, limit: int) -> list[tuple[int, int]]:
        """Implements `PartitionLog.aborted_between`."""
        found: list[tuple[int, int]] = []
        for segment in self.all[self.number_of(first) :]:
            for entry in segment.aborted:
                if entry.last_offset >= first and entry.first_offset < limit:
                    found.append((entry.producer_id, entry.first_offset))
                if entry.stable_offset >= limit:
                    return found
        return found
