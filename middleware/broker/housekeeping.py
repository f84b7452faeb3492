"""Housekeeping: a broker's periodic chores, run from one timer.

Each chore is due at a fixed interval. Quick chores run one after another before `run` returns. Slow ones
(fsync, compaction: they wait for threads) run in tasks of their own, each at most once at a time; a slow
disk therefore never delays a transaction's time-out. A failed chore is logged and tried again when it is
due next. Disk errors are logged rarely, since a full disk causes one each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec import Struct, field

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.rarely import Rarely

_log = Log(__name__)


_SLICE = 0.002  # seconds


class Turns:
    """Yields to the event loop while a chore goes through many items, some of which take long."""

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._until = self._now() + _SLICE

    async def another(self) -> None:
        """Yields to the loop if the time slice is used up; called before each item."""
        if self._now() >= self._until:
            await asyncio.sleep(0)
            self._until = self._now() + _SLICE


class Chore(Struct):
    """A periodic chore. `work` is called with `now`, seconds since the Unix epoch. `interval` in seconds."""

    name: str
    interval: float
    work: Callable[[float], Awaitable[None]]
    slow: bool = False
    due: float = 0.0
    complaint: Rarely = field(default_factory=Rarely)


class Housekeeping:
    """All chores of one broker."""

    def __init__(self, chores: Sequence[Chore]) -> None:
        self._chores = chores
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, now: float) -> float:
        """Runs or starts the chores that are due; returns the time of the next one, on the scale of `now`."""
        for chore in self._chores:
            if now < chore.due and chore.due - now <= chore.interval:  # otherwise the clock was set back
                continue
            chore.due = now + chore.interval
            if not chore.slow:
                await _do(chore, now)
            elif chore.name not in self._running:
                task = asyncio.create_task(_do(chore, now), name=f"housekeeping {chore.name}")
                self._running[chore.name] = task
                task.add_done_callback(partial(self._ended, chore.name))
        return min(chore.due for chore in self._chores)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._running.pop(name, None)

    async def settle(self) -> None:
        """Waits for the running slow chores."""
        await asyncio.gather(*self._running.values())


async def _do(chore: Chore, now: float) -> None:
    try:
        await chore.work(now)
    except TreecastError as error:
        if error.fault is not Fault.STORAGE:
            _log.exception("housekeeping failed and is retried", chore=chore.name, seconds=chore.interval)
        elif chore.complaint.due(now):
            _log.error(
                "housekeeping waits for the disk",
                chore=chore.name,
                error=error,
                left_out=chore.complaint.left_out(),
            )
    except Exception:  # a failed chore must not stop the others
        _log.exception("housekeeping failed and is retried", chore=chore.name, seconds=chore.interval)
