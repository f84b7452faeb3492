"""One timer for many deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator

from treecast.middleware.model.timers import NEVER, Due, no_sooner


class Deadlines:
    """Calls `due` on the loop at the earliest deadline. Deadlines are in seconds of `clock`."""

    def __init__(self, clock: Callable[[], float], due: Callable[[], None]) -> None:
        self._clock = clock
        self._due = due
        self._keys: Due[Hashable] = Due()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Hashable, deadline: float) -> None:
        """Makes `key` due at `deadline`; an earlier deadline of the same key stays."""
        if deadline < self._keys.time_of(key):
            self._keys.put(key, deadline)
            self._arm()

    def discard(self, key: Hashable) -> None:
        self._keys.discard(key)

    def next(self) -> float:
        """Returns the earliest deadline; infinity if there is none."""
        return self._keys.next()

    def take_due(self, now: float) -> Iterator[Hashable]:
        """Removes and yields the keys that are due by `now`."""
        while self.next() <= now:
            yield self._keys.pop()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, NEVER
        self._keys = Due()

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
        if self._keys:
            self._arm()
