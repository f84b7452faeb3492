"""Bytes on their way: in memory, or still in a file."""

from __future__ import annotations

from typing import Final

Buffer = bytes | bytearray | memoryview
BUFFERS: Final = (bytes, bytearray, memoryview)  # for isinstance, which would make the union anew each time


class FileRange:
    """Bytes of a file that can be sent from where they lie (sendfile), or read: `size` from `offset` on.

    They do not change, and stay readable as long as the object lives, whatever becomes of the file's name.
    `descriptor` is the open file. A class and no Protocol: its fields are found without a look-up by name.
    """

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self.descriptor = descriptor
        self.offset = offset
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        """Reads them all. STORAGE where the disk refuses."""
        return self.read_from(0)

    def read_from(self, skip: int) -> bytes:
        """Reads all but the first `skip` bytes. STORAGE where the disk refuses."""
        # No ABC: isinstance asks this class for each chunk, and an ABC answers that many times slower.
        raise NotImplementedError


Chunk = Buffer | FileRange


def in_memory(chunk: Chunk) -> Buffer:
    """The bytes, read where they are still in a file."""
    if isinstance(chunk, bytes):
        return chunk
    return chunk if isinstance(chunk, BUFFERS) else bytes(chunk)
