"""Restores a coordinator's store from the view of a host, and copies a store into PostgreSQL.

A host keeps everything that is watched, but not the items of homes, nor the record of where logs end. So
each end is unknown until its leader reports it. A host's view may be a little older than the lost store, so
numbers that only increase continue well above.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from treecast.middleware.api.entries import (
    Change,
    Counter,
    CounterEntry,
    HostEntry,
    Presence,
    TopicEntry,
    decode_change,
    encode_change,
    put,
)
from treecast.middleware.model.errors import Fault, TreecastError

from .leads import unknown_ends
from .postgres import PostgresStore
from .store import Commit, SqliteStore, StoredChange

# How many of each number may have been given out without the host's knowledge.
_AHEAD: Final = {
    Counter.HOST_ID: 0,  # a host that joined last joins again
    Counter.PRODUCER_ID: 1_000_000,
    Counter.STATE_ID: 0,
    Counter.HOME_EPOCH: 1_000,
}

LOCK_SECONDS: Final = 5.0  # that a coordinator on the target has to end
ITEM_BYTES: Final = 4 << 20  # of items that are copied together


def restored(changes: Iterable[bytes]) -> list[Change]:
    """Returns the entries of the new store, with all hosts away until they attach. Raises STORAGE for invalid
    bytes.
    """
    found: list[Change] = []
    for change in map(decode_change, changes):
        match change.entry:
            case HostEntry() as host if host.presence is Presence.ATTACHED:
                found.append(put(replace(host, presence=Presence.AWAY)))
            case CounterEntry() as counter:
                found.append(put(replace(counter, value=counter.value + _AHEAD[counter.name])))
            case None:
                continue
            case _:
                found.append(change)
    _check_host_ids(found)
    return found


def _check_host_ids(changes: list[Change]) -> None:
    """Raises the host id counter above every id in use."""
    hosts = [change.entry for change in changes if isinstance(change.entry, HostEntry)]
    highest = max((host.host_id for host in hosts), default=0)
    for number, change in enumerate(changes):
        if isinstance(change.entry, CounterEntry) and change.entry.name is Counter.HOST_ID:
            changes[number] = put(replace(change.entry, value=max(change.entry.value, highest)))
            return
    changes.append(put(CounterEntry(Counter.HOST_ID, highest)))


def write_store(path: Path, cluster_id: str, changes: list[Change]) -> None:
    """Creates the store `path`, which must not exist. Raises STORAGE."""
    if path.exists():
        raise TreecastError(Fault.STORAGE, f"{path} exists already: the new store needs a free path")
    store = SqliteStore(path, lambda: uuid.uuid4().hex, cluster_id=cluster_id)
    try:
        stored = tuple(
            StoredChange(change.kind, change.key, encode_change(change), removed=False) for change in changes
        )
        topics = [change.entry for change in changes if isinstance(change.entry, TopicEntry)]
        store.commit([Commit(1, stored, tuple(unknown_ends(topics)))], trim=1)
    finally:
        store.close()


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
