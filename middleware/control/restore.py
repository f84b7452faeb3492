"""Restores a coordinator's store from the view of a host.

A host keeps everything that is watched, but not the items of homes. Its view may be a little older than the
lost store, so numbers that only increase continue well above.
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
    decode_change,
    encode_change,
    put,
)
from treecast.middleware.model.errors import Fault, TreecastError

from .store import Commit, SqliteStore, StoredChange

# How many of each number may have been given out without the host's knowledge.
_AHEAD: Final = {
    Counter.HOST_ID: 0,  # a host that joined last joins again
    Counter.PRODUCER_ID: 1_000_000,
    Counter.STATE_ID: 0,
    Counter.HOME_EPOCH: 1_000,
}


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
        store.commit([Commit(1, stored)], trim=1)
    finally:
        store.close()
