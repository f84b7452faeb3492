"""The view, stored in the broker's tables: a host starts from it while the coordinator is away.

Table `view`: `<kind>:<key>` -> an `EntryChange` message; `position` -> {"history": text, "revision": n,
"epoch": n}. Entries and position of an update are written together. The coordinator's counters are stored as
well: a coordinator's lost store can be restored from a host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from treecast.middleware.api.coordinator_calls import CoordinatorCalls
from treecast.middleware.api.entries import Position, Update, decode_change, encode_change
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Change as Row
from treecast.middleware.storage.tables import Tables

VIEW = "view"
_POSITION = "position"

_log = Log(__name__)


class ViewStore:
    """Writes updates as they arrive and reads them all at the start."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._keys: set[str] = set()
        self._unwritten: dict[str, bytes | None] = {}  # rows of failed commits, until one succeeds

    def load(self) -> Update | None:
        """Returns everything as a snapshot, or None if nothing was ever stored."""
        rows = self._tables.load(VIEW)
        position = rows.pop(_POSITION, None)
        self._keys = set(rows)
        if position is None:
            return None
        return Update(True, _position(position), tuple(map(decode_change, rows.values())))

    def position(self) -> Position:
        """Returns how far the stored view is."""
        position = self._tables.get(VIEW, _POSITION)
        return _position(position) if position is not None else Position()

    def entries(self) -> Iterator[bytes]:
        """Returns all stored entries as `EntryChange` messages, in the order of keys."""
        rows = self._tables.load(VIEW)
        rows.pop(_POSITION, None)
        return iter([value for _, value in sorted(rows.items())])

    async def save(self, update: Update) -> None:
        """Stores an update. Rows that fail to be written are written with the next update."""
        rows: dict[str, bytes | None] = dict.fromkeys(self._keys) if update.snapshot else {}
        for change in update.changes:
            gone = change.entry is None
            rows[f"{change.kind}:{change.key}"] = None if gone else encode_change(change)
        self._unwritten |= rows
        self._note(rows)
        position = update.position
        at = json.dumps({"history": position.history, "revision": position.revision, "epoch": position.epoch})
        try:
            await self._tables.commit(
                [
                    *(Row(VIEW, key, value) for key, value in self._unwritten.items()),
                    Row(VIEW, _POSITION, at.encode()),
                ]
            )
        except TreecastError as error:
            _log.error("view cannot be written and is written with its next change", error=error)
        else:
            self._unwritten.clear()

    def _note(self, rows: Mapping[str, bytes | None]) -> None:
        for key, value in rows.items():
            if value is None:
                self._keys.discard(key)
            else:
                self._keys.add(key)


def _position(row: bytes) -> Position:
    known = json.loads(row)
    return Position(known["history"], known["revision"], known.get("epoch", 0))


def stored_position(path: Path) -> Position:
    """Returns how far the view is in the tables at `path`, before they are in use; the empty one for none."""
    if not path.exists():
        return Position()
    tables = Tables(path, FsyncPolicy.NEVER)
    try:
        return ViewStore(tables).position()
    finally:
        tables.close()


async def hand_in_stored(path: Path, name: str, client: CoordinatorCalls) -> None:
    """Hands in the stored view of host `name` to a coordinator whose store is an older state. The tables are
    not in use yet.
    """
    tables = Tables(path, FsyncPolicy.NEVER)
    try:
        known = ViewStore(tables).load()
    finally:
        tables.close()
    if known is not None:
        _log.error("coordinator's store is an older state; this host hands in its view", host=name)
        await client.hand_in(name, known.position, known.changes)
