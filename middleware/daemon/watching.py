"""`Watching`: looks at files of the daemon that people change while it runs, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from treecast.middleware.model.logs import Log

_LOOKS: Final = 0.5  # seconds between looks: a change counts within a second, its reading included

_log = Log(__name__)


class Watching:
    """Calls `look` twice a second, from `start` to `close`. An error of it that nobody foresaw is logged, and
    it is called again: else no change would count any more, and nobody would know.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._failed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOKS)
            try:
                self._look()
                self._failed = False
            except Exception:
                if not self._failed:  # once, not each second
                    _log.exception("changed files are not read")
                self._failed = True

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
