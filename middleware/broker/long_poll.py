"""The long poll of a fetch: waits for bytes over many partitions, without a task and without polling.

All waits of a loop share a timer and a call: a timer for each fetch, and a turn of the loop for each that
is woken, cost as much as reading what it waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from .cluster import PartitionLeader
from .values import Isolation

TICK: Final = 0.01  # seconds: a wait ends so much late at the most


class LongPolls:
    """What the waits of a loop share: who is to be told next, and who is told when its time is over.

    Time-outs are kept in slots of `TICK` seconds, and one timer runs for the next slot that has any.
    Between `hold` and `let_go`, a chunk is being served, of a client or of another host: who is woken
    meanwhile is told by `let_go`, without another turn of the loop. Holds may lie in each other.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._held = 0
        self._called = False
        self._woken: list[FetchWait] = []
        self._slots: dict[int, dict[FetchWait, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0  # the slot that the timer is for

    # --- who is woken

    def hold(self) -> None:
        self._held += 1

    def let_go(self) -> None:
        self._held -= 1
        if self._woken and not self._held:
            self._tell()

    def wake(self, wait: FetchWait) -> None:
        """Tells `wait` that it is over: soon, but not from within this call."""
        self._woken.append(wait)
        if not self._held and not self._called:
            self._called = True
            self.loop.call_soon(self._tell_called)

    def _tell_called(self) -> None:
        self._called = False
        self._tell()

    def _tell(self) -> None:
        woken, self._woken = self._woken, []
        for wait in woken:
            try:
                wait.tell()
            except Exception as error:
                self.loop.call_exception_handler({"message": "a long poll failed", "exception": error})

    # --- whose time is over

    def watch(self, wait: FetchWait, timeout: float) -> int:
        """Ends `wait` after `timeout` seconds: the slot that it is in, for `unwatch`."""
        slot = int((self.loop.time() + timeout) / TICK) + 1
        waits = self._slots.get(slot)
        if waits is not None:
            waits[wait] = None
            return slot
        self._slots[slot] = {wait: None}
        if self._timer is None or slot < self._next:
            self._start_timer(slot)
        return slot

    def unwatch(self, wait: FetchWait, slot: int) -> None:
        """The timer goes on: at most one for each slot that was the next comes for nothing."""
        waits = self._slots.get(slot)
        if waits is not None and waits.pop(wait, _MISSING) is not _MISSING and not waits:
            del self._slots[slot]

    def _start_timer(self, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = slot
        self._timer = self.loop.call_at(slot * TICK, self._due)

    def _due(self) -> None:
        self._timer = None
        now = int(self.loop.time() / TICK + 0.5)  # a loop's timers may come a little early
        for slot in sorted(self._slots):
            if slot > now:
                break
            for wait in tuple(self._slots.pop(slot)):
                wait.finish()
        if self._slots and self._timer is None:
            self._start_timer(min(self._slots))


_MISSING: Final = object()


class FetchWait:
    """Waits until `missing` more bytes can be read from `partitions`, or `timeout` seconds are over.

    `done` is called once, from the loop and never from within an append, whichever comes first; the
    fetch then reads again and answers with what there is. A partition that is deleted or fenced ends
    the wait at once (the new read says why). With read_committed only bytes below the last stable
    offset count; where it is not known how many became readable, the wait ends early, and the fetch
    may wait anew for the rest of its time.
    """

    def __init__(
        self,
        polls: LongPolls,
        partitions: Sequence[PartitionLeader],
        isolation: Isolation,
        missing: int,
        timeout: float,
        done: Callable[[], None],
    ) -> None:
        self._polls = polls
        self._partitions = partitions
        self._missing = missing
        self._done = done
        self._cancelled = False
        self.over = False
        for partition in partitions:
            partition.watch(self, isolation)
        self._slot = polls.watch(self, timeout)

    def grown(self, size: int) -> None:
        """`size` more bytes can be read; 0: some became readable, nobody counted how many."""
        self._missing -= size
        if self._missing <= 0 or size == 0:
            self.finish()

    def foreseen(self, size: int) -> None:
        """`size` bytes can be read by who has read all else, and are counted when `grown` says so."""
        if self._missing <= size:
            self.finish()

    def gone(self) -> None:
        """One of the partitions is not here any more."""
        self.finish()

    def cancel(self) -> None:
        """Ends the wait; `done` is not called any more (the connection closed)."""
        self._cancelled = True
        if not self.over:
            self.over = True
            self._release()

    def finish(self) -> None:
        """Ends the wait; `done` will be called."""
        if not self.over:
            self.over = True
            self._release()
            self._polls.wake(self)

    def tell(self) -> None:
        """The wait is over, and this is no append."""
        if not self._cancelled:
            self._done()

    def _release(self) -> None:
        self._polls.unwatch(self, self._slot)
        for partition in self._partitions:
            partition.unwatch(self)
