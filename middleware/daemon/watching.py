"""`Watching`: looks at files of the daemon that people change while it runs, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_LOOKS: Final = 1.0  # seconds between looks: a change counts within a second


class Watching:
    """Calls `look` once a second, from `start` to `close`."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOKS)
            self._look()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
