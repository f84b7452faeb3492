"""A power loss without a special file system: what was not forced to the disk is gone.

The model is strict: bytes of a file are safe after a sync of the file, and an entry of a directory after a
sync of the directory. Real file systems keep more. SQLite's own syncs cannot be seen from Python. So the
database file counts as safe (tests write less than it takes for a checkpoint), and so does its write-ahead
log if `sqlite_forces`, as with `synchronous = FULL`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treecast.middleware.storage.disk import Disk

_DATABASES = (".sqlite", ".db")


class Power:
    """Notes all syncs of this process, which then cost nothing."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sqlite_forces = False
        self._contents: dict[int, bytes] = {}  # of files, by inode
        self._entries: dict[
            int, dict[str, tuple[int, bool]]
        ] = {}  # of directories: name -> inode, directory?
        self._held: dict[int, int] = {}  # a descriptor of each, so that no inode is used again
        patch.setattr(os, "fsync", self._sync)
        patch.setattr(os, "fdatasync", self._sync)
        patch.setattr(
            Disk, "sync", lambda _, descriptor: self._sync(descriptor)
        )  # the kernel's own is not used

    def _sync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if inode not in self._held:
            self._held[inode] = os.dup(descriptor)
        if path.is_dir():
            self._entries[inode] = {one.name: (one.inode(), one.is_dir()) for one in os.scandir(path)}
        else:
            self._contents[inode] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def lose(self, root: Path, into: Path) -> Path:
        """Writes what is left of the directory `root` to the new directory `into`, and returns that. Raises
        FileNotFoundError if not even its own entry was forced."""
        if root.name not in self._entries.get(root.parent.stat().st_ino, {}):
            raise FileNotFoundError(root)
        into.mkdir(parents=True)
        self._restore(root.stat().st_ino, into)
        for path in root.iterdir():
            self._restore_database(path, into / path.name)
        self._settle(into)
        return into

    def _settle(self, path: Path) -> None:
        """Notes a restored tree as safe: it was read from the disk."""
        for one in path.iterdir():
            if one.is_dir():
                self._settle(one)
            else:
                self.note(one)
        self.note(path)
        self.note(path.parent)

    def note(self, path: Path) -> None:
        """Notes a file or the entries of a directory as safe."""
        descriptor = os.open(path, os.O_RDONLY)
        self._sync(descriptor)
        os.close(descriptor)

    def _restore(self, directory: int, into: Path) -> None:
        for name, (inode, is_directory) in self._entries.get(directory, {}).items():
            path = into / name
            if is_directory:
                path.mkdir()
                self._restore(inode, path)
            else:
                path.write_bytes(self._contents.get(inode, b""))

    def _restore_database(self, path: Path, to: Path) -> None:
        if path.name.endswith(_DATABASES) or (self.sqlite_forces and path.name.endswith("-wal")):
            to.write_bytes(path.read_bytes())
        elif path.name.endswith("-shm"):
            to.unlink(missing_ok=True)

    def close(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()


class ForgetfulDisk(Disk):
    """A disk behind a kernel that reports a failed write-back once, and takes the pages for clean then: what
    was written before it is on the disk only if it is written again. Fails the next `failures` syncs.

    Entries of directories and files of others (SQLite's) count as safe.
    """

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self._dirty: dict[int, list[tuple[int, bytes]]] = {}  # by inode: position, bytes
        self._safe: dict[int, bytearray] = {}

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        written = super().write(descriptor, data, position)
        self._dirty.setdefault(os.fstat(descriptor).st_ino, []).append((position, bytes(data[:written])))
        return written

    def truncate(self, descriptor: int, size: int) -> None:
        super().truncate(descriptor, size)
        del self._safe.setdefault(os.fstat(descriptor).st_ino, bytearray())[size:]

    def sync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        if inode not in self._dirty:
            return
        dirty = self._dirty.pop(inode)
        if self.failures:
            self.failures -= 1
            raise OSError(5, "Input/output error")
        safe = self._safe.setdefault(inode, bytearray())
        for position, data in dirty:
            safe.extend(bytes(max(0, position - len(safe))))
            safe[position : position + len(data)] = data

    def unlink(self, path: str) -> None:
        self._forget(path)
        super().unlink(path)

    def rename(self, old: str, new: str) -> None:
        self._forget(new)
        super().rename(old, new)

    def _forget(self, path: str) -> None:
        """Another file may get the inode."""
        if os.path.exists(path):
            inode = os.stat(path).st_ino
            self._dirty.pop(inode, None)
            self._safe.pop(inode, None)

    def lose(self, root: Path, into: Path) -> Path:
        """Copies what a power loss leaves of the directory `root` to the new directory `into`."""
        into.mkdir(parents=True)
        for path in root.iterdir():
            inode = path.stat().st_ino
            if path.is_dir():
                self.lose(path, into / path.name)
            elif inode in self._safe or inode in self._dirty:
                (into / path.name).write_bytes(bytes(self._safe.get(inode, b"")))
            else:
                (into / path.name).write_bytes(path.read_bytes())
        return into
