"""One timer for many deadlines."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable, Iterator
from itertools import count

from treecast.middleware.model.timers import NEVER, no_sooner


class Deadlines:
    """Calls `due` on the loop at the earliest deadline. Deadlines are in seconds of `clock`."""

    def __init__(self, clock: Callable[[], float], due: Callable[[], None]) -> None:
        self._clock = clock
        self._due = due
        self._heap: list[tuple[float, int, Hashable]] = []
        self._earliest: dict[Hashable, float] = {}
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER

    def __len__(self) -> int:
        return len(self._earliest)

    def add(self, key: Hashable, deadline: float) -> None:
        """Makes `key` due at `deadline`; an earlier deadline of the same key stays."""
        if deadline < self._earliest.get(key, NEVER):
            self._earliest[key] = deadline
            heapq.heappush(self._heap, (deadline, next(self._numbers), key))
            self._arm()

    def discard(self, key: Hashable) -> None:
        self._earliest.pop(key, None)

    def next(self) -> float:
        """Returns the earliest deadline; infinity if there is none."""
        while self._heap and self._earliest.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER

    def take_due(self, now: float) -> Iterator[Hashable]:
        """Removes and yields the keys that are due by `now`."""
        while self.next() <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._earliest[key]
            yield key

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, NEVER
        self._heap.clear()
        self._earliest.clear()

    def _arm(self) -> None:
        earliest = self.next()
        if earliest >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = earliest
        delay = no_sooner(earliest - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._due()
        if self._heap:
            self._arm()
