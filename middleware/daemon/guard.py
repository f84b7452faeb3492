"""Bounds for strangers and clients of a daemon: connections of each listener, and memory of requests.

The descriptors of a process are divided so that no listener can use up those of another, or those for files:

    files | admin | control | faces

`files` are those that `resource_watch` reserves, and an eighth of all for logs. The admin and control
addresses have a share of their own, and no more; what is left belongs to the faces together, which are
therefore turned away before the other two.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.logs import Log
from treecast.middleware.model.request_memory import RequestMemory
from treecast.middleware.model.visitors import Limits, Total, Visitors
from treecast.shims.log_ins import LogIns
from treecast.shims.ticks import TICK, Ticks

from . import tuning
from .resource_watch import kept_of
from .view import resident_bytes

_log = Log(__name__)

BEFORE_BYTES: Final = 16 << 20  # of requests before log-in
_GROWN: Final = 16 << 20  # bytes of resident memory
_LOOKS: Final = 5.0  # seconds between looks at it
NEW_SECONDS: Final = 10.0
_MOST_NEW: Final = 4096
_STRANGERS: Final = 256  # at the control address of a secured host, who have not proven who they are
_MOST_ADMIN: Final = 128
_MOST_CONTROL: Final = 4096
_SCARCE: Final = 256  # with fewer, the admin and control addresses share those of files
_MOST_LEFT: Final = 256  # free descriptors that the faces leave to the control address


class Shares(Struct, frozen=True):
    """Descriptors. `faces`: of all faces together. `each`: of one face for one address of another machine."""

    admin: int
    control: int
    faces: int
    each: int
    new: int  # of one face, for connections that are not known yet
    left: int  # that the faces leave free for the other listeners


def shares_of(limit: int, kept: int, each: int = 0) -> Shares:
    """Returns the division of `limit` descriptors, of which `kept` are for files. `each` 0: a quarter of the
    faces'.
    """
    admin = min(max(limit // 16, 4), _MOST_ADMIN)
    control = min(max(limit // 8, 8), _MOST_CONTROL)
    faces = max(limit - limit // 8 - kept - admin - control, 8)
    left = admin + min(control, _MOST_LEFT) if limit >= _SCARCE else 0
    quarter = max(faces // 4, 8)
    return Shares(admin, control, faces, each or quarter, min(quarter, _MOST_NEW), left)


def process_shares(each: int = 0) -> Shares:
    """Returns the division of this process' descriptors."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return shares_of(limit, kept_of(limit), each)


def door_limits(shares: Shares) -> Limits:
    """Returns the limits of a secured host's control address. A connection there takes three descriptors:
    its own, and both ends of the one behind it.
    """
    most = max(shares.control // 3, 8)
    new = min(max(most // 2, 4), _STRANGERS)
    return Limits(most, max(most // 4, 8), new, NEW_SECONDS, max(new // 4, 2))


def descriptors_left() -> int:
    """Returns how many descriptors the faces leave to the other listeners, at the present limit."""
    return process_shares().left


class Guard:
    """The limits of one daemon's listeners, from `start` to `close`. `memory` is the budget of requests,
    `before` that of requests before log-in.
    """

    def __init__(
        self,
        shares: Shares,
        memory_bytes: int,
        give_back: Callable[[], None] = tuning.give_back,
        resident: Callable[[], int] = resident_bytes,
    ) -> None:
        self.shares = shares
        self.memory = RequestMemory(memory_bytes)
        self.before = RequestMemory(min(BEFORE_BYTES, memory_bytes))
        self.log_ins = LogIns()
        self._give_back = give_back
        self._resident = resident
        self._least = resident()
        self._once_more = False
        self._listeners: list[Visitors] = []
        self._faces = Total(shares.faces)
        self._ticks = Ticks()
        self._task: asyncio.Task[None] | None = None

    def face(self, counters: FaceCounters, *, logs_in: bool) -> Visitors:
        """Returns the limits of a face. `logs_in`: whether its protocol begins with a log-in."""
        shares = self.shares
        limits = Limits(shares.faces, shares.each, shares.new, NEW_SECONDS, max(shares.new // 4, 8))
        before = self.before if logs_in else None
        return self._added(Visitors(limits, self.memory, before, counters, self._faces))

    def admin(self) -> Visitors:
        """Returns the limits of the admin address. Half of its connections are for other addresses."""
        most = self.shares.admin
        return self._added(Visitors(Limits(most, max(most // 2, 1), most, NEW_SECONDS), self.memory))

    def _added(self, visitors: Visitors) -> Visitors:
        self._listeners.append(visitors)
        return visitors

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self.log_ins.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            await asyncio.sleep(TICK)
            try:
                self.tick(loop.time())
                if loop.time() - looked >= _LOOKS:
                    looked = loop.time()
                    await self.after_peaks()
            except Exception:
                _log.exception("check of connections failed")

    async def after_peaks(self) -> None:
        """Gives the heap's free memory back to the system when the process has grown, on another thread. The
        memory of a peak, as of calls and pages, would stay in the heap otherwise.
        """
        resident = self._resident()
        grown = resident - self._least >= _GROWN
        if grown or self._once_more:
            await asyncio.to_thread(self._give_back)
            # at the first look the peak's answers may still be on their way out, and their memory in use
            self._once_more = grown
            self._least = self._resident()
        self._least = min(self._least, resident)

    def tick(self, now: float) -> None:
        """Ends what is too slow, unless this process stood still."""
        before = self._ticks.stood_still
        if not self._ticks.tick(now):
            for one in self._listeners:
                one.postpone(self._ticks.stood_still - before)
            return
        for memory in (self.memory, self.before):
            memory.tick(now)
        for one in self._listeners:
            one.tick(now)
