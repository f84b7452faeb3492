"""Watches for room: on the disk of the data directory, and for open files.

A daemon without free descriptors could not even report it: its status page needs one. So some are reserved,
and faces turn clients away before these are used. A separate coordinator process turns nobody away, as gRPC
accepts its connections; it reports when no more are left than a daemon reserves.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import tempfile
import time
from collections.abc import Callable
from typing import Final

from treecast.middleware.model.logs import Log

from .resource_problems import DAEMON, Consequences, Look, Space, Troubles

_log = Log(__name__)

LOOK_SECONDS: Final = 1.0
PROBE_BYTES: Final = 1 << 20  # size of the test write; less free space counts as none
MOST_KEPT: Final = 64
AHEAD: Final = 64  # connections accepted before descriptors are counted again
_NO_FILES: Final = (errno.EMFILE, errno.ENFILE)


def kept_of(limit: int) -> int:
    """Returns the number of descriptors reserved for the daemon itself."""
    return min(MOST_KEPT, limit // 4)


class Descriptors:
    """Decides for each new connection whether there is a descriptor for it.

    `free` counts free descriptors up to a limit. It is called once for `AHEAD` connections, and for each one
    if few are left.
    """

    def __init__(self, kept: int, free: Callable[[int], int]) -> None:
        self.kept = kept
        self.turned_away = 0
        self._others: Callable[[], int] = int  # further ones that belong to other listeners
        self._free = free
        self._left = 0

    def leave(self, others: Callable[[], int]) -> None:
        """Keeps `others` more for listeners that call `admits_own`: so many as it says at each count."""
        self._others = others

    def admits_own(self) -> bool:
        """Returns whether an accepted connection of a listener with descriptors of its own may stay.

        If none are left for such listeners, because the process has few, it takes one of those for files.
        """
        least = self.kept if self._others() else self.kept // 2
        return self._free(least + 1) > least

    def admits(self) -> bool:
        """Returns whether an accepted connection may stay."""
        if self._left <= 0 and not self.count():
            self.turned_away += 1
            return False
        self._left -= 1
        return True

    def count(self) -> bool:
        """Counts again. Returns whether more than the reserved ones are free."""
        kept = self.kept + self._others()
        self._left = self._free(kept + AHEAD) - kept
        return self._left > 0

    def plenty(self) -> bool:
        """Returns whether enough are free to call the shortage over, rather than for the next client or two
        only.
        """
        return self.count() and self._left >= self.kept // 2


def free_descriptors(most: int) -> int:
    """Returns how many more descriptors may be opened, at most `most`."""
    taken: list[int] = []
    try:
        first = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        taken.append(first)
        while len(taken) < most:
            taken.append(os.dup(first))
    except OSError:
        pass
    for descriptor in taken:
        os.close(descriptor)
    return len(taken)


def space_of(directory: str) -> Space | None:
    """Returns the room on the file system; None if that does not say, as some FUSE file systems do not."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    if not found.f_blocks:
        return None
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def refusal_of(directory: str) -> OSError | None:
    """Tries to write a chunk of log size. Returns the disk's error, if any."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            data = memoryview(bytes(PROBE_BYTES))
            while data:
                data = data[file.write(data) :]
    except OSError as error:
        return error
    return None


class RoomWatch:
    """Checks every second, from `start` to `close`; `troubles` holds the findings."""

    def __init__(
        self, data: str, refusals: Callable[[], int], means: Consequences = DAEMON, *, admits: bool = True
    ) -> None:
        """`refusals`: how often the disk has refused a write so far. `admits`: whether the acceptor of
        connections asks `descriptors` first; otherwise each look counts them.
        """
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.descriptors = Descriptors(kept_of(limit), free_descriptors)
        self.troubles = Troubles(data, limit, self.descriptors.kept, means)
        self.troubles.space = space_of(data)
        self._data = data
        self._refusals = refusals
        self._admits = admits
        self._errors = 0
        self._turned_away = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                _log.exception("check of disk and descriptors failed")

    async def look(self) -> None:
        """Checks once, and logs the lines that are due."""
        space = space_of(self._data)
        new = self._has_refused()
        doubtful = new or bool(self.troubles.disk.text) or space is None or space.free < PROBE_BYTES
        error = await asyncio.to_thread(refusal_of, self._data) if doubtful else None
        turned_away = self.descriptors.turned_away - self._turned_away
        self._turned_away += turned_away
        no_files = turned_away > 0 or (error is not None and error.errno in _NO_FILES)
        no_files = no_files or not (self._admits or self.descriptors.count())
        if self.troubles.descriptors.text and not no_files:
            no_files = not self.descriptors.plenty()
        if error is not None:
            refused = error.strerror or str(error)
        else:
            refused = "some are refused, and others accepted" if new else ""
        seen = Look(space, refused, no_files)
        for line in self.troubles.look(seen, time.monotonic()):
            _log.warning("state of disk and file descriptors", detail=line)

    def _has_refused(self) -> bool:
        """Returns whether the disk has refused anything since the last look."""
        errors = self._refusals()
        new, self._errors = errors > self._errors, errors
        return new
