"""An append-only log of blocks in segments, for state that changes with every message.

  <number, 20 digits>.journal   blocks, each: size of its body (uint32) | CRC-32C of its body (uint32) |
                                body
  forced                        the number of the last segment that is wholly on disk and no longer written to

A block is written with one call and is either whole or absent: opening cuts off a torn end left by a crash.
After a power loss a segment may be torn that others follow, if it was not forced yet: the log ends there, and
what follows is removed. So it is if a segment that was not forced has lost whole blocks, where the owner's
blocks tell (`Gap`). A torn segment that `forced` covers is damaged, and refused.

The owner decides which segments are dropped. Their files are removed in that order, beside the loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.wire.crc import crc32c

from .block_sync import (
    CHUNK,
    HEAD,
    Forced,
    SyncTicket,
    marker,
    read_block,
    segment_numbers,
    segment_path,
)
from .disk import Disk, refused, write_rest
from .removals import Removals

__all__ = ["BlockLog", "BlockSegment", "Gap", "SyncTicket"]


class Gap(Exception):
    """A block does not follow the one before it. Raised by owners whose blocks have numbers, with the error
    for a log that a power loss cannot have left so."""

    def __init__(self, error: TreecastError) -> None:
        super().__init__(str(error))
        self.error = error


class BlockSegment:
    """One file. `live` counts what the owner still needs in it, in the owner's units."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.live = 0


