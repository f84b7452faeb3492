"""One turn of the event loop, over all connections of the face.

Chunks of one turn are served as they are read, each answered with one write. Fetches that wait for what they
bring are told at the turn's end, each once, however many connections have brought something. On a busy loop
the turn then rests (`model/pace`).
"""

from __future__ import annotations

import asyncio
import time

from treecast.middleware.broker import LongPolls
from treecast.middleware.model.pace import Pace


class FaceTurn:
    """Begins with the first chunk that is read, and ends when the loop has nothing more to read for now."""

    def __init__(self, loop: asyncio.AbstractEventLoop, polls: LongPolls) -> None:
        self._loop = loop
        self._polls = polls
        self._pace = Pace()
        self._began = False

    def begin(self) -> None:
        """A chunk is about to be served."""
        if not self._began:
            self._began = True
            self._polls.hold()
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        self._began = False
        self._polls.let_go()
        rest = self._pace.rest(time.monotonic())
        if rest > 0.0:
            # No timer of the loop: libuv's has steps of 1 ms, and ready sockets would not wait for it.
            time.sleep(rest)
