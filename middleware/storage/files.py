"""A bounded pool of open .log files, for a daemon with thousands of partitions.

A file is opened on demand and closed when others need the room.
"""

from __future__ import annotations

from typing import Final

from .disk import Disk, refused

DEFAULT_OPEN_FILES: Final = 512


class LogFile:
    """One .log file. `descriptor` is -1 while it is closed. `pins` counts the users that need it open:
    threads that flush it, responses that are sent from it.
    """

    def __init__(self, path: str, serial: int) -> None:
        self.path = path
        self.serial = serial
        self.descriptor = -1
        self.pins = 0
        self.used = False
        self.dropped = False


class FilePool:
    """The open .log files of one daemon: at most `limit`, plus pinned ones."""

    def __init__(self, disk: Disk, limit: int = DEFAULT_OPEN_FILES) -> None:
        self.disk = disk
        self.limit = limit
        self._open: list[LogFile] = []
        self._hand = 0
        self._serial = 0

    @property
    def open_files(self) -> int:
        return len(self._open)

    def file(self, path: str) -> LogFile:
        """Returns a file to be opened on demand. Serials are never reused: a new inode gets a new one."""
        self._serial += 1
        return LogFile(path, self._serial)

    def create(self, path: str) -> LogFile:
        """Creates an empty file and opens it. Raises OSError if it exists or the disk refuses."""
        file = self.file(path)
        self._adopt(file, self.disk.open(path, create=True))
        return file

    def make(self, file: LogFile) -> None:
        """Creates the empty file of a name that does not exist yet, as `create`."""
        self._adopt(file, self.disk.open(file.path, create=True))

    def descriptor(self, file: LogFile) -> int:
        """Returns the descriptor of `file`, opening it if necessary. Raises STORAGE if that fails."""
        file.used = True
        if file.descriptor >= 0:
            return file.descriptor
        try:
            self._adopt(file, self.disk.open(file.path))
        except OSError as error:
            raise refused(error, f"open {file.path}") from error
        return file.descriptor

    def pin(self, file: LogFile) -> int:
        """Returns a descriptor that stays open until `unpin`, even if the file is dropped or evicted."""
        descriptor = self.descriptor(file)
        file.pins += 1
        return descriptor

    def unpin(self, file: LogFile) -> None:
        file.pins -= 1
        if file.dropped and file.pins == 0:
            self._close(file)

    def drop(self, file: LogFile) -> None:
        """Closes `file` for good as soon as it has no pins."""
        file.dropped = True
        if file.pins == 0:
            self._close(file)

    def _adopt(self, file: LogFile, descriptor: int) -> None:
        if len(self._open) >= self.limit:
            self._evict()
        file.descriptor = descriptor
        file.used = True
        self._open.append(file)

    def _evict(self) -> None:
        """Closes the next file that was not used since the last round (CLOCK)."""
        for _ in range(2 * len(self._open)):
            self._hand = (self._hand + 1) % len(self._open)
            file = self._open[self._hand]
            if file.pins:
                continue
            if not file.used:
                self._close(file)
                return
            file.used = False

    def _close(self, file: LogFile) -> None:
        if file.descriptor < 0:
            return
        self.disk.close(file.descriptor)
        file.descriptor = -1
        index = self._open.index(file)
        last = self._open.pop()
        if last is not file:
            self._open[index] = last
