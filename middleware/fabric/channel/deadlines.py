"""Deadlines of calls, with one timer of the loop, and the patience with silent hosts, which grows while
machines are busy."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

from treecast.middleware.model.timers import no_sooner

from .outgoing import Call
from .peers import Peer
from .settings import ChannelSettings

_MANY = 1024  # above this number, deadlines of ended calls are removed once they are the majority
_MOST_PATIENCE: Final = 4.0
_FACTOR: Final = 2.0


class Deadlines:
    """Calls `expired` for each call that is still wanted at its deadline."""

    def __init__(self, expired: Callable[[Peer, Call], None]) -> None:
        self._expired = expired
        self._entries: list[tuple[float, int, Peer, Call]] = []
        self._made = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Number of stored deadlines, including those of ended calls."""
        return len(self._entries)

    def add(self, loop: asyncio.AbstractEventLoop, at: float, peer: Peer, call: Call, waiting: int) -> None:
        """Adds a deadline. `at`: loop time. `waiting`: number of wanted calls."""
        entries = self._entries
        if len(entries) > _MANY and len(entries) > 4 * waiting:
            entries[:] = [entry for entry in entries if entry[3].wanted]
            heapq.heapify(entries)
        self._made += 1
        heapq.heappush(entries, (at, self._made, peer, call))
        if self._timer is None or entries[0][1] == self._made:  # it is the earliest
            self.close()
            self._start(loop, at)

    def _start(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        self._timer = loop.call_later(no_sooner(at - loop.time()), self._expire, loop)

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        entries = self._entries
        while entries and (entries[0][0] <= now or not entries[0][3].wanted):
            _, _, peer, call = heapq.heappop(entries)
            if call.wanted:
                self._expired(peer, call)
        if entries and self._timer is None:
            self._start(loop, entries[0][0])


class Patience:
    """The factor, from 1 to 4, by which time-outs for other hosts are extended.

    It doubles with each connection that ended for silence, because the other end may only be slow. It halves
    after `patience_for` seconds without such an end.
    """

    def __init__(self, settings: ChannelSettings) -> None:
        self._settings = settings
        self._value = 1.0
        self._since = 0.0

    def in_vain(self, now: float) -> None:
        """Notes a connection that ended for silence. Several at the same time count once."""
        if self._value == 1.0 or now - self._since >= self._settings.silent_after:
            self._value = min(_MOST_PATIENCE, self._value * _FACTOR)
            self._since = now

    def now(self, now: float) -> float:
        if self._value > 1.0 and now - self._since >= self._settings.patience_for:
            self._value /= _FACTOR
            self._since = now
        return self._value
