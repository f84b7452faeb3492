"""Turns a cluster of one host back into a host alone: by `--fabric off`, or `--join` on a first daemon.

A daemon that embeds the coordinator and that no other host ever joined holds the whole cluster. Its topics
move from the coordinator's store back into its own tables, its producer ids start above those given out, and
the store is removed. If another host ever attached, the change is refused.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from treecast.middleware.api.entries import Counter, CounterEntry, Entry, HostEntry, TopicEntry, decode_change
from treecast.middleware.broker import DataDirectory
from treecast.middleware.broker.topics import TOPICS
from treecast.middleware.broker.transactions.producer_ids import PRODUCER_BLOCKS, PRODUCER_IDS
from treecast.middleware.control.server import new_id
from treecast.middleware.control.store import SqliteStore
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.homes.rows import ALONE, HOMES
from treecast.middleware.relay.view_store import VIEW
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Change, Tables

from .listeners import StartError
from .settings import STORE

# Tables of the coordinator that is given up: its view, its homes, blocks of ids.
_OF_THE_CLUSTER = (VIEW, HOMES, ALONE, PRODUCER_BLOCKS)

_log = Log(__name__)


def become_alone(directory: DataDirectory, fsync: FsyncPolicy) -> None:
    """Turns the directory into a host alone. Raises StartError if other hosts belong to the cluster. It may
    be repeated after a crash.
    """
    store = directory.path / STORE
    entries = _entries(store)
    others = sorted(entry.name for entry in entries if isinstance(entry, HostEntry))
    if len(others) > 1:
        raise StartError(
            f"{directory.path} holds the coordinator of a cluster of {len(others)} hosts"
            f" ({', '.join(others[:5])}): they need it. Start it with --fabric HOST:PORT and without --join"
        )
    tables = Tables(directory.tables, fsync)
    try:
        gone = [Change(table, key, None) for table in _OF_THE_CLUSTER for key in tables.load(table)]
        tables.write([*_rows(entries), *gone])
    finally:
        tables.close()
    directory.leave()
    _remove_store(directory)
    _log.info("host left its cluster", path=directory.path)


def take_alone(data: Path, fsync: FsyncPolicy) -> DataDirectory:
    """Returns the directory of a host that becomes alone now, or whose interrupted change is completed."""
    directory = DataDirectory.open(data, None, new_id())
    try:
        if directory.meta.membership is None:
            _remove_store(directory)
        elif directory.meta.membership.coordinator:
            raise StartError(
                f"{data} belongs to a cluster whose coordinator is at"
                f" {directory.meta.membership.coordinator}: start it with --fabric HOST:PORT"
            )
        else:
            become_alone(directory, fsync)
    except BaseException:
        directory.close(clean=directory.was_clean)
        raise
    return directory


def own_topics(path: Path) -> dict[str, TopicId]:
    """Returns the ids of the host's own topics, by name, from its tables at `path`."""
    tables = Tables(path, FsyncPolicy.NEVER)
    try:
        rows = tables.load(TOPICS)
    finally:
        tables.close()
    return {name: TopicId(hex=json.loads(value)["id"]) for name, value in rows.items()}


def _remove_store(directory: DataDirectory) -> None:
    for path in directory.path.glob(f"{STORE}*"):
        path.unlink(missing_ok=True)


def _entries(store: Path) -> list[Entry]:
    if not store.exists():
        raise StartError(f"{store} is missing: restore it, because it lists the members of the cluster")
    try:
        opened = SqliteStore(store, new_id)
        try:
            found = [decode_change(change).entry for change in opened.load().entries]
        finally:
            opened.close()
    except sqlite3.Error as error:
        raise StartError(f"{store} cannot be read: {error}") from error
    return [entry for entry in found if entry is not None]


def _rows(entries: list[Entry]) -> list[Change]:
    rows = []
    for entry in entries:
        if isinstance(entry, TopicEntry):
            value = {
                "id": entry.topic_id.hex,
                "partitions": len(entry.partitions),
                "config": dict(entry.config),
            }
            rows.append(Change(TOPICS, entry.name, json.dumps(value).encode()))
        elif isinstance(entry, CounterEntry) and entry.name is Counter.PRODUCER_ID:
            rows.append(Change(PRODUCER_IDS, "next", str(entry.value).encode()))
    return rows
