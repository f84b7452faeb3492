"""A thread that forces written data to disk, beside an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue

from .block_log import SyncTicket

Then = Callable[[list[str]], None]


class SyncThread:
    """Runs syncs one after the other. The thread starts with the first one.

    A task and a future of an executor for each sync would take more processor time than the sync's own calls,
    between a message and its confirm.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Sequence[SyncTicket], Then] | None] = SimpleQueue()
        self._running = 0
        self._started = False
        self._idle = asyncio.Event()
        self._idle.set()

    def run(self, tickets: Sequence[SyncTicket], then: Then) -> None:
        """Runs all syncs, then calls `then` on the loop with the error of each ("": none)."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._work, name="forces data to disk", daemon=True).start()
        self._running += 1
        self._idle.clear()
        self._jobs.put((tickets, then))

    async def settled(self) -> None:
        """Returns when no sync is running."""
        await self._idle.wait()

    def close(self) -> None:
        """Ends the thread, after the syncs that were asked for. Safe to call twice."""
        if self._started:
            self._started = False
            self._jobs.put(None)

    def _done(self, then: Then, errors: list[str]) -> None:
        self._running -= 1
        try:
            then(errors)  # may ask for the next one
        finally:
            if not self._running:
                self._idle.set()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            tickets, then = job
            errors = run_all(tickets)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._done, then, errors)


def run_all(tickets: Sequence[SyncTicket]) -> list[str]:
    """Runs the syncs. Returns the error of each, "" if there was none."""
    errors = []
    for ticket in tickets:
        try:
            ticket.run()
        except OSError as error:
            errors.append(str(error))
        else:
            errors.append("")
    return errors
