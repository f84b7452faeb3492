"""Durable tables: small keyed state (topics, offsets, groups, transactions) in one SQLite file.

A table maps text keys to opaque bytes; its owner chooses the encoding. All tables are small enough to be read
whole at start, and are written in atomic groups of changes. SQLite's write-ahead log survives a kill at any
point; the fsync policy decides about power loss (`synchronous` OFF, NORMAL or FULL).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError

from .settings import FsyncPolicy

_SYNCHRONOUS = {FsyncPolicy.NEVER: "OFF", FsyncPolicy.INTERVAL: "NORMAL", FsyncPolicy.BATCH: "FULL"}


class Change(Struct, frozen=True):
    """Sets `key` of `table` to `value`, or removes it if `value` is None."""

    table: str
    key: str
    value: bytes | None


class Tables:
    """The tables of one daemon. Raises STORAGE if the disk refuses; no change is then written partially."""

    def __init__(self, path: Path, fsync: FsyncPolicy) -> None:
        self._path = path
        self._fsync = fsync
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[fsync]}")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS entries"
            " (tab TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tab, key))"
            " WITHOUT ROWID"
        )
        self._writer: ThreadPoolExecutor | None = None
        self._queued: list[tuple[Sequence[Change], asyncio.Future[None]]] = []
        self._drain_task: asyncio.Task[None] | None = None

    def load(self, table: str) -> dict[str, bytes]:
        """Returns a whole table, for its owner at start."""
        rows = self._database.execute("SELECT key, value FROM entries WHERE tab = ?", (table,))
        return {key: bytes(value) for key, value in rows}

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
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "tables")
        loop = asyncio.get_running_loop()
        while self._queued:
            group, self._queued = self._queued, []
            error: BaseException | None = None
            try:
                await loop.run_in_executor(
                    self._writer, self.write, [c for changes, _ in group for c in changes]
                )
            except TreecastError as refused:
                error = refused
            for _, done in group:
                if not done.done():
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
        self._drain_task = None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.shutdown()
        self._database.close()
