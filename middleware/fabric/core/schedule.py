"""A set of deadlines, with the earliest first."""

from __future__ import annotations

import heapq
from typing import Final

from .settings import NEVER

_SLACK: Final = 64  # stale entries allowed beyond twice the number of current ones


class Schedule:
    """Deadlines of numbered items. Setting and finding one take logarithmic time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._times: dict[int, float] = {}

    def set(self, number: int, at: float) -> None:
        """Sets the only deadline of `number`; NEVER removes it."""
        if at == NEVER:
            self._times.pop(number, None)
            return
        if self._times.get(number) == at:
            return
        self._times[number] = at
        heapq.heappush(self._heap, (at, number))
        if len(self._heap) > 2 * len(self._times) + _SLACK:
            self._heap = [(time, one) for one, time in self._times.items()]
            heapq.heapify(self._heap)

    def discard(self, number: int) -> None:
        self._times.pop(number, None)

    def due(self, now: float) -> list[int]:
        """Removes and returns the items due by `now`, each once."""
        found: list[int] = []
        while self._heap and self._heap[0][0] <= now:
            at, number = heapq.heappop(self._heap)
            if self._times.get(number) == at:
                del self._times[number]
                found.append(number)
        return found

    def next(self) -> float:
        """The earliest deadline."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER
