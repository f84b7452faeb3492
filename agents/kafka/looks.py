"""When to look at a cluster again: after a pause, or soon after a hint that something has changed."""

from __future__ import annotations

import asyncio
from typing import Final

_SOON: Final = 0.1  # s from a hint to the next look: hints come in swarms


class Looks:
    """`pause`: seconds between looks without a hint.

    A look that is hinted at while it runs may have passed by what has changed, so another follows soon. If
    look after look is, the time between them doubles up to the pause: a cluster may never show what it was
    asked to make.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._hint = asyncio.Event()
        self._again = _SOON

    def soon(self) -> None:
        """A leader may have moved, or a topic was made: look at the cluster soon."""
        self._hint.set()

    async def next(self) -> None:
        """Returns when the next look is due. Call it at the end of a look."""
        try:
            async with asyncio.timeout(self.wait()):
                await self._hint.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SOON)
        self._hint.clear()

    def wait(self) -> float:
        """Returns how long to wait for a further hint, and takes those of the look that has ended."""
        if not self._hint.is_set():
            self._again = _SOON
            return self._pause
        self._hint.clear()
        wait, self._again = self._again, min(2 * self._again, self._pause)
        return wait
