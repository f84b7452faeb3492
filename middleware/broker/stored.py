"""Callers that wait until the turn has stored what they changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from .turn import Turn


class StoredWaits:
    """Tells its callers whether the turn has stored their changes. Implements `turn.Speaker`."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._waiting: list[Callable[[bool], None]] = []
        self._gathered: list[Callable[[bool], None]] = []

    def then(self, told: Callable[[bool], None]) -> None:
        """Calls `told` at the end of the turn with whether all of it is stored, or with False at `close`."""
        self._waiting.append(told)
        self._turn.ask(self)

    async def stored(self) -> bool:
        """As `then`, for a coroutine."""
        waits: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.then(partial(_resolve, waits))
        return await waits

    def gather(self) -> None:
        self._gathered, self._waiting = self._gathered + self._waiting, []

    def say(self) -> None:
        self._tell(True)

    def refuse(self) -> None:
        self._tell(False)

    def _tell(self, stored: bool) -> None:
        gathered, self._gathered = self._gathered, []
        for told in gathered:
            told(stored)

    def close(self) -> None:
        """Leaves the turn. All who wait are told that their changes are not stored."""
        self._turn.remove_speaker(self)
        self.gather()
        self._tell(False)


def _resolve(waits: asyncio.Future[bool], stored: bool) -> None:
    if not waits.done():
        waits.set_result(stored)
