"""The updates of one VNF for one state that hosts may still request. The last one is always kept."""

from __future__ import annotations

from collections import deque


class Backlog:
    """A backlog. `first`: number of the oldest update, `end`: number of the next one. `size`: bytes of the
    values.
    """

    __slots__ = ("_values", "end", "size")

    def __init__(self, end: int = 0) -> None:
        self._values: deque[bytes] = deque()
        self.end = end
        self.size = 0

    @property
    def first(self) -> int:
        return self.end - len(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, number: int, value: bytes) -> int:
        """Appends an update and returns the growth in bytes. A gap in the numbers clears older updates, which
        could no longer be delivered in order.
        """
        before = self.size
        if number != self.end:
            self._values.clear()
            self.size = 0
        self._values.append(value)
        self.size += len(value)
        self.end = number + 1
        return self.size - before

    def get(self, number: int) -> bytes | None:
        at = number - self.first
        return self._values[at] if 0 <= at < len(self._values) else None

    def truncate(self, first: int) -> tuple[int, int]:
        """Removes updates before `first`, but never the last one. Returns (updates, bytes) removed."""
        updates = size = 0
        while len(self._values) > 1 and self.first < first:
            size += len(self._values.popleft())
            updates += 1
        self.size -= size
        return updates, size
