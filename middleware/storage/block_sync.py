"""Syncs of a block log: they make good what a failed one has left.

The kernel reports a failed write-back once and then takes the pages for clean: the next fdatasync succeeds
although blocks before it are not on the disk, and a power loss would cut the log there. After a failure the
next sync therefore reads all blocks since the last good one back, checks them, and writes them again, which
makes their pages dirty. If one cannot be read back, each sync is refused until its segment is dropped or the
log is opened again.

So does the first sync of a log that was opened: the process before may have been killed after a failure, or
while it waited for a sync that then failed, and the kernel tells nobody again.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from treecast.middleware.wire.crc import crc32c

from .disk import Disk, write_all
from .removals import Removals

HEAD: Final = struct.Struct(">II")  # size of a block's body, its CRC-32C
SUFFIX: Final = ".journal"
DIGITS: Final = 20
CHUNK: Final = 4 * 1024 * 1024
_FORCED: Final = "forced"


class Forced:
    """The part of one log that is on the disk: all before byte `position` of segment `number`.

    The log's tickets share it. `failed`: a sync has failed since. `directories`: those with entries it left.
    `found`: what follows was written by an earlier process, and no sync has succeeded since.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()  # one sync at a time: the kernel tells one of two of a failure
        self.number = 0
        self.position = 0
        self.failed = False
        self.found = False
        self.directories: list[str] = []


class SyncTicket:
    """One sync: created on the loop, run on any thread.

    `written`: numbers and sizes of the segments that are not known to be on the disk, the last one at the
    end. `full`: the last full segment that it covers, 0 if it covers none. `directories`: those with entries
    that are not on disk yet.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        state: Forced,
        removals: Removals,
        descriptors: list[int],
        written: list[tuple[int, int]],
        full: int,
        directories: Sequence[str],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._state = state
        self._removals = removals
        self._descriptors = descriptors
        self._written = written
        self._full = full
        self._directories = directories

    def run(self) -> None:
        """Waits for the disk. Raises OSError if it refuses; the next ticket then covers the same."""
        state = self._state
        with state.lock:
            directories = list(dict.fromkeys([*state.directories, *self._directories]))
            try:
                self._force(directories)
            except OSError:
                state.failed = True
                state.directories = directories
                raise
            finally:
                for descriptor in self._descriptors:
                    self._disk.close(descriptor)
            state.failed = state.found = False
            state.directories = []
            state.number, state.position = max((state.number, state.position), self._written[-1])

    def _force(self, directories: list[str]) -> None:
        if self._state.failed or self._state.found:
            self._make_good()
            if self._directory not in directories:
                directories.append(self._directory)
        else:
            for descriptor in self._descriptors:
                self._disk.sync(descriptor)
        for directory in directories:
            self._disk.sync_directory(directory)
        if self._full:
            self._disk.write_file(marker(self._directory), b"%d\n" % self._full, sync=True)

    def _make_good(self) -> None:
        """Writes again what is not known to be on the disk, and forces it."""
        state = self._state
        for descriptor in self._descriptors:
            with suppress(OSError):  # so that the old failure is not reported later for the new writes
                self._disk.sync(descriptor)
        for number, size in self._written:
            if number >= state.number:
                self._write_again(number, state.position if number == state.number else 0, size)
        self._remove_dropped()

    def _write_again(self, number: int, position: int, size: int) -> None:
        path = segment_path(self._directory, number)
        try:
            descriptor = self._disk.open(path)
        except FileNotFoundError:
            return  # dropped meanwhile
        try:
            with open(descriptor, "rb", buffering=CHUNK, closefd=False) as file:
                file.seek(position)
                while position < size:
                    block = read_block(file.read, size - position)
                    if block is None:
                        raise OSError(errno.EIO, f"the disk has lost what {path} has at byte {position}")
                    write_all(self._disk, descriptor, HEAD.pack(len(block), crc32c(block)) + block, position)
                    position += HEAD.size + len(block)
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)

    def _remove_dropped(self) -> None:
        """Removes dropped segments now: the log would end at a torn one that a power loss brings back."""
        self._removals.finish()
        kept = {number for number, _ in self._written}
        for number in segment_numbers(self._directory):
            if self._state.number <= number < self._written[-1][0] and number not in kept:
                self._disk.unlink(segment_path(self._directory, number))


def segment_numbers(directory: str) -> list[int]:
    """Returns the numbers of the segments in a log's directory, sorted. Raises OSError."""
    return sorted(
        int(name[:DIGITS])
        for name in os.listdir(directory)
        if name.endswith(SUFFIX) and name[:DIGITS].isdigit()
    )


def segment_path(directory: str, number: int) -> str:
    return f"{directory}/{number:0{DIGITS}}{SUFFIX}"


def marker(directory: str) -> str:
    return f"{directory}/{_FORCED}"


def read_block(read: Callable[[int], bytes], left: int) -> bytes | None:
    """Returns the next block, or None if the rest is not one. Trusts a size only within the file."""
    if left < HEAD.size:
        return None
    head = read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size, checksum = HEAD.unpack(head)
    if size > left - HEAD.size:
        return None
    body = read(size)
    return body if crc32c(body) == checksum else None
