"""The coordinator's store in PostgreSQL, which several coordinators share and one of them leads on.

  standing  one row: format, cluster, history, revision; the epoch and address of the coordinator that leads;
            birth, when the store was made, and server, on which it was written last; lineage (`lineage.py`)
  entries   (kind, key) -> the entry, as an `EntryChange` message
  changes   (revision, position) -> an `EntryChange` message; only the last revisions
  items     (home, key) -> opaque bytes of that home

Keys are bytes in UTF-8, because PostgreSQL's text excludes NUL. A coordinator leads while its session holds
the advisory lock, and takes an epoch when it begins to. Each transaction locks the row `standing` and checks
the epoch. So the next coordinator reads what its predecessors wrote last, and a predecessor that goes on
without the lock, as behind a pool of connections, writes nothing more.

An epoch's upper 32 bits are the time of birth, the next 12 the server's timeline, and the lower 20 count. So
a new store, and a server that was promoted, begin above everything before them. After a promotion, or on
another server, the history has another name, because the last revisions may be gone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError

from .lineage import BEGINNING, Lineage
from .postgres_session import Session
from .store import FORMAT, Commit, Loaded, StoredChange, read_lineage
from .values import EVENTS, ItemWrite, event_number

PREFETCH: Final = 50  # rows of items that are read at once
_TIMELINE: Final = 20  # bits of an epoch below the server's timeline
_SCHEMA: Final = """
CREATE SCHEMA treecast;
CREATE TABLE treecast.standing (
    one boolean PRIMARY KEY CHECK (one), format integer NOT NULL, cluster text NOT NULL,
    history text NOT NULL, revision bigint NOT NULL, epoch bigint NOT NULL, leader text NOT NULL,
    birth bigint NOT NULL, server text NOT NULL, lineage text NOT NULL DEFAULT '');
CREATE TABLE treecast.entries
    (kind integer NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (kind, key));
CREATE TABLE treecast.changes
    (revision bigint NOT NULL, position integer NOT NULL, value bytea NOT NULL,
     PRIMARY KEY (revision, position));
CREATE TABLE treecast.items
    (home bytea NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (home, key));
"""
_HAS_LINEAGE: Final = """
SELECT count(*) FROM information_schema.columns
WHERE table_schema = 'treecast' AND table_name = 'standing' AND column_name = 'lineage'
"""
_ADD_LINEAGE: Final = "ALTER TABLE treecast.standing ADD COLUMN lineage text NOT NULL DEFAULT ''"
_SERVER: Final = """
SELECT (SELECT system_identifier FROM pg_control_system())::text AS system,
       ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint AS timeline,
       extract(epoch FROM now())::bigint AS now, current_setting('synchronous_commit') AS synchronous
