"""Payload bytes: in memory, or still in a file."""

from __future__ import annotations

from typing import Final

Buffer = bytes | bytearray | memoryview
# for isinstance, which would otherwise build the union on each call
BUFFERS: Final = (bytes, bytearray, memoryview)


class FileRange:
    """A range of a file, to be sent from the file (sendfile) or read: `size` bytes from `offset`.

    The bytes do not change and stay readable as long as the object lives, even if the file is renamed or
    deleted. `descriptor` is the open file. This is a class rather than a Protocol because field access is
    then faster than a look-up by name.
    """

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self.descriptor = descriptor
        self.offset = offset
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        """Reads all bytes. Raises STORAGE if the disk refuses."""
        return self.read_from(0)

    def read_from(self, skip: int) -> bytes:
        """Reads all bytes after the first `skip`. Raises STORAGE if the disk refuses."""
        # Not an ABC: isinstance checks this class for each chunk, and an ABC answers many times slower.
        raise NotImplementedError


Chunk = Buffer | FileRange


def in_memory(chunk: Chunk) -> Buffer:
    """Returns the bytes, reading them if they are still in a file."""
    if isinstance(chunk, bytes):
        return chunk
    return chunk if isinstance(chunk, BUFFERS) else bytes(chunk)
