"""Background work that is restarted when it fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

CALM_SECONDS = 60.0  # seconds of work without failure that reset the log and the pauses

_log = Log(__name__)


class BackOff:
    """Pauses that double from `first` to `longest` seconds, each drawn from its upper half."""

    def __init__(self, rng: random.Random, first: float = 0.1, longest: float = 5.0) -> None:
        self._rng = rng
        self._first = first
        self._longest = longest
        self._next = first

    def reset(self) -> None:
        self._next = self._first

    def pause(self) -> float:
        whole, self._next = self._next, min(self._next * 2, self._longest)
        return whole * (0.5 + self._rng.random() / 2)


async def lasting(what: str, work: Callable[[], Awaitable[None]], back_off: BackOff) -> None:
    """Runs the long-lived `work` and restarts it when it fails; ends when it returns.

    Logs the same failure once, with a traceback unless it is a refusal, and again after a calm period. `what`
    names the work in the log.
    """
    clock = asyncio.get_running_loop().time
    said = ""
    while True:
        begun = clock()
        try:
            await work()
            return
        except Exception as error:
            if clock() - begun > CALM_SECONDS:
                said = ""
                back_off.reset()
            text = f"{type(error).__name__}: {error}"
            if text != said:
                trace = None if isinstance(error, TreecastError) else error
                _log.error("work failed and is restarted", trace=trace, work=what, error=text)
            said = text
        await asyncio.sleep(back_off.pause())
