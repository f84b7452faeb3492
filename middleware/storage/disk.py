"""The system calls by which storage changes a disk, and the files it keeps open.

`Disk` is the seam at which tests make the disk fail. `FilePool` bounds the open files of a daemon with
thousands of partitions: a file is opened on demand and closed again when others need the room.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from mypy_extensions import mypyc_attr

from treecast.middleware.model.errors import Fault, TreecastError

DEFAULT_OPEN_FILES: Final = 512


@mypyc_attr(allow_interpreted_subclasses=True)
class Disk:
    """The calls of this host's kernel. Subclasses in tests refuse some of them."""

    def open(self, path: str, *, create: bool = False) -> int:
        """A descriptor for reading and writing; with `create` the file must not exist."""
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return os.open(path, flags, 0o644)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        """How many bytes were written, which may be fewer than asked."""
        return os.pwrite(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Forces the file's bytes and its length to the disk."""
        os.fdatasync(descriptor)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def sync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in `path` survive power loss."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_path(self, path: str) -> None:
        """Forces a file that is not held open to the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def write_new(self, path: str, data: bytes | bytearray) -> None:
        """Writes a whole file and forces it to the disk; its name does not count yet."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(self, descriptor, data, 0)
            self.sync(descriptor)
        finally:
            self.close(descriptor)

    def write_file(self, path: str, data: bytes | bytearray, *, sync: bool) -> None:
        """Replaces a whole file atomically: a reader or a crash sees the old one or the new one."""
        temporary = path + ".tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(self, descriptor, data, 0)
            if sync:
                self.sync(descriptor)
        finally:
            self.close(descriptor)
        self.rename(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))


def write_all(disk: Disk, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> None:
    """Writes all of `data`. A short write is followed by another, which says why (ENOSPC, EIO)."""
    written = disk.write(descriptor, data, position)
    size = len(data)
    while written < size:
        more = disk.write(descriptor, memoryview(data)[written:], position + written)
        if more <= 0:
            raise OSError(5, "the disk took no more bytes")
        written += more


def refused(error: OSError, what: str) -> TreecastError:
    """STORAGE with what was tried and what the kernel said."""
    return TreecastError(Fault.STORAGE, f"cannot {what}: {error.strerror or error}")


class LogFile:
    """One .log file. `descriptor` is -1 while it is closed; `pins` counts threads that are using it."""

    def __init__(self, path: str, serial: int) -> None:
        self.path = path
        self.serial = serial
        self.descriptor = -1
        self.pins = 0
        self.used = False
        self.dropped = False


class FilePool:
    """The open .log files of one daemon, at most `limit` (plus those that threads are using)."""

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
        """A file to be opened on demand. Serials are never used twice: a new inode gets a new one."""
        self._serial += 1
        return LogFile(path, self._serial)

    def create(self, path: str) -> LogFile:
        """Makes an empty file and opens it. OSError where it exists or the disk refuses."""
        file = self.file(path)
        self._adopt(file, self.disk.open(path, create=True))
        return file

    def descriptor(self, file: LogFile) -> int:
        """The descriptor of `file`, opened if need be. STORAGE where that fails."""
        file.used = True
        if file.descriptor >= 0:
            return file.descriptor
        try:
            self._adopt(file, self.disk.open(file.path))
        except OSError as error:
            raise refused(error, f"open {file.path}") from error
        return file.descriptor

    def pin(self, file: LogFile) -> int:
        """A descriptor that stays open until `unpin`, for a thread to use."""
        descriptor = self.descriptor(file)
        file.pins += 1
        return descriptor

    def unpin(self, file: LogFile) -> None:
        file.pins -= 1
        if file.dropped and file.pins == 0:
            self._close(file)

    def drop(self, file: LogFile) -> None:
        """Closes `file` for good, when no thread uses it any more."""
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
        """Closes the first file, going round, that was not used since the last round (CLOCK)."""
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
