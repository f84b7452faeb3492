"""Restores a coordinator's store from the view of a host, and copies a store into PostgreSQL.

A host keeps everything that is watched, but not the items of homes, nor the record of where logs end. So
each end is unknown until its leader reports it. An empty store adopts the view as a store does that is an
older state (`adopting.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from treecast.middleware.api.entries import (
    START,
    Change,
    Position,
    TopicEntry,
    decode_change,
    encode_change,
)
from treecast.middleware.model.errors import Fault, TreecastError

from .adopting import Merge
from .cluster_state import ClusterState
from .leads import unknown_ends
from .lineage import Adopted, Past
from .postgres import PostgresStore
from .store import Commit, SqliteStore, StoredChange
from .values import StateSettings

LOCK_SECONDS: Final = 5.0  # that a coordinator on the target has to end
ITEM_BYTES: Final = 4 << 20  # of items that are copied together


def restored(changes: Iterable[bytes]) -> list[Change]:
    """Returns the entries of the new store, with all hosts away until they attach. Raises STORAGE for invalid
    bytes.
    """
    merge = Merge(ClusterState(StateSettings()), frozenset())
    merge.take(map(decode_change, changes))
    return list(merge.changes())


def write_store(path: Path, cluster_id: str, changes: list[Change], view: Position = START) -> None:
    """Creates the store `path`, which must not exist. Raises STORAGE.

    `view`: how far the view is of which it is made. A host with a later view of that history hands it in.
    """
    if path.exists():
        raise TreecastError(Fault.STORAGE, f"{path} exists already: the new store needs a free path")
    store = SqliteStore(path, lambda: uuid.uuid4().hex, cluster_id=cluster_id)
    try:
        stored = tuple(
            StoredChange(change.kind, change.key, encode_change(change), removed=False) for change in changes
        )
        topics = [change.entry for change in changes if isinstance(change.entry, TopicEntry)]
        store.commit([Commit(view.revision + 1, stored, tuple(unknown_ends(topics)))], trim=1)
        if view.history:
            _note_view(store, view)
    finally:
        store.close()


def _note_view(store: SqliteStore, view: Position) -> None:
    """Makes the store know the view as one that it has adopted."""
    loaded, made = store.load(), Adopted(view.revision, view.revision + 1)
    past = Past(view.history, (), view.revision, (made,))
    lineage = replace(loaded.lineage, past=(past,))
    store.turn(store.epoch, loaded.history, loaded.revision, lineage)


def copy_store(path: Path, url: str, *, retire: bool = True) -> tuple[str, int]:
    """Copies the store `path`, which no coordinator may use meanwhile, into an empty database.

    Returns the cluster's id and the number of entries. With `retire` the file is not opened again: two
    coordinators would decide from then on. Raises STORAGE.
    """
    if not path.exists():
        raise TreecastError(Fault.STORAGE, f"{path} does not exist: name the coordinator's data directory")
    source = SqliteStore(path, _new_id)
    target: PostgresStore | None = None
    try:
        loaded = source.load()
        target = PostgresStore(url, _new_id, cluster_id=loaded.cluster_id)
        target.connect()
        if not target.lead(LOCK_SECONDS):
            raise TreecastError(
                Fault.STORAGE, f"{target.place} is in use: a coordinator leads on it; stop that one first"
            )
        changes = [decode_change(entry) for entry in loaded.entries]
        entries = [
            StoredChange(change.kind, change.key, entry, removed=False)
            for change, entry in zip(changes, loaded.entries, strict=True)
        ]
        target.adopt(loaded, entries, source.all_items(ITEM_BYTES))
        if retire:
            source.retire(target.place)
    finally:
        if target is not None:
            target.close()
        source.close()
    return loaded.cluster_id, len(entries)


def _new_id() -> str:
    return uuid.uuid4().hex
