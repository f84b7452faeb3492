"""The system calls with which storage changes a disk: the seam where tests make the disk fail.

This module is not compiled, so that tests can replace its parts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError


class Disk:
    """The system calls of this host. Subclasses in tests make some of them fail."""

    @property
    def syncs_plainly(self) -> bool:
        """Whether `sync` is plain fdatasync, so that another way to request it from the kernel is
        equivalent.
        """
        return type(self).sync is _SYNC

    def open(self, path: str, *, create: bool = False) -> int:
        """Returns a descriptor for reading and writing; with `create` the file must not exist."""
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return os.open(path, flags, 0o640)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        """Returns the number of bytes written, possibly fewer than requested."""
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
        """Forces a file that is not open to the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def write_new(self, path: str, data: bytes | bytearray, *, sync: bool) -> None:
        """Writes a whole file under a name that is not in use yet."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            write_all(self, descriptor, data, 0)
            if sync:
                self.sync(descriptor)
        finally:
            self.close(descriptor)

    def write_file(self, path: str, data: bytes | bytearray, *, sync: bool) -> None:
        """Replaces a whole file atomically: a reader or a crash sees either the old one or the new one."""
        temporary = path + ".tmp"
        self.write_new(temporary, data, sync=sync)
        self.rename(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))


_SYNC: Final = Disk.sync  # tests replace it


def write_all(disk: Disk, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> None:
    """Writes all of `data`. Repeats after a short write, so that the kernel reports the reason
    (ENOSPC, EIO).
    """
    write_rest(disk, descriptor, data, position, disk.write(descriptor, data, position))


def write_rest(
    disk: Disk, descriptor: int, data: memoryview | bytes | bytearray, position: int, written: int
) -> None:
    """Writes the rest of `data` after its first `written` bytes."""
    size = len(data)
    while written < size:
        more = disk.write(descriptor, memoryview(data)[written:], position + written)
        if more <= 0:
            raise OSError(5, "the disk took no more bytes")
        written += more


def refused(error: OSError, what: str) -> TreecastError:
    """Returns STORAGE with the operation and the kernel's error."""
    return TreecastError(Fault.STORAGE, f"cannot {what}: {error.strerror or error}")


def make_directory(path: str) -> None:
    """Makes a directory, and those above it that are missing, each durably entered in the one above it.
    Raises OSError."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(os.path.abspath(path))
    make_directory(above)
    with suppress(FileExistsError):
        os.mkdir(path, 0o750)
    Disk().sync_directory(above)