"""
_PUT_ENTRIES: Final = """
INSERT INTO treecast.entries SELECT * FROM unnest($1::integer[], $2::bytea[], $3::bytea[])
ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value
"""
_REMOVE_ENTRIES: Final = """
DELETE FROM treecast.entries e USING unnest($1::integer[], $2::bytea[]) AS gone (kind, key)
WHERE e.kind = gone.kind AND e.key = gone.key
"""
_PUT_CHANGES: Final = (
    "INSERT INTO treecast.changes SELECT * FROM unnest($1::bigint[], $2::integer[], $3::bytea[])"
)
_LAST_EVENT: Final = "SELECT key FROM treecast.items WHERE home = $1 ORDER BY key DESC LIMIT 1"
_PUT_ITEMS: Final = """
INSERT INTO treecast.items SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[])
ON CONFLICT (home, key) DO UPDATE SET value = excluded.value
"""
_REMOVE_ITEMS: Final = """
DELETE FROM treecast.items i USING unnest($1::bytea[], $2::bytea[]) AS gone (home, key)
WHERE i.home = gone.home AND i.key = gone.key
"""


class Leader(Struct, frozen=True):
    """The coordinator that began to lead last."""

    epoch: int = 0
    address: str = ""


class PostgresStore:
    """A `Store` in a PostgreSQL database, after `connect` and `lead`. Calls block."""

    shared = True

    def __init__(self, url: str, new_id: Callable[[], str], *, cluster_id: str, address: str = "") -> None:
        """`new_id` names histories. `address`: of this coordinator, told by those that wait."""
        self._session = Session(url)
        self._new_id = new_id
        self._cluster_id = cluster_id
        self._address = address
        self.epoch = 0

    @property
    def place(self) -> str:
        """The database's URL without its password."""
        return self._session.place

    # --- leading

    def connect(self) -> Leader:
        """Connects. Returns who leads. Raises STORAGE if an operator has to act."""
        self._session.open()
        return self.leader()

    def leader(self) -> Leader:
        """Returns who began to lead last. Raises STORAGE if the store is another cluster's."""

        async def look(connection: Any) -> Leader:
            if not await _exists(connection):
                return Leader()
            row = await connection.fetchrow("SELECT * FROM treecast.standing")
            self._check(row)
            return Leader(row["epoch"], row["leader"])

        return self._session.run("read", look)

    def lead(self, seconds: float) -> bool:
        """Waits at most `seconds` to lead. Returns whether it does; the store then has its epoch."""
        if not self._session.lock(seconds):
            return False
        self.epoch = self._session.run("lead on", self._begin)
        return True

    async def _begin(self, connection: Any) -> int:
        server = await connection.fetchrow(_SERVER)
        if server["synchronous"] != "remote_apply":  # which is more than `on`; all others are less
            await connection.execute("SET synchronous_commit = on")
        async with connection.transaction():
            if not await _exists(connection):
                await connection.execute(_SCHEMA)
                await connection.execute(
                    "INSERT INTO treecast.standing VALUES (true, $1, $2, $3, 0, 0, '', $4, '', '')",
                    FORMAT,
                    self._cluster_id,
                    self._new_id(),
                    max(server["now"] - BEGINNING, 0),
                )
            if not await connection.fetchval(_HAS_LINEAGE):  # an earlier version made the store
                await connection.execute(_ADD_LINEAGE)
                await connection.reload_schema_state()  # prepared statements know the row without it
            row = await connection.fetchrow("SELECT * FROM treecast.standing FOR UPDATE")
            self._check(row)
            name = f"{server['system']}:{server['timeline']}"
            epoch: int = max(row["epoch"] + 1, first_epoch(row["birth"], server["timeline"]))
            history, lineage, last = row["history"], read_lineage(row["lineage"]), row["revision"]
            if row["server"] in ("", name):
                lineage = lineage.led(epoch, last)
            else:
                lineage, history = lineage.turned(history, last, epoch, last), self._new_id()
            await connection.execute(
                "UPDATE treecast.standing"
                " SET epoch = $1, leader = $2, server = $3, history = $4, lineage = $5",
                epoch,
                self._address,
                name,
                history,
                lineage.text(),
            )
        return epoch

    def _check(self, row: Any) -> None:
        if row["format"] != FORMAT:
            raise TreecastError(
                Fault.STORAGE,
                f"{self.place} has format {row['format']}; this version of Treecast reads {FORMAT}",
            )
        if row["cluster"] != self._cluster_id:
            raise TreecastError(
                Fault.STORAGE,
                f"{self.place} belongs to cluster {row['cluster']}, not to {self._cluster_id}: give"
                " --join-token of its cluster, or name another database",
            )

    @asynccontextmanager
    async def _leading(self, connection: Any) -> AsyncIterator[None]:
        """A transaction of the leader. Its lock lets no other begin to lead meanwhile."""
        async with connection.transaction():
            epoch = await connection.fetchval("SELECT epoch FROM treecast.standing FOR UPDATE")
            if epoch != self.epoch:
                raise TreecastError(
                    Fault.COORDINATOR_UNAVAILABLE,
                    f"another coordinator leads: the epoch is {epoch}, and this one's is {self.epoch}",
                )
            yield

    # --- the store

    def load(self) -> Loaded:
        async def read(connection: Any) -> Loaded:
            async with self._leading(connection):
                row = await connection.fetchrow("SELECT * FROM treecast.standing")
                entries = await connection.fetch("SELECT value FROM treecast.entries ORDER BY kind, key")
                changes = await connection.fetch(
                    "SELECT revision, value FROM treecast.changes ORDER BY revision, position"
                )
                last = await connection.fetchval(_LAST_EVENT, EVENTS.encode())
            log: dict[int, list[bytes]] = {}
            for revision, value in changes:
                log.setdefault(revision, []).append(value)
            return Loaded(
                row["cluster"],
                row["history"],
                row["revision"],
                tuple(value for (value,) in entries),
                tuple((revision, tuple(values)) for revision, values in log.items()),
                event_number(last or b""),
                read_lineage(row["lineage"]),
            )

        return self._session.run("read", read)

    def may_follow(self, epoch: int) -> bool:
        """A promoted server's epochs are of a later timeline: then this server may be its old primary."""
        return epoch >> _TIMELINE == self.epoch >> _TIMELINE

    def turn(self, epoch: int, history: str, revision: int, lineage: Lineage) -> None:
        async def write(connection: Any) -> None:
            async with self._leading(connection):
                await connection.execute(
                    "UPDATE treecast.standing SET epoch = $1, history = $2, revision = $3, lineage = $4",
                    epoch,
                    history,
                    revision,
                    lineage.text(),
                )

        self._session.run("write", write)
        self.epoch = epoch

    def commit(self, commits: Sequence[Commit], trim: int) -> None:
        async def write(connection: Any) -> None:
            async with self._leading(connection):
                await _write_entries(connection, [change for commit in commits for change in commit.changes])
                log = [
                    (commit.revision, position, change.message)
                    for commit in commits
                    for position, change in enumerate(commit.changes)
                ]
                await _execute(connection, _PUT_CHANGES, log)
                await _write_items(connection, [item for commit in commits for item in commit.items])
                if commits:
                    await connection.execute(
                        "UPDATE treecast.standing SET revision = $1", commits[-1].revision
                    )
                await connection.execute("DELETE FROM treecast.changes WHERE revision < $1", trim)

        self._session.run("write", write)

    def confirm(self) -> None:
        """Locking the row is written to the server's log: the answer waits for disk and standby as a
        commit does.
        """

        async def look(connection: Any) -> None:
            async with self._leading(connection):
                pass

        self._session.run("confirm the lead on", look)

    def items(self, home: str, after: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        async def read(connection: Any) -> tuple[list[tuple[bytes, bytes]], bool]:
            found: list[tuple[bytes, bytes]] = []
            size = 0
            query = "SELECT key, value FROM treecast.items WHERE home = $1 AND key > $2 ORDER BY key"
            async with self._leading(connection):
                async for key, value in connection.cursor(query, home.encode(), after, prefetch=PREFETCH):
                    size += len(key) + len(value)
                    if found and size > limit:
                        return found, True
                    found.append((key, value))
            return found, False

        return self._session.run("read", read)

    def adopt(
        self, loaded: Loaded, entries: Sequence[StoredChange], items: Iterable[Sequence[ItemWrite]]
    ) -> None:
        """Fills an empty store with the content of another: its entries, and batches of items.

        History and revision continue. Raises STORAGE if anything was stored before.
        """

        async def write(connection: Any) -> None:
            async with self._leading(connection):
                if await connection.fetchval("SELECT revision FROM treecast.standing"):
                    raise TreecastError(Fault.STORAGE, f"{self.place} is not empty: name another database")
                await _write_entries(connection, entries)
                for revision, changes in loaded.log:
                    rows = [(revision, position, value) for position, value in enumerate(changes)]
                    await _execute(connection, _PUT_CHANGES, rows)
                for batch in items:
                    await _write_items(connection, batch)
                await connection.execute(
                    "UPDATE treecast.standing SET history = $1, revision = $2, lineage = $3",
                    loaded.history,
                    loaded.revision,
                    loaded.lineage.led(self.epoch, loaded.revision).text(),
                )

        self._session.run("fill", write)

    def force(self) -> None:
        """Does nothing: a commit returns when it is on the server's disk."""

    def close(self) -> None:
        self._session.close()


def first_epoch(birth: int, timeline: int) -> int:
    """Returns the lowest epoch of a store on a server's timeline; see the module."""
    return (birth & 0x7FFF_FFFF) << 32 | min(timeline, 0xFFF) << _TIMELINE


async def _exists(connection: Any) -> bool:
    return await connection.fetchval("SELECT to_regclass('treecast.standing')") is not None


async def _write_entries(connection: Any, changes: Iterable[StoredChange]) -> None:
    """Writes the entries as they are after all changes."""
    found = {
        (change.kind, change.key.encode()): None if change.removed else change.message for change in changes
    }
    await _execute(connection, _REMOVE_ENTRIES, [key for key, value in found.items() if value is None])
    kept = [(*key, value) for key, value in found.items() if value is not None]
    await _execute(connection, _PUT_ENTRIES, kept)


async def _write_items(connection: Any, items: Iterable[ItemWrite]) -> None:
    """Writes the items as they are after all writes; what a home had before is removed if one of them says
    so.
    """
    cleared: dict[bytes, None] = {}
    found: dict[tuple[bytes, bytes], bytes | None] = {}
    for item in items:
        home = item.home.encode()
        if item.key is None:
            cleared[home] = None
            found = {key: value for key, value in found.items() if key[0] != home}
        else:
            found[home, item.key] = item.value
    if cleared:
        await connection.execute("DELETE FROM treecast.items WHERE home = ANY($1::bytea[])", list(cleared))
    await _execute(connection, _REMOVE_ITEMS, [key for key, value in found.items() if value is None])
    kept = [(*key, value) for key, value in found.items() if value is not None]
    await _execute(connection, _PUT_ITEMS, kept)


async def _execute(connection: Any, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Executes a query that takes one array per column."""
    if rows:
        await connection.execute(query, *(list(column) for column in zip(*rows, strict=True)))
