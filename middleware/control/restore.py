"""A coordinator's store made anew, from what a host was told of the lost one.

A host keeps all that is watched, not what homes wrote. What it was told last may be a little older than what
the lost store had, so numbers that only rise go on well above.
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

# How much of a number may have been given out, unheard of by the host that tells.
_AHEAD: Final = {
    Counter.HOST_ID: 0,  # a host that joined last joins again
    Counter.PRODUCER_ID: 1_000_000,
    Counter.STATE_ID: 0,
    Counter.HOME_EPOCH: 1_000,
}


def restored(changes: Iterable[bytes]) -> list[Change]:
    """Returns the entries of the new store. All hosts are away in it, until they attach. Raises STORAGE for
    nonsense.
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
    """No id that a host has may be given to another."""
    hosts = [change.entry for change in changes if isinstance(change.entry, HostEntry)]
    highest = max((host.host_id for host in hosts), default=0)
    for number, change in enumerate(changes):
        if isinstance(change.entry, CounterEntry) and change.entry.name is Counter.HOST_ID:
            changes[number] = put(replace(change.entry, value=max(change.entry.value, highest)))
            return
    changes.append(put(CounterEntry(Counter.HOST_ID, highest)))


def write_store(path: Path, cluster_id: str, changes: list[Change]) -> None:
    """Makes the store `path`, which must not be there. Raises STORAGE."""
    if path.exists():
        raise TreecastError(Fault.STORAGE, f"{path} is there: a store is made where there is none")
    store = SqliteStore(path, lambda: uuid.uuid4().hex, cluster_id=cluster_id)
    try:
        stored = tuple(
            StoredChange(change.kind, change.key, encode_change(change), removed=False) for change in changes
        )
        store.commit([Commit(1, stored)], trim=1)
    finally:
        store.close()
