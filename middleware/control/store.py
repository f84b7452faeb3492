"""The coordinator's store in SQLite: entries, their change log by revision, and the items of homes.

  meta     name -> text: format, cluster, history, revision, epoch, lineage (`lineage.py`)
  entries  (kind, key) -> the entry, as an `EntryChange` message
  changes  (revision, position) -> an `EntryChange` message; only the last revisions
  items    (home, key) -> opaque bytes of that home

A revision is one command's changes. The history's name changes whenever revisions may have been counted twice
(a new store; a start after a power loss that could have taken the last ones), so that no watcher resumes from
a revision with another meaning. The mark of an orderly close and the name of the machine's boot show whether
power was lost.

Each start has an epoch of its own. It shows whether a host knows of revisions that this file never had.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.disk import Disk, make_directory
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import SYNCHRONOUS

from .lineage import Lineage, epoch_by_clock
from .values import EVENTS, ItemWrite, event_number

FORMAT = 1
_log = Log(__name__)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries
    (kind INTEGER NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes
    (revision INTEGER NOT NULL, position INTEGER NOT NULL, value BLOB NOT NULL,
     PRIMARY KEY (revision, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items
    (home TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (home, key)) WITHOUT ROWID;
"""


class StoredChange(Struct, frozen=True):
    """`message`: the encoded change. `removed`: the entry no longer exists."""

    kind: int
    key: str
    message: bytes
    removed: bool


class Commit(Struct, frozen=True):
    """The changes of one command. Without watched changes it has no revision of its own."""

    revision: int
    changes: tuple[StoredChange, ...]
    items: tuple[ItemWrite, ...] = ()


class Loaded(Struct, frozen=True):
    """Everything but the items. `log`: the kept revisions, ascending, each with its encoded changes.
    `last_event`: the number of the last stored event."""

    cluster_id: str
    history: str
    revision: int
    entries: tuple[bytes, ...]
    log: tuple[tuple[int, tuple[bytes, ...]], ...]
    last_event: int = 0
    lineage: Lineage = Lineage()


