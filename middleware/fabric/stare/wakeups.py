"""Schedules the work of a core without I/O: in the next turn of the loop, or at its next deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from treecast.middleware.model.timers import NEVER, no_sooner


class Wakeups:
    """Calls `work` in the loop's next turn or at a deadline, once for any number of requests."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._loop: asyncio.AbstractEventLoop
        self._work = work
        self._called = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def soon(self) -> None:
        if not self._called:
            self._called = True
            self._loop.call_soon(self._turn)

    def at(self, deadline: float, now: float) -> None:
        """Replaces the deadline; NEVER removes it. `deadline` and `now` are times of the owner's clock."""
        if deadline == self._timer_at:
            return
        self.close()
        self._timer_at = deadline
        if deadline < NEVER:
            self._timer = self._loop.call_later(no_sooner(deadline - now), self._due)

    def close(self) -> None:
        """Cancels the timer of the deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._called = False
        self._work()

    def _due(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self._work()
