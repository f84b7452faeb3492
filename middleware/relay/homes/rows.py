"""Rows about homes in a joined host's durable tables, beside the rows that the homes write.

| table              | key                        | value                                                |
| ------------------ | -------------------------- | ---------------------------------------------------- |
| `homes`            | home                       | `HomeRow`: epoch and state of its rows here          |
| `homes-alone`      | home NUL key of item (hex) | msgpack [epoch, value or nil, count]                 |
| `homes-not-merged` | home NUL epoch             | msgpack `NotMerged`                                  |
| `homes-history`    | `history`                  | the coordinator's history behind these rows          |

A home's key is its kind (decimal), `:` and its id. `homes-alone` holds items that were accepted without the
coordinator's store and have not reached it yet.

Each write of a home has a count, which also goes to the coordinator's store (`ports.Version`). So rows that
are older than the store are recognised, as after a power failure, or on a directory that was restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.groups.items import item_of as group_item
from treecast.middleware.broker.homes import HomeName, HomeWrite
from treecast.middleware.broker.transactions.records import item_of as transaction_item
from treecast.middleware.storage.tables import Change, Tables

from .ports import Alone, StoredHome, Version

HOMES, ALONE, NOT_MERGED = "homes", "homes-alone", "homes-not-merged"
HISTORY = "homes-history"
_NUL = "\0"

Items = Mapping[bytes, bytes | None]


class NotMerged(msgspec.Struct, array_like=True, frozen=True):
    """Items that a cut-off home accepted alone and that were not merged into the cluster. Unix time."""

    kind: int
    id: str
    epoch: int
    at: float
    items: dict[bytes, bytes | None]


class HomeRow(msgspec.Struct, frozen=True):
    """The state of a home's rows on this host: `count` writes, the last ones in `epoch`.

    `base`: the count at a start without the coordinator, until the rows have been compared with its store.
    What was written since then may rest on old rows. `doubted`: the rows are known to be old, and count for
    nothing until the coordinator's items replace them.
    """

    epoch: int
    count: int = 0
    base: int | None = None
    doubted: bool = False

    def is_behind(self, stored: Version) -> bool:
        """Returns whether the coordinator's store has later writes of the same epoch."""
        return self.doubted or stored.count > (self.count if self.base is None else self.base)

    def is_ahead(self, stored: Version) -> bool:
        """Returns whether the rows are all that the store has and later writes, which it never got."""
        moved = any(epoch > self.epoch for epoch, _ in stored.takeovers)
        return self.base is None and not moved and self.count > stored.count

    def is_stored(self, item: Alone, key: bytes, stored: StoredHome) -> bool:
        """Returns whether the store has an item of these rows, or a later one in its place."""
        if stored.items.get(key) == item.value:
            return True
        unknown = item.count < 0 or (self.base is not None and item.count > self.base)
        return not unknown and stored.version.covers(self.epoch, item.count)


class Stored(msgspec.Struct):
    """The rows about homes that are on disk and not in use."""

    rows: dict[HomeName, HomeRow]
    history: str
    alone: dict[HomeName, dict[bytes, Alone]]


def load(tables: Tables) -> Stored:
    """Loads the rows. Items accepted alone count only in the home's present epoch."""
    found = {_name(key): _decode_row(value) for key, value in tables.load(HOMES).items()}
    alone: dict[HomeName, dict[bytes, Alone]] = {}
    for key, value in tables.load(ALONE).items():
        home, _, item = key.rpartition(_NUL)
        name, row = _name(home), _decode_alone(value)
        if name in found and found[name].epoch == row.epoch:
            alone.setdefault(name, {})[bytes.fromhex(item)] = Alone(row.value, row.count)
    history = tables.load(HISTORY).get("history", b"").decode()
    return Stored(found, history, alone)


def reports(tables: Tables) -> list[NotMerged]:
    return [_decode_report(row) for row in tables.load(NOT_MERGED).values()]


def items_of(write: HomeWrite) -> dict[bytes, bytes | None]:
    """Returns a home's changes as items for the coordinator's store."""
    item_of = group_item if write.name.kind is HomeKind.GROUP else transaction_item
    return dict(item_of(change) for change in write.changes)


def home_row(name: HomeName, row: HomeRow | None) -> Change:
    return Change(HOMES, _key(name), None if row is None else _encode_row(row))


def history_row(history: str) -> Change:
    return Change(HISTORY, "history", history.encode())


def alone_rows(name: HomeName, epoch: int, items: Items, count: int) -> list[Change]:
    return [
        Change(ALONE, _alone_key(name, key), _encode(_AloneRow(epoch, value, count)))
        for key, value in items.items()
    ]


def no_alone_rows(name: HomeName, keys: Iterable[bytes]) -> list[Change]:
    return [Change(ALONE, _alone_key(name, key), None) for key in keys]


def report_row(report: NotMerged) -> Change:
    key = f"{_key(HomeName(HomeKind(report.kind), report.id))}{_NUL}{report.epoch}"
    return Change(NOT_MERGED, key, _encode(report))


def _key(name: HomeName) -> str:
    return f"{name.kind.value}:{name.id}"


def _name(key: str) -> HomeName:
    kind, _, id = key.partition(":")
    return HomeName(HomeKind(int(kind)), id)


def _alone_key(name: HomeName, key: bytes) -> str:
    return f"{_key(name)}{_NUL}{key.hex()}"


class _AloneRow(msgspec.Struct, array_like=True, frozen=True):
    epoch: int
    value: bytes | None
    count: int = -1  # rows of an earlier version have none


def _encode_row(row: HomeRow) -> bytes:
    base = "-" if row.base is None else str(row.base)
    return f"{row.epoch} {row.count} {base}{' doubted' if row.doubted else ''}".encode()


def _decode_row(value: bytes) -> HomeRow:
    """Rows of an earlier version have the epoch alone."""
    epoch, *rest = value.decode().split()
    count, base = int(rest[0]) if rest else 0, rest[1] if len(rest) > 1 else "-"
    return HomeRow(int(epoch), count, None if base == "-" else int(base), "doubted" in rest)


_encode = msgspec.msgpack.Encoder().encode
_decode_alone = msgspec.msgpack.Decoder(_AloneRow).decode
_decode_report = msgspec.msgpack.Decoder(NotMerged).decode
