"""Mapped windows of log files: how large parts of a log are read without copying them.

A window is an aligned part of one file, mapped read-only. All logs of a daemon share one cache of a few
windows, because mapped pages count as resident memory. A memoryview that was handed to a transport keeps
its window mapped after the cache has forgotten it; nothing is ever unmapped by force.

Only bytes that no one truncates may be mapped, as touching a mapped page past a file's end kills the
process (SIGBUS). So a window is mapped only when it lies wholly inside what was appended successfully, or
when the segment is sealed. A log is only ever truncated behind that (a torn append, before it counts), or
at open, before anything is mapped; compaction and deletion replace or unlink files and leave the mapped
inode alone.
"""

from __future__ import annotations

import mmap
from typing import Final

from .disk import FilePool, LogFile, refused

WINDOW_BYTES: Final = 4 * 1024 * 1024
DEFAULT_WINDOWS: Final = 8
_FILE_SHIFT: Final = 20  # windows of one file: 2 GiB / 4 KiB at most


class WindowCache:
    """At most `limit` windows of `window_bytes` (a power of two, at least a page) stay mapped."""

    def __init__(
        self, pool: FilePool, limit: int = DEFAULT_WINDOWS, window_bytes: int = WINDOW_BYTES
    ) -> None:
        self.pool = pool
        self.limit = limit
        self.window_bytes = window_bytes
        self._windows: dict[int, memoryview] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._windows)

    def window(self, file: LogFile, number: int, length: int) -> memoryview:
        """Window `number` of `file`, of which `length` bytes exist. STORAGE where it cannot be mapped."""
        key = (file.serial << _FILE_SHIFT) | number
        view = self._windows.pop(key, None)
        if view is None:
            view = self._map(file, number, length)
        self._windows[key] = view
        return view

    def _map(self, file: LogFile, number: int, length: int) -> memoryview:
        while len(self._windows) >= self.limit:
            del self._windows[next(iter(self._windows))]
        descriptor = self.pool.descriptor(file)
        try:
            mapped = mmap.mmap(
                descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=number * self.window_bytes
            )
            mapped.madvise(mmap.MADV_WILLNEED)
        except OSError as error:
            raise refused(error, f"map {file.path}") from error
        return memoryview(mapped)

    def forget(self, file: LogFile) -> None:
        """Drops the windows of a file that is no longer read."""
        for key in [key for key in self._windows if key >> _FILE_SHIFT == file.serial]:
            del self._windows[key]
