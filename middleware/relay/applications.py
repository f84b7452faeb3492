"""Tells the coordinator which applications have joined and left this host's faces.

Notes are sent at most once a second, and wait while the coordinator is away (`model.applications` has the
bound).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.model.applications import Applications
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log

from .coordinator_link import CoordinatorLink, called

_log = Log(__name__)

EVERY: Final = 1.0  # seconds
_MOST: Final = 1_000  # in one call
_LAST: Final = 1.0  # seconds for the last notes


class ApplicationNews:
    """A life of the relay: from `start` to `close`, whose last notes are sent."""

    def __init__(self, link: CoordinatorLink, applications: Applications, every: float = EVERY) -> None:
        self._link = link
        self._applications = applications
        self._every = every
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._applications.taken = True
        self._task = asyncio.create_task(self._tell_always(), name="applications that joined and left")

    async def close(self) -> None:
        self._applications.taken = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._tell(), _LAST)

    async def _tell_always(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            while await self._tell():
                pass

    async def _tell(self) -> bool:
        """Sends the oldest notes. Returns whether more wait, and the coordinator answers."""
        applications = self._applications
        notes, missed = applications.first(_MOST), applications.missed
        if not notes and not missed:
            return False
        events = [
            pb.ClusterEvent(kind=one.kind, face=one.face, who=one.who, what=one.address) for one in notes
        ]
        try:
            await called(self._link.client.put_events(self._link.session, events, missed))
        except TreecastError as error:
            _log.debug("applications are not known to the coordinator yet", error=error)
            return False
        # Only once the coordinator has taken them: a call that fails is made again.
        applications.forget(len(notes), missed)
        return len(applications) > 0
