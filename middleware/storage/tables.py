"""Durable tables: small keyed state (topics, offsets, groups, transactions) in one SQLite file.

A table maps text keys to opaque bytes; its owner chooses the encoding. All tables are small enough to be read
whole at start, and are written in atomic groups of changes. SQLite's write-ahead log survives a kill at any
point; the fsync policy decides about power loss:

  batch      `synchronous` FULL: each commit is forced to the disk before it returns
  interval   NORMAL, which forces nothing before a checkpoint; `force` forces the write-ahead log
  never      NORMAL: a power loss takes the last commits. With OFF it may leave a file that is no database

With `interval` and `never`, commits are written on the event loop and checkpoints are made beside it, as they
wait for the disk.

**Logged** tables have a log of changes in front of the database (`table_log`), in the folder `X.log` beside
`X.sqlite`: a commit is one block at its end, which costs a fraction of a transaction and no thread. The fsync
policy then applies to the log. The last values of the changed keys are folded into the database beside the
loop when the log has grown, and at closing. Whoever opens the tables, logged or not, first folds a log that
is left.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .disk import Disk, refused
from .settings import FsyncPolicy
from .table_log import Change, TableLog

__all__ = ["Change", "Tables"]

SYNCHRONOUS: Final = {
    FsyncPolicy.NEVER: "NORMAL",
    FsyncPolicy.INTERVAL: "NORMAL",
    FsyncPolicy.BATCH: "FULL",
}
_CHECKPOINT_AT: Final = 1000  # pages written since the last checkpoint, as SQLite's own default
_CHECKPOINT_ON_LOOP: Final = 16_000  # pages in the write-ahead log, where nobody has called `force` for long
_PAGE: Final = 4096
_FOLD_AT: Final = 16 * 1024 * 1024  # bytes of the log of changes
_FOLD_AGAIN: Final = 60.0  # seconds after one that failed: each costs a transaction of all that has changed
_LOG, _FOLDED = "log", "folded"  # the row with the number of the last block that the database has

_log = Log(__name__)


class Tables:
    """The tables of one daemon. Raises STORAGE if the disk refuses; no change is then written partially.

    Whether a refused change will be there is unknown to its caller, as after a time-out of the network. If
    the write itself was refused, nothing is changed. If the sync after it was refused, the change of logged
    tables stays: it is read here, and the next sync, fold or start makes it last, unless a power loss takes
    it before. No change is acknowledged while one before it is not on the disk (`block_sync`).

    `logged`: with a log of changes in front, for tables that change with every request. `fold_at`: its size
    in bytes from which it is folded. `clock`: monotonic seconds.
    """

    def __init__(
        self,
        path: Path,
        fsync: FsyncPolicy,
        disk: Disk | None = None,
        *,
        logged: bool = False,
        fold_at: int = _FOLD_AT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
        self._torn = True  # a sync of the write-ahead log has failed, maybe in an earlier process
        self._pages = 0  # written since the last checkpoint, about
        self._forcing: asyncio.Future[None] | None = None
        self._checkpoints: sqlite3.Connection | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._queued: list[tuple[Sequence[Change], asyncio.Future[None]]] = []
        self._drain_task: asyncio.Task[None] | None = None
        self._fold_at = fold_at
        self._clock = clock
        self._no_fold_before = 0.0  # by the clock; 0.0 if the last fold succeeded
        self._folder: ThreadPoolExecutor | None = None
        self._fold_job: Future[None] | None = None
        self._log: TableLog | None = None
        try:
            with suppress(sqlite3.Error):  # a full disk: the first sync tries again
                self._empty_log(self._database)  # nothing runs beside it yet: no descriptors for another one
            self._open_log(logged)
        except BaseException:
            self._database.close()
            raise

    def _open_log(self, logged: bool) -> None:
        """Folds a log that an earlier process has left, and keeps it open if it is to be used."""
        directory = str(self._path.with_suffix(".log"))
        if not logged and not os.path.isdir(directory):
            return
        folded = int(self.get(_LOG, _FOLDED) or b"0")
        self._log = TableLog(directory, self._disk, syncs=self._fsync is not FsyncPolicy.NEVER, folded=folded)
        if self._log.recent:
            self._fold_now(self._log)
        if not logged:
            self._log.close()
            self._log = None

    def load(self, table: str) -> dict[str, bytes]:
        """Returns a whole table, for its owner at start."""
        found = self._database.execute("SELECT key, value FROM entries WHERE tab = ?", (table,))
        rows = {key: bytes(value) for key, value in found}
        if self._log is not None:
            self._log.overlay(table, rows)
        return rows

    def get(self, table: str, key: str) -> bytes | None:
        """Returns one row."""
        log = self._log
        if log is not None:
            for changes in (log.recent, log.folding):
                if (table, key) in changes:
                    return changes[table, key]
        row = self._database.execute(
            "SELECT value FROM entries WHERE tab = ? AND key = ?", (table, key)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def write(self, changes: Sequence[Change]) -> None:
        """Writes `changes` as one transaction, at once. The last change of a key counts."""
        if self._log is None:
            self._write_rows(changes)
            return
        self._log.append(changes)
        self._unforced = True
        if self._fsync is FsyncPolicy.BATCH:
            self._sync_now(self._log)

    def _sync_now(self, log: TableLog) -> None:
        try:
            log.begin_sync().run()
        except OSError as error:
            raise refused(error, f"write {self._path}") from error

    def _write_rows(self, changes: Sequence[Change]) -> None:
        """Writes `changes` into the database."""
        changes = list({(change.table, change.key): change for change in changes}.values())
        try:
            if self._torn and self._fsync is FsyncPolicy.BATCH:
                self._empty_log()
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
            self._fold_if_due()
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queued.append((changes, done))
        if self._drain_task is None:
            self._drain_task = asyncio.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        """Writes the queue, a group at a time, until it is empty."""
        while self._queued:
            group, self._queued = self._queued, []
            error: BaseException | None = None
            try:
                await self._store([change for changes, _ in group for change in changes])
            except TreecastError as refused:
                error = refused
            for _, done in group:
                if not done.done():
                    if error is None:
                        done.set_result(None)
                    else:
                        done.set_exception(error)
        self._drain_task = None

    async def _store(self, changes: Sequence[Change]) -> None:
        """Writes `changes` and forces them to the disk, waiting for it on a thread."""
        loop = asyncio.get_running_loop()
        if self._log is None:
            await loop.run_in_executor(self._thread(), self._write_rows, changes)
            return
        self._log.append(changes)
        ticket = self._log.begin_sync()
        try:
            await loop.run_in_executor(self._thread(), ticket.run)
        except OSError as error:
            raise refused(error, f"write {self._path}") from error
        finally:
            self._fold_if_due()

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
        force: Callable[[], None] = self._force
        if self._log is not None:
            if self._fsync is FsyncPolicy.NEVER:
                return
            try:
                force = self._log.begin_sync().run
            except TreecastError as error:
                self._not_forced(error)
                return
        self._forcing = asyncio.get_running_loop().run_in_executor(self._thread(), force)
        self._forcing.add_done_callback(self._forced)

    def _forced(self, done: asyncio.Future[None]) -> None:
        self._forcing = None
        error = done.exception() if not done.cancelled() else None
        if error is not None:
            self._not_forced(error)

    def _not_forced(self, error: BaseException) -> None:
        self._unforced = True
        _log.error("tables cannot be forced to the disk", path=self._path, error=error)

    def _force(self) -> None:
        """Runs on the writer's thread. Raises OSError or sqlite3.Error."""
        if self._fsync is FsyncPolicy.INTERVAL:
            self._force_database()
        self._checkpoint_if_due()

    def _force_database(self) -> None:
        if self._torn:
            self._empty_log()
        # SQLite locks the database file and the -shm file; closing another descriptor of the log is safe
        try:
            self._disk.sync_path(f"{self._path}-wal")
        except OSError:
            self._torn = True
            raise
        if not self._entry_forced:
            self._disk.sync_directory(os.path.dirname(self._path) or ".")
            self._entry_forced = True

    def _empty_log(self, own: sqlite3.Connection | None = None) -> None:
        """Moves all of the write-ahead log into the database, and empties it. The kernel takes what a
        failed sync left for clean: SQLite would end at it after a power loss, whatever follows. `own`: the
        connection for it; default: that for checkpoints."""
        ((busy, _, _),) = self._checkpoint("TRUNCATE", own)
        if busy:
            raise sqlite3.OperationalError("the write-ahead log is in use")
        self._torn = False

    def _checkpoint_if_due(self) -> None:
        if self._pages >= _CHECKPOINT_AT:
            self._pages = 0
            self._checkpoint()

    def _checkpoint(
        self, mode: str = "PASSIVE", own: sqlite3.Connection | None = None
    ) -> list[tuple[int, int, int]]:
        """Moves the write-ahead log into the database and forces both, on a connection of its own: that of
        the loop would be locked meanwhile. Returns SQLite's row: busy?, pages in the log, pages moved."""
        if own is None and self._checkpoints is None:
            self._checkpoints = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection = own or self._checkpoints
        assert connection is not None
        return connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    # --- folding the log into the database

    def _fold_if_due(self) -> None:
        """Begins a fold beside the loop if none is running, and if the log has grown or a sync of it has
        failed: what the disk has lost of the log may still be in memory."""
        log = self._log
        if log is None or self._fold_job is not None or (log.size < self._fold_at and not log.failed):
            return
        if self._no_fold_before and self._clock() < self._no_fold_before:
            return
        try:
            number, changes = log.begin_fold()
        except TreecastError as error:
            self._not_folded(error)
            return
        if self._folder is None:  # not the writer's thread: commits that wait for the disk do not wait for it
            self._folder = ThreadPoolExecutor(1, "tables-fold")
        self._fold_job = self._folder.submit(self._fold, number, changes)
        asyncio.wrap_future(self._fold_job).add_done_callback(self._folded)

    def _fold(self, number: int, changes: list[Change]) -> None:
        """Runs on a thread of its own. Raises TreecastError, OSError or sqlite3.Error."""
        self._write_rows([*changes, Change(_LOG, _FOLDED, b"%d" % number)])
        self._force_database()  # under every policy: without its blocks the database has to be whole
        self._checkpoint_if_due()

    def _folded(self, done: asyncio.Future[None]) -> None:
        error = done.exception() if not done.cancelled() else None
        if self._log is None or self._fold_job is None:
            return  # closed meanwhile
        self._fold_job = None
        self._log.end_fold(stored=error is None)
        self._no_fold_before = 0.0
        if error is not None:
            self._not_folded(error)

    def _not_folded(self, error: BaseException) -> None:
        self._no_fold_before = self._clock() + _FOLD_AGAIN
        _log.error("log of the tables cannot be folded", path=self._path, error=error)

    def _fold_now(self, log: TableLog) -> None:
        """Folds what the log holds, at once. Raises STORAGE; the log then keeps everything."""
        number, changes = log.begin_fold()
        stored = False
        try:
            self._fold(number, changes)
            stored = True
        except OSError as error:
            raise refused(error, f"write {self._path}") from error
        except sqlite3.Error as error:
            raise TreecastError(Fault.STORAGE, f"cannot write {self._path}: {error}") from error
        finally:
            log.end_fold(stored=stored)

    def _close_log(self, log: TableLog) -> None:
        """Folds the log, so that the database alone has everything. A disk that refuses leaves the log."""
        if self._folder is not None:
            self._folder.shutdown()
        if self._fold_job is not None:
            error = self._fold_job.exception()
            self._fold_job = None
            log.end_fold(stored=error is None)
        try:
            if log.recent:
                self._fold_now(log)
        except TreecastError as error:
            _log.error("log of the tables cannot be folded", path=self._path, error=error)
        log.close()

    def close(self) -> None:
        """Closes the tables, with everything on disk under every policy. Safe to call twice."""
        if self._writer is not None:
            self._writer.shutdown()
        if self._log is not None:
            self._close_log(self._log)
            self._log = None
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._database.close()  # the last connection makes a checkpoint
