"""The audit log on disk: lines of JSON, once in an interval, in files of bounded number and size."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from treecast.middleware.api.discovery import OFF
from treecast.middleware.broker.access import Identities, Row, Trail
from treecast.middleware.model.logs import Log

from .settings import Settings

FILE: Final = "audit.log"  # in the data directory
FILES: Final = 4  # audit.log, audit.log.1 and so on, the oldest last
INTERVAL: Final = 5.0  # seconds that a row counts
_MOST_UNWRITTEN: Final = 4 << 20  # bytes of lines that wait for a disk that refuses
_log = Log(__name__)


class AuditFiles:
    """Appends to `path`, readable by its owner only. At `most` bytes it begins a new file."""

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self._most = most

    def write(self, lines: bytes) -> None:
        """Appends whole lines. Raises OSError if the disk refuses; the file then ends as before."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(lines) > self._most:
                self._rotate()
            else:
                _append(descriptor, lines, size)
                return
        finally:
            os.close(descriptor)
        self.write(lines)

    def _rotate(self) -> None:
        for number in range(FILES - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path


def _append(descriptor: int, lines: bytes, size: int) -> None:
    try:
        written = 0
        while written < len(lines):
            written += os.write(descriptor, lines[written:])
    except OSError:
        with suppress(OSError):  # half a line would spoil the next one as well
            os.ftruncate(descriptor, size)
        raise


def lines_of(rows: list[Row], now: float) -> bytes:
    """Returns the rows as lines. `now` in seconds since the Unix epoch: the end of the interval."""
    stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    encode = msgspec.json.encode
    return b"".join([encode({"time": stamp, **msgspec.structs.asdict(row)}) + b"\n" for row in rows])


class AuditLog:
    """Writes the trail of a daemon, from `start` to `close`, on another thread. What the disk refuses is
    written with the next interval, up to a bound.
    """

    def __init__(self, trail: Trail, files: AuditFiles, most_unwritten: int = _MOST_UNWRITTEN) -> None:
        self._trail = trail
        self._files = files
        self._most_unwritten = most_unwritten
        self._unwritten = b""
        self._lost = 0  # rows, since the disk began to refuse
        self._failed = False
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    @classmethod
    def of(cls, settings: Settings, identities: Identities) -> AuditLog | None:
        """Returns the log that the settings ask for, whose trail `identities` has from now on."""
        if settings.audit_log == OFF:
            return None
        path = Path(settings.audit_log) if settings.audit_log else Path(settings.data) / FILE
        identities.trail = Trail()
        return cls(identities.trail, AuditFiles(path, settings.audit_log_bytes))

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), INTERVAL)
            try:
                await self._write()
            except Exception:  # or nothing would be written any more
                _log.exception("audit log not written")

    async def _write(self) -> None:
        rows = self._trail.take()
        lines = lines_of(rows, time.time())
        if len(self._unwritten) + len(lines) <= self._most_unwritten or not self._unwritten:
            self._unwritten += lines
        else:
            self._lost += len(rows)
        if not self._unwritten:
            return
        try:
            await asyncio.to_thread(self._files.write, self._unwritten)
        except OSError as error:
            if not self._failed:
                _log.error("audit log not written; it is tried again", error=error.strerror, rows=len(rows))
            self._failed = True
            return
        self._unwritten = b""
        if self._failed:
            _log.warning("audit log is written again", lost=self._lost)
        self._failed, self._lost = False, 0

    async def close(self) -> None:
        """Writes what is left. A write under way ends first: its lines would be written twice else."""
        if self._task is not None:
            self._closing.set()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._write()
