"""A part of a log file that can be sent to a reader without reading it."""

from __future__ import annotations

from treecast.middleware.model.buffers import FileRange

from .disk import refused
from .files import FilePool, LogFile
from .scan import read_fully

# From about this size on, sendfile is cheaper than read and write (docs/decisions/2026-11-21-log-reads.md).
SENDFILE_BYTES = 64 * 1024


class LogRange(FileRange):
    """A `FileRange` of a log file. The file stays open as long as this object lives.

    Log files only grow: written bytes are never rewritten, and a deleted file's bytes live as long as a
    descriptor does.
    """

    def __init__(self, pool: FilePool, file: LogFile, offset: int, size: int) -> None:
        super().__init__(-1, offset, size)
        self._pool = pool
        self._file = file
        self.descriptor = pool.pin(file)

    def read_from(self, skip: int) -> bytes:
        try:
            return read_fully(self.descriptor, self.size - skip, self.offset + skip)
        except OSError as error:
            raise refused(error, f"read {self._file.path}") from error

    def __del__(self) -> None:
        if self.descriptor >= 0:
            self._pool.unpin(self._file)
