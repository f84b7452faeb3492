"""The long poll of a fetch: waits for bytes over many partitions, without a task and without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .cluster import PartitionLeader
from .values import Isolation


class FetchWait:
    """Waits until `missing` more bytes can be read from `partitions`, or `timeout` seconds are over.

    `done` is called once, from the loop and never from within an append, whichever comes first; the
    fetch then reads again and answers with what there is. A partition that is deleted or fenced ends
    the wait at once (the new read says why). With read_committed only bytes below the last stable
    offset count; where it is not known how many became readable, the wait ends early, and the fetch
    may wait anew for the rest of its time.
    """

    __slots__ = ("_call", "_done", "_isolation", "_loop", "_missing", "_partitions", "_timer", "over")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[PartitionLeader],
        isolation: Isolation,
        missing: int,
        timeout: float,
        done: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._isolation = isolation
        self._missing = missing
        self._done = done
        self._call: asyncio.Handle | None = None
        self.over = False
        for partition in partitions:
            partition.watch(self, isolation)
        self._timer = loop.call_later(timeout, self._finish)

    def grown(self, size: int) -> None:
        """`size` more bytes can be read; 0: some became readable, nobody counted how many."""
        self._missing -= size
        if self._missing <= 0 or size == 0:
            self._finish()

    def gone(self) -> None:
        """One of the partitions is not here any more."""
        self._finish()

    def cancel(self) -> None:
        """Ends the wait; `done` is not called any more (the connection closed)."""
        if self._call is not None:
            self._call.cancel()
        if not self.over:
            self.over = True
            self._release()

    def _finish(self) -> None:
        if not self.over:
            self.over = True
            self._release()
            self._call = self._loop.call_soon(self._done)

    def _release(self) -> None:
        self._timer.cancel()
        for partition in self._partitions:
            partition.unwatch(self)