class BlockLog:
    """The log in one directory, opened with `open`. `segments` are oldest first; the last one is written to.

    `cut` counts the torn bytes that opening cut off. `syncs` states whether somebody forces written data to
    the disk, including full segments; under every policy of a daemon, the broker does.
    """

    def __init__(self, directory: str, disk: Disk, syncs: bool) -> None:
        self.directory = directory
        self.segments: list[BlockSegment] = []
        self.cut = 0
        self._disk = disk
        self._descriptor = -1
        self._full: list[int] = []  # descriptors of full segments that are not synced
        self._entries: list[str] = []  # directories with entries that are not synced
        self._syncs = syncs
        self._removals = Removals(disk)
        self._state = Forced()

    @classmethod
    def open(
        cls, directory: str, disk: Disk, syncs: bool, take: Callable[[BlockSegment, bytes], None]
    ) -> BlockLog:
        """Opens or creates the log and passes each block to `take` in order. Raises STORAGE if the disk
        refuses.

        Also refuses a log whose broken block, or gap (`take` raises `Gap`), cannot be a torn end, because its
        segment was forced to disk.
        """
        log = cls(directory, disk, syncs)
        try:
            os.makedirs(directory, exist_ok=True)
            # an earlier process may have left entries that were never forced
            log._entries = [directory, os.path.dirname(directory) or "."]
            numbers = segment_numbers(directory)
            if numbers:
                log._read_all(numbers, take)
            else:
                disk.write_file(marker(directory), b"0\n", sync=False)
                log.roll()
        except OSError as error:
            raise refused(error, f"open {directory}") from error
        return log

    def _read_all(self, numbers: list[int], take: Callable[[BlockSegment, bytes], None]) -> None:
        """Reads the segments up to the first that is torn, and opens the last of them."""
        forced = _forced(marker(self.directory), numbers)
        for index, number in enumerate(numbers):
            try:
                whole = self._read(number, number > forced or number == numbers[-1], take)
            except Gap as gap:
                # at a segment's begin, what a power loss has left of the segment before may end with a block
                if index == 0 or numbers[index - 1] <= forced or self.segments[-1].size:
                    raise gap.error from gap
                self._cut(self._path(number), 0, os.path.getsize(self._path(number)))
                whole = False
            if not whole:
                self._remove(numbers[index + 1 :])
                break
        for segment in self.segments[:-1]:
            if segment.number > forced and self._syncs:
                self._full.append(self._disk.open(self._path(segment.number)))
        self._descriptor = self._disk.open(self._path(self.segments[-1].number))
        self._state.number = min(forced + 1, self.segments[-1].number)
        self._state.found = True

    def _remove(self, numbers: list[int]) -> None:
        """Removes the segments after a torn one, the last one first: what is left is then always a log."""
        for number in reversed(numbers):
            self.cut += os.path.getsize(self._path(number))
            self._disk.unlink(self._path(number))

    @property
    def rolled(self) -> bool:
        """Whether there are full segments that are not forced to the disk, or what a failed sync has left."""
        return len(self._full) > 0 or self._state.failed

    @property
    def failed(self) -> bool:
        """Whether the last sync has failed."""
        return self._state.failed

    @property
    def size(self) -> int:
        return sum([segment.size for segment in self.segments])

    def append(self, *body: bytes) -> None:
        """Writes one block, with its body in pieces. Raises STORAGE if the disk refuses; the log then holds
        nothing of it."""
        segment = self.segments[-1]
        size = checksum = 0
        for piece in body:
            size += len(piece)
            checksum = crc32c(piece, checksum)
        data = b"".join((HEAD.pack(size, checksum), *body))
        try:
            written = self._disk.write(self._descriptor, data, segment.size)
            if written < len(data):
                write_rest(self._disk, self._descriptor, data, segment.size, written)
        except OSError as error:
            try:
                self._disk.truncate(self._descriptor, segment.size)
            except OSError:
                pass  # the next block overwrites the torn part, or the next opening cuts it off
            raise refused(error, f"write {self.directory}") from error
        segment.size += len(data)

    def roll(self) -> BlockSegment:
        """Starts a new segment. Raises OSError if the disk refuses."""
        number = self.segments[-1].number + 1 if self.segments else 1
        descriptor = self._disk.open(self._path(number), create=True)
        if self._descriptor >= 0:
            if self._syncs:
                self._full.append(self._descriptor)
            else:
                self._disk.close(self._descriptor)
        self._descriptor = descriptor
        self.segments.append(BlockSegment(number, 0))
        return self.segments[-1]

    def drop_first(self) -> None:
        """Removes the oldest segment, but never the one that is written to."""
        self.drop(self.segments[0])

    def drop(self, segment: BlockSegment) -> None:
        """Removes any segment but the one that is written to.

        For owners whose segments are independent of one another.
        """
        assert segment is not self.segments[-1]
        self.segments.remove(segment)
        self._removals.add(self._path(segment.number))

    def open_segment(self, number: int) -> int:
        """Returns a descriptor for reading a segment; the caller closes it. Raises OSError if the disk
        refuses.
        """
        return self._disk.open(self._path(number))

    def begin_sync(self) -> SyncTicket:
        """Returns a ticket for a sync of everything written so far. Raises OSError."""
        full = 0
        if self.rolled:
            full = self.segments[-1].number - 1
            if not self._entries:
                self._entries.append(self.directory)
        ticket = SyncTicket(
            self._disk,
            self.directory,
            self._state,
            self._removals,
            # A copy of the descriptor: `close` may close the log's own one while the sync runs.
            [*self._full, os.dup(self._descriptor)],
            self._unforced(),
            full,
            self._entries,
        )
        self._full.clear()
        self._entries = []
        return ticket

    def _unforced(self) -> list[tuple[int, int]]:
        """Returns numbers and sizes of the segments that are not known to be on the disk."""
        found: list[tuple[int, int]] = []
        for segment in reversed(self.segments):
            if segment.number < self._state.number:
                break
            found.append((segment.number, segment.size))
        found.reverse()
        return found

    def close(self) -> None:
        for descriptor in self._full:
            self._disk.close(descriptor)
        self._full.clear()
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1
        self._removals.finish()

    def _path(self, number: int) -> str:
        return segment_path(self.directory, number)

    def _read(self, number: int, may_be_torn: bool, take: Callable[[BlockSegment, bytes], None]) -> bool:
        """Reads a segment. Returns whether it is whole; cuts off a torn end."""
        path = self._path(number)
        segment = BlockSegment(number, 0)
        self.segments.append(segment)
        with open(path, "rb", buffering=CHUNK) as file:
            total = os.fstat(file.fileno()).st_size
            while (block := read_block(file.read, total - segment.size)) is not None:
                take(segment, block)
                segment.size += HEAD.size + len(block)
        if segment.size == total:
            return True
        if not may_be_torn:
            raise TreecastError(
                Fault.STORAGE, f"{path} is damaged at byte {segment.size}: restore it from a backup"
            )
        self._cut(path, segment.size, total)
        return False

    def _cut(self, path: str, size: int, total: int) -> None:
        descriptor = self._disk.open(path)
        try:
            self._disk.truncate(descriptor, size)
        finally:
            self._disk.close(descriptor)
        self.cut += total - size


def _forced(path: str, numbers: list[int]) -> int:
    """Returns the number of the last segment that was forced to the disk as a whole.

    0 if a power loss has emptied the file. In logs of versions without it all segments but the last one count
    as forced.
    """
    try:
        with open(path, "rb") as file:
            return int(file.read())
    except FileNotFoundError:
        return numbers[-1] - 1
    except ValueError:
        return 0
