"""The system calls by which storage changes a disk: the seam at which tests make the disk fail.

This module is not compiled, so that tests can replace its parts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError


class Disk:
    """The calls of this host's kernel. Subclasses in tests refuse some of them."""

    @property
    def syncs_plainly(self) -> bool:
        """Whether `sync` is fdatasync and nothing else, so that the kernel may be asked for it otherwise."""
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
        """Returns how many bytes were written, which may be fewer than asked."""
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

    def write_new(self, path: str, data: bytes | bytearray, *, sync: bool) -> None:
        """Writes a whole file whose name does not count yet."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            write_all(self, descriptor, data, 0)
            if sync:
                self.sync(descriptor)
        finally:
            self.close(descriptor)

    def write_file(self, path: str, data: bytes | bytearray, *, sync: bool) -> None:
        """Replaces a whole file atomically: a reader or a crash sees the old one or the new one."""
        temporary = path + ".tmp"
        self.write_new(temporary, data, sync=sync)
        self.rename(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))


_SYNC: Final = Disk.sync  # tests replace it


def write_all(disk: Disk, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> None:
    """Writes all of `data`. A short write is followed by another, which says why (ENOSPC, EIO)."""
    write_rest(disk, descriptor, data, position, disk.write(descriptor, data, position))


def write_rest(
    disk: Disk, descriptor: int, data: memoryview | bytes | bytearray, position: int, written: int
) -> None:
    """Writes what is left of `data` after its first `written` bytes."""
    size = len(data)
    while written < size:
        more = disk.write(descriptor, memoryview(data)[written:], position + written)
        if more <= 0:
            raise OSError(5, "the disk took no more bytes")
        written += more


def refused(error: OSError, what: str) -> TreecastError:
    """STORAGE with what was tried and what the kernel said."""
    return TreecastError(Fault.STORAGE, f"cannot {what}: {error.strerror or error}")
