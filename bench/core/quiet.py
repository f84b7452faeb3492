"""Whether the machine rests before a turn.

A server that shares its cores with other work is measured together with it. A turn therefore begins at a load
average of at most 1, the benchmark's own processes that keep cores awake not counted. The benchmark's last
turn shows in the load average for about a minute: so a turn may be waited for.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from .awake import SPINNING, how

LIMIT = 1.0  # load average over a minute
PATIENCE = 300.0  # seconds
_MINUTE = 60.0  # over which the kernel takes the average
_ASKED_EVERY = 2.0  # seconds; the kernel's average changes every 5


class Quiet:
    """`patience`: seconds for which a turn waits at most. The rest is for tests."""

    def __init__(
        self,
        patience: float = 0.0,
        *,
        load: Callable[[], float] = lambda: os.getloadavg()[0],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        spinners: int | None = None,
    ) -> None:
        self._patience, self._load, self._clock, self._sleep = patience, load, clock, sleep
        self._since = clock()
        cores = len(os.sched_getaffinity(0)) if how() == SPINNING else 0
        self._spinners = cores if spinners is None else spinners

    def load(self) -> float:
        """Returns the load average without the processes that keep cores awake."""
        share = 1 - math.exp((self._since - self._clock()) / _MINUTE)
        return max(0.0, self._load() - self._spinners * share)

    def wait(self) -> float:
        """Returns the load average once it is at most `LIMIT`, or as it is after `patience` seconds."""
        until = self._clock() + self._patience
        while (load := self.load()) > LIMIT and self._clock() < until:
            self._sleep(_ASKED_EVERY)
        return load


def reason(load: float) -> str:
    """Returns why a turn that begins at this load average is void, or an empty string."""
    return f"the load average was {load:.2f} at its start, over {LIMIT:g}" if load > LIMIT else ""
