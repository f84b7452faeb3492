"""Bytes on their way: in memory, or still in a file."""

from __future__ import annotations

from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview
BUFFERS: Final = (bytes, bytearray, memoryview)  # for isinstance, which would make the union anew each time


class FileRange(Protocol):
    """Bytes of a file that can be sent from where they lie (sendfile), or read.

    They do not change, and stay readable as long as the object lives, whatever becomes of the file's name.
    """

    @property
    def descriptor(self) -> int:
        """The open file."""

    @property
    def offset(self) -> int:
        """Where the bytes begin in the file."""

    def __len__(self) -> int: ...

    def __bytes__(self) -> bytes:
        """Reads them all. STORAGE where the disk refuses."""

    def read_from(self, skip: int) -> bytes:
        """Reads all but the first `skip` bytes. STORAGE where the disk refuses."""


Chunk = Buffer | FileRange


def in_memory(chunk: Chunk) -> Buffer:
    """The bytes, read where they are still in a file."""
    if isinstance(chunk, bytes):
        return chunk
    return chunk if isinstance(chunk, BUFFERS) else bytes(chunk)
