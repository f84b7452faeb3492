"""Deadlines that never come, and rounding of event-loop timers, so that they never fire early."""

from __future__ import annotations

import heapq
from math import ceil
from typing import Final, Generic, TypeVar

K = TypeVar("K")

NEVER: Final = float("inf")  # a deadline, in seconds of any clock
_SPARE: Final = 64  # empty places that are not worth the work


def no_sooner(seconds: float) -> float:
    """Returns `seconds` rounded up to whole milliseconds; 0 if the time has passed.

    uvloop's clock and timers count milliseconds and round to the nearest one, so a timer of 0.4 ms fires at
    once. A caller that then finds nothing due and asks again would keep a core busy until the clock advances.
    asyncio's own loop waits for whole milliseconds anyway.
    """
    return ceil(seconds * 1000) / 1000 if seconds > 0 else 0.0


class Due(Generic[K]):
    """Keys with a time each, taken in the order of their times.

    A removed key is not held: its time may be hours away, and the key a connection. Its place in the heap is
    freed once most places are empty.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._entries: dict[int, tuple[float, K]] = {}  # by place
        self.places: dict[K, int] = {}  # of all keys that have a time
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def time_of(self, key: K) -> float:
        """Returns the key's time; infinity if it has none."""
        place = self.places.get(key, 0)
        return self._entries[place][0] if place else NEVER

    def next(self) -> float:
        """Returns the earliest time; infinity if there is none."""
        while self._heap and self._heap[0][1] not in self._entries:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def pop(self) -> K:
        """Removes the earliest key, and returns it. `next` must have found one."""
        key = self._entries.pop(heapq.heappop(self._heap)[1])[1]
        del self.places[key]
        return key

    def put(self, key: K, at: float) -> None:
        """Gives the key the time `at`, in place of an earlier one."""
        self.discard(key)
        self._count += 1
        self.places[key] = self._count
        self._entries[self._count] = (at, key)
        heapq.heappush(self._heap, (at, self._count))
        if len(self._heap) > 2 * len(self._entries) + _SPARE:
            self._heap = [(entry[0], place) for place, entry in self._entries.items()]
            heapq.heapify(self._heap)

    def discard(self, key: K) -> None:
        place = self.places.pop(key, 0)
        if place:
            del self._entries[place]

    def take(self, now: float) -> list[K]:
        """Removes the keys that are due by `now`, and returns them, earliest first."""
        found = []
        while self.next() <= now:
            found.append(self.pop())
        return found
