"""A part of a log file that a reader may be sent without anyone reading it."""

from __future__ import annotations

import os

from .disk import refused
from .scan import read_fully

# From about here on sendfile is cheaper than a read and a write (docs/decisions/2026-11-21-log-reads.md).
SENDFILE_BYTES = 64 * 1024


class LogRange:
    """Implements `model.buffers.FileRange` with a descriptor of its own, closed with the object.

    Log files only grow: what was written is never written again, and a deleted file's bytes live as long
    as a descriptor does.
    """

    __slots__ = ("_size", "descriptor", "offset", "path")

    def __init__(self, descriptor: int, offset: int, size: int, path: str) -> None:
        self.descriptor = os.dup(descriptor)
        self.offset = offset
        self.path = path
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self.read_from(0)

    def read_from(self, skip: int) -> bytes:
        try:
            return read_fully(self.descriptor, self._size - skip, self.offset + skip)
        except OSError as error:
            raise refused(error, f"read {self.path}") from error

    def __del__(self) -> None:
        os.close(self.descriptor)
