"""Durable tables: small keyed state (topics, offsets, groups, transactions) in one SQLite file.

A table maps text keys to opaque bytes; its owner chooses the encoding. All tables are small enough to be read
whole at start, and are written in atomic groups of changes. SQLite's write-ahead log survives a kill at any
point; the fsync policy decides about power loss:

  batch      `synchronous` FULL: each commit is forced to the disk before it returns
  interval   NORMAL, which forces nothing before a checkpoint; `force` forces the write-ahead log
  never      NORMAL: a power loss takes the last commits. With OFF it may leave a file that is no database

With `interval` and `never`, commits are written on the event loop and checkpoints are made beside it, as they
wait for the disk.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .disk import Disk
from .settings import FsyncPolicy

SYNCHRONOUS: Final = {
    FsyncPolicy.NEVER: "NORMAL",
    FsyncPolicy.INTERVAL: "NORMAL",
    FsyncPolicy.BATCH: "FULL",
}
_CHECKPOINT_AT: Final = 1000  # pages written since the last checkpoint, as SQLite's own default
_CHECKPOINT_ON_LOOP: Final = 16_000  # pages in the write-ahead log, where nobody has called `force` for long
_PAGE: Final = 4096

_log = Log(__name__)


class Change(Struct, frozen=True):
    """Sets `key` of `table` to `value`, or removes it if `value` is None."""

    table: str
    key: str
    value: bytes | None


class Tables:
    """The tables of one daemon. Raises STORAGE if the disk refuses; no change is then written partially."""

    def __init__(self, path: Path, fsync: FsyncPolicy, disk: Disk | None = None) -> None:
        self._path = path
        self._fsync = fsync
        self._disk = disk or Disk()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {SYNCHRONOUS[fsync]}")
        if fsync is not FsyncPolicy.BATCH:
            self._database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_ON_LOOP}")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS entries"
            " (tab TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tab, key))"
            " WITHOUT ROWID"
        )
        self._unforced = True  # an earlier process may have left what is not on disk
        self._entry_forced = False  # the write-ahead log's own entry in its directory
        self._pages = 0  # written since the last checkpoint, about
        self._forcing: asyncio.Future[None] | None = None
        self._checkpoints: sqlite3.Connection | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._queued: list[tuple[Sequence[Change], asyncio.Future[None]]] = []
        self._drain_task: asyncio.Task[None] | None = None

    def load(self, table: str) -> dict[str, bytes]:
        """Returns a whole table, for its owner at start."""
        rows = self._database.execute("SELECT key, value FROM entries WHERE tab = ?", (table,))
        return {key: bytes(value) for key, value in rows}

    def get(self, table: str, key: str) -> bytes | None:
        """Returns one row."""
        row = self._database.execute(
            "SELECT value FROM entries WHERE tab = ? AND key = ?", (table, key)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def write(self, changes: Sequence[Change]) -> None:
        """Writes `changes` as one transaction, at once. The last change of a key counts."""
        changes = list({(change.table, change.key): change for change in changes}.values())
        try:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "DELETE FROM entries WHERE tab = ? AND key = ?",
                [(c.table, c.key) for c in changes if c.value is None],
            )
            self._database.executemany(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)",
                [(c.table, c.key, c.value) for c in changes if c.value is not None],
            )
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise TreecastError(Fault.STORAGE, f"cannot write {self._path}: {error}") from error
        self._unforced = True
        self._pages += 1 + sum([1 + len(change.value or b"") // _PAGE for change in changes])

    async def commit(self, changes: Sequence[Change]) -> None:
        """Writes `changes`. With fsync per batch, does so beside the loop and together with other waiting
        changes.
        """
        if self._fsync is not FsyncPolicy.BATCH:
            self.write(changes)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queued.append((changes, done))
        if self._drain_task is None:
            self._drain_task = asyncio.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        """Writes the queue, a group at a time, until it is empty."""
        writer = self._thread()
        loop = asyncio.get_running_loop()
        while self._queued:
            group, self._queued = self._queued, []
            error: BaseException | None = None
            try:
                await loop.run_in_executor(writer, self.write, [c for changes, _ in group for c in changes])
            except TreecastError as refused:
                error = refused
            for _, done in group:
                if not done.done():
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
        self._drain_task = None

    def _thread(self) -> ThreadPoolExecutor:
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "tables")
        return self._writer

    # --- the disk

    def force(self) -> None:
        """Begins to force to the disk what was written since the last call, beside the loop, with fsync per
        interval; and makes a checkpoint if one is due. A disk that refuses is asked again with the next call.
        """
        if self._fsync is FsyncPolicy.BATCH or not self._unforced or self._forcing is not None:
            return
        # Before the sync runs: what is written meanwhile has to be forced by the next one.
        self._unforced = False
        self._forcing = asyncio.get_running_loop().run_in_executor(self._thread(), self._force)
        self._forcing.add_done_callback(self._forced)

    def _forced(self, done: asyncio.Future[None]) -> None:
        self._forcing = None
        error = done.exception() if not done.cancelled() else None
        if error is not None:
            self._unforced = True
            _log.error("tables cannot be forced to the disk", path=self._path, error=error)

    def _force(self) -> None:
        """Runs on the writer's thread. Raises OSError or sqlite3.Error."""
        if self._fsync is FsyncPolicy.INTERVAL:
            # SQLite locks the database file and the -shm file; closing another descriptor of the log is safe
            self._disk.sync_path(f"{self._path}-wal")
            if not self._entry_forced:
                self._disk.sync_directory(os.path.dirname(self._path) or ".")
                self._entry_forced = True
        if self._pages >= _CHECKPOINT_AT:
            self._pages = 0
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Moves the write-ahead log into the database and forces both, on a connection of its own: that of
        the loop would be locked meanwhile."""
        if self._checkpoints is None:
            self._checkpoints = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._checkpoints.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Closes the tables, with everything on disk under every policy. Safe to call twice."""
        if self._writer is not None:
            self._writer.shutdown()
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._database.close()  # the last connection makes a checkpoint
