"""The long poll of a fetch: waits for bytes over many partitions, without a task and without polling.

All waits of a loop share one timer and one callback. A timer per fetch and a loop iteration per woken fetch
would cost as much as the read that the fetch waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from .cluster import PartitionLeader
from .values import Isolation

TICK: Final = 0.01  # seconds: a wait ends at most this much late


class LongPolls:
    """The state that the waits of a loop share: the woken waits and the time-outs.

    Time-outs are kept in slots of `TICK` seconds; one timer runs for the next slot in use. Between `hold`
    and `let_go`, a chunk from a client or another host is being processed: waits that are woken meanwhile
    are told by `let_go`, without another loop iteration. Holds may be nested.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._held = 0
        self._called = False
        self._woken: list[FetchWait] = []
        self._slots: dict[int, dict[FetchWait, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0  # the slot that the timer is for

    # --- woken waits

    def hold(self) -> None:
        self._held += 1

    def let_go(self) -> None:
        self._held -= 1
        if self._woken and not self._held:
            self._tell()

    def wake(self, wait: FetchWait) -> None:
        """Schedules `wait.tell`: soon, but not from within this call."""
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

    # --- time-outs

    def watch(self, wait: FetchWait, timeout: float) -> int:
        """Ends `wait` after `timeout` seconds. Returns its slot, for `unwatch`."""
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
        """Cancels the time-out of `wait`. The timer keeps running, and may fire once for an empty slot."""
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
        now = int(self.loop.time() / TICK + 0.5)  # the loop's timers may fire a little early
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

    `done` is called once, from the loop and never from within an append. The fetch then reads again and
    answers with what it finds. If a partition is deleted or fenced, the wait ends at once (the new read
    returns the error). With read_committed only bytes below the last stable offset count; if the number of
    newly readable bytes is unknown, the wait ends early, and the fetch may wait again for the rest of its
    time.
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
        """`size` more bytes can be read; 0: an unknown number."""
        self._missing -= size
        if self._missing <= 0 or size == 0:
            self.finish()

    def foreseen(self, size: int) -> None:
        """Readers at the end can read `size` bytes early; the bytes are counted only at `grown`."""
        if self._missing <= size:
            self.finish()

    def gone(self) -> None:
        """One of the partitions is no longer here."""
        self.finish()

    def cancel(self) -> None:
        """Ends the wait without calling `done` (the connection closed)."""
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
        """Calls `done`, unless the wait was cancelled. Not called from within an append."""
        if not self._cancelled:
            self._done()

    def _release(self) -> None:
        self._polls.unwatch(self, self._slot)
        for partition in self._partitions:
            partition.unwatch(self)
