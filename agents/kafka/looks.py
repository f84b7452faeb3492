"""When to look at a cluster again: after a pause, or soon after a hint that something has changed."""

from __future__ import annotations

import asyncio
from typing import Final

_SOON: Final = 0.1  # s from a hint that a leader has moved to the next look: hints come in swarms


class Looks:
    """`pause`: seconds between looks without a hint."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._hint = asyncio.Event()

    def soon(self) -> None:
        """A leader may have moved: look at the cluster soon."""
        self._hint.set()

    async def next(self) -> None:
        """Returns when the next look is due. Hints from before the call are taken for answered."""
        self._hint.clear()
        try:
            async with asyncio.timeout(self._pause):
                await self._hint.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SOON)