class Store(Protocol):
    """Durable and atomic; used by one thread at a time.

    Every method raises STORAGE if the disk refuses, and has then changed nothing. A shared store raises
    COORDINATOR_UNAVAILABLE once this process does not lead on it or does not know whether it does; a commit
    under way may then be done or not.
    """

    @property
    def shared(self) -> bool:
        """Whether other coordinators may write to it. Each answer then needs a `commit` or a `confirm`."""

    @property
    def epoch(self) -> int:
        """The epoch of this coordinator's leadership, or of its start if the store is not shared."""

    def load(self) -> Loaded: ...

    def may_follow(self, epoch: int) -> bool:
        """Returns whether callers can have heard of a higher epoch because this store is an older state.
        Otherwise another store may go on.
        """

    def turn(self, epoch: int, history: str, revision: int, lineage: Lineage) -> None:
        """Goes on in this epoch, under this name of the history and after this revision."""

    def commit(self, commits: Sequence[Commit], trim: int) -> None:
        """Writes all of `commits` or none, and deletes revisions below `trim` from the change log."""

    def confirm(self) -> None:
        """Returns if this coordinator still leads, durably like a commit."""

    def items(self, home: str, after: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Returns items above the key `after`, ascending, up to `limit` bytes but at least one; and whether
        more follow.
        """

    def force(self) -> None:
        """Forces to the disk what commits have left to the kernel, if the store has such a policy."""

    def close(self) -> None: ...


class SqliteStore:
    """A `Store` in one SQLite file, which it opens exclusively."""

    shared = False

    def __init__(
        self,
        path: Path,
        new_id: Callable[[], str],
        *,
        cluster_id: str = "",
        fsync: FsyncPolicy = FsyncPolicy.BATCH,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens or creates `path`. `new_id` names a new cluster (if `cluster_id` is empty) and histories.
        `clock`: Unix time.

        Raises STORAGE if it belongs to another cluster, has another format, is broken, or is open elsewhere.
        """
        self._path = path
        self._forces = fsync is FsyncPolicy.INTERVAL
        self._waits = fsync is FsyncPolicy.BATCH
        self._unforced = False
        self._torn = True  # a sync of the write-ahead log has failed, maybe in an earlier process
        make_directory(str(path.parent))
        self._clock = clock
        self.epoch = 0
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        except sqlite3.Error as error:
            raise self._refused("open", error) from error
        try:
            self._open()
            self._identify(new_id, cluster_id, lasting=fsync is FsyncPolicy.BATCH)
            self._database.execute(f"PRAGMA synchronous = {SYNCHRONOUS[fsync]}")
        except sqlite3.Error as error:
            self._database.close()
            raise self._refused("open", error) from error
        except TreecastError:
            self._database.close()
            raise

    def _open(self) -> None:
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")  # held until close or death
        self._database.execute("PRAGMA journal_mode = WAL")
        # the mark of an open store must be on disk at once
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";"):
            self._database.execute(statement)
        self._database.execute("COMMIT")
        with suppress(sqlite3.Error):  # a full disk: the first sync tries again
            self._empty_log()

    def _empty_log(self) -> None:
        """Moves all of the write-ahead log into the database, and empties it. The kernel takes what a
        failed sync left for clean: SQLite would end at it after a power loss, whatever follows."""
        ((busy, _, _),) = self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if busy:
            raise sqlite3.OperationalError("the write-ahead log is in use")
        self._torn = False

    def _identify(self, new_id: Callable[[], str], wanted: str, *, lasting: bool) -> None:
        meta = self._meta()
        if meta and meta.get("format") != str(FORMAT):
            raise TreecastError(
                Fault.STORAGE,
                f"{self._path} has format {meta.get('format')}; this version of Treecast reads {FORMAT}",
            )
        if meta and wanted and meta["cluster"] != wanted:
            raise TreecastError(
                Fault.STORAGE,
                f"{self._path} belongs to cluster {meta['cluster']}, not to {wanted}: name another directory",
            )
        if meta.get("copied"):
            raise TreecastError(
                Fault.STORAGE,
                f"{self._path} was copied to {meta['copied']}, where its cluster goes on: give --store",
            )
        if not meta:
            meta = {"format": str(FORMAT), "cluster": wanted or new_id(), "revision": "0"}
        whole = lasting or meta.get("closed") == "1" or meta.get("boot") == _boot()
        meta |= self._begun(meta, new_id, whole=whole)
        meta |= {"closed": "0", "boot": _boot()}
        self._transact(lambda: self._put_meta(meta))

    def _begun(self, meta: dict[str, str], new_id: Callable[[], str], *, whole: bool) -> dict[str, str]:
        """Returns what the beginning of another leadership changes. `whole`: no revision can be missing."""
        history, revision = meta.get("history", ""), int(meta["revision"])
        self.epoch = epoch = max(int(meta.get("epoch", "0")) + 1, epoch_by_clock(self._clock()))
        lineage = read_lineage(meta.get("lineage", ""))
        if history and whole:
            lineage = lineage.led(epoch, revision)
        else:
            lineage = lineage.turned(history, revision, epoch, revision)
            history = new_id()
        return {"history": history, "epoch": str(epoch), "lineage": lineage.text()}

    def load(self) -> Loaded:
        try:
            meta = self._meta()
            entries = self._database.execute("SELECT value FROM entries ORDER BY kind, key").fetchall()
            rows = self._database.execute("SELECT revision, value FROM changes ORDER BY revision, position")
            log: dict[int, list[bytes]] = {}
            for revision, value in rows:
                log.setdefault(revision, []).append(bytes(value))
            last = self._database.execute("SELECT MAX(key) FROM items WHERE home = ?", (EVENTS,)).fetchone()
        except sqlite3.Error as error:
            raise self._refused("read", error) from error
        return Loaded(
            meta["cluster"],
            meta["history"],
            int(meta["revision"]),
            tuple(bytes(value) for (value,) in entries),
            tuple((revision, tuple(changes)) for revision, changes in log.items()),
            event_number(last[0] or b""),
            read_lineage(meta.get("lineage", "")),
        )

    def may_follow(self, epoch: int) -> bool:
        return True

    def turn(self, epoch: int, history: str, revision: int, lineage: Lineage) -> None:
        meta = {
            "epoch": str(epoch),
            "history": history,
            "revision": str(revision),
            "lineage": lineage.text(),
        }
        self._transact(lambda: self._put_meta(meta))
        self.epoch = epoch

    def commit(self, commits: Sequence[Commit], trim: int) -> None:
        def write() -> None:
            for commit in commits:
                self._write_changes(commit)
                self._write_items(commit.items)
            if commits:
                self._put_meta({"revision": str(commits[-1].revision)})
            self._database.execute("DELETE FROM changes WHERE revision < ?", (trim,))

        self._transact(write)

    def confirm(self) -> None:
        """Does nothing: nobody else can open the file."""

    def force(self) -> None:
        """With fsync per interval: forces the write-ahead log, as `storage.tables` does."""
        if self._forces and self._unforced:
            self._unforced = False
            try:
                if self._torn:
                    self._empty_log()
                Disk().sync_path(f"{self._path}-wal")
                Disk().sync_directory(str(self._path.parent))
            except (OSError, sqlite3.Error) as error:
                self._unforced = self._torn = True
                detail = f"cannot force {self._path} to the disk: {error}"
                raise TreecastError(Fault.STORAGE, detail) from error

    def items(self, home: str, after: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        found: list[tuple[bytes, bytes]] = []
        size = 0
        try:
            rows = self._database.execute(
                "SELECT key, value FROM items WHERE home = ? AND key > ? ORDER BY key", (home, after)
            )
            for key, value in rows:
                size += len(key) + len(value)
                if found and size > limit:
                    return found, True
                found.append((bytes(key), bytes(value)))
        except sqlite3.Error as error:
            raise self._refused("read", error) from error
        return found, False

    def all_items(self, size: int) -> Iterator[list[ItemWrite]]:
        """Yields all items of all homes, in batches of about `size` bytes."""
        batch: list[ItemWrite] = []
        held = 0
        try:
            for home, key, value in self._database.execute("SELECT home, key, value FROM items"):
                batch.append(ItemWrite(home, bytes(key), bytes(value)))
                held += len(key) + len(value)
                if held >= size:
                    yield batch
                    batch, held = [], 0
        except sqlite3.Error as error:
            raise self._refused("read", error) from error
        yield batch

    def retire(self, successor: str) -> None:
        """Notes that another store continues this one, which is never opened again."""
        self._transact(lambda: self._put_meta({"copied": successor}))

    def close(self) -> None:
        """Closes the store and marks it as completely on disk."""
        try:
            self._database.execute("PRAGMA synchronous = FULL")
            self._transact(lambda: self._put_meta({"closed": "1"}))
        except (sqlite3.Error, TreecastError) as error:
            _log.warning("store was not closed properly", path=self._path, error=error)
        self._database.close()

    # --- inside a transaction

    def _write_changes(self, commit: Commit) -> None:
        for position, change in enumerate(commit.changes):
            key = (change.kind, change.key)
            if change.removed:
                self._database.execute("DELETE FROM entries WHERE kind = ? AND key = ?", key)
            else:
                self._database.execute("REPLACE INTO entries VALUES (?, ?, ?)", (*key, change.message))
            row = (commit.revision, position, change.message)
            self._database.execute("INSERT INTO changes VALUES (?, ?, ?)", row)

    def _write_items(self, items: Iterable[ItemWrite]) -> None:
        for item in items:
            if item.key is None:
                self._database.execute("DELETE FROM items WHERE home = ?", (item.home,))
            elif item.value is None:
                where = (item.home, item.key)
                self._database.execute("DELETE FROM items WHERE home = ? AND key = ?", where)
            else:
                row = (item.home, item.key, item.value)
                self._database.execute("REPLACE INTO items VALUES (?, ?, ?)", row)

    def _meta(self) -> dict[str, str]:
        return dict(self._database.execute("SELECT name, value FROM meta"))

    def _put_meta(self, meta: dict[str, str]) -> None:
        self._database.executemany("REPLACE INTO meta VALUES (?, ?)", meta.items())

    def _transact(self, write: Callable[[], None]) -> None:
        try:
            if self._torn and self._waits:
                self._empty_log()
            self._database.execute("BEGIN IMMEDIATE")
            write()
            self._database.execute("COMMIT")
            self._unforced = True
        except sqlite3.Error as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise self._refused("write", error) from error

    def _refused(self, what: str, error: sqlite3.Error) -> TreecastError:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            detail = f"{self._path} is in use: another coordinator runs on it; stop that one first"
        else:
            detail = f"cannot {what} {self._path}: {error}"
        return TreecastError(Fault.STORAGE, detail)


def successor(path: Path) -> str:
    """Returns the store that the one in `path` was copied to; empty if it was not. Raises STORAGE."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=0)) as database:
            found = database.execute("SELECT value FROM meta WHERE name = 'copied'").fetchone()
    except sqlite3.Error as error:
        raise TreecastError(Fault.STORAGE, f"cannot read {path}: {error}") from error
    return str(found[0]) if found else ""


def read_lineage(text: str) -> Lineage:
    """Returns a stored lineage. Raises STORAGE."""
    try:
        return Lineage.of(text)
    except ValueError as error:
        raise TreecastError(Fault.STORAGE, f"the coordinator's store has {error}") from error


def _boot() -> str:
    """Returns the name of the machine's boot; a unique one if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return uuid.uuid4().hex
