"""Callers that wait until the turn has stored what they changed: coroutines, beside the loop's callbacks."""

from __future__ import annotations

import asyncio

from .turn import Turn


class StoredWaits:
    """Tells its callers whether the turn has stored their changes. Implements `turn.Speaker`."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._waiting: list[asyncio.Future[bool]] = []
        self._gathered: list[asyncio.Future[bool]] = []

    async def stored(self) -> bool:
        """Waits for the end of the turn. Returns whether all of it is stored, or False after `close`."""
        waits: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waits)
        self._turn.ask(self)
        return await waits

    def gather(self) -> None:
        self._gathered, self._waiting = self._gathered + self._waiting, []

    def say(self) -> None:
        self._tell(True)

    def refuse(self) -> None:
        self._tell(False)

    def _tell(self, stored: bool) -> None:
        gathered, self._gathered = self._gathered, []
        for waits in gathered:
            if not waits.done():
                waits.set_result(stored)

    def close(self) -> None:
        """Leaves the turn. All who wait are told that their changes are not stored."""
        self._turn.remove_speaker(self)
        self.gather()
        self._tell(False)
