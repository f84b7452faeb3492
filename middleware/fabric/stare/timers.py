"""Many deadlines by key, of which few are due: a heap that ignores replaced entries."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from treecast.middleware.model.timers import NEVER

K = TypeVar("K", bound=Hashable)


class Random(Protocol):
    """A seeded generator."""

    def random(self) -> float: ...


class Timers(Generic[K]):
    """Deadlines by key, at most one each."""

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at: float) -> None:
        """Sets or replaces the deadline of a key."""
        self._at[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))
        if len(self._heap) > 2 * len(self._at) + 64:
            self._tidy()

    def clear(self, key: K) -> None:
        self._at.pop(key, None)

    def _tidy(self) -> None:
        self._heap = [(at, n, key) for n, (key, at) in enumerate(self._at.items())]
        self._count = len(self._heap)
        heapq.heapify(self._heap)

    def due(self, now: float, most: int = 1 << 30) -> list[K]:
        """Removes and returns at most `most` keys that are due, in order of deadline."""
        found: list[K] = []
        heap = self._heap
        while heap and heap[0][0] <= now and len(found) < most:
            at, _, key = heapq.heappop(heap)
            # Otherwise it was replaced or cleared, and its entry left behind: removing it would search the
            # heap.
            if self._at.get(key) == at:
                del self._at[key]
                found.append(key)
        return found

    def next(self) -> float:
        """Returns the earliest deadline; NEVER if there is none."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER


class Wait:
    """Doubling waits, randomised by a seeded generator to keep hosts from sending at the same time."""

    __slots__ = ("_first", "_longest", "_random", "_spread")

    def __init__(self, first: float, longest: float, spread: float, random: Random) -> None:
        self._first = first
        self._longest = longest
        self._spread = spread
        self._random = random

    def after(self, attempts: int) -> float:
        """Returns the seconds to wait after `attempts` failed attempts."""
        wait = self._longest if attempts > 40 else min(self._first * 2.0**attempts, self._longest)
        return self.spread(wait)

    def spread(self, wait: float) -> float:
        return wait * (1 + self._spread * self._random.random())
