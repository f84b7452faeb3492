"""Rows about homes in a joined host's durable tables, beside the rows that the homes write.

| table              | key                        | value                                                |
| ------------------ | -------------------------- | ---------------------------------------------------- |
| `homes`            | home                       | decimal: the epoch of its rows here                  |
| `homes-alone`      | home NUL key of item (hex) | msgpack [epoch, value or nil]                        |
| `homes-not-merged` | home NUL epoch             | msgpack `NotMerged`                                  |
| `homes-history`    | `history`                  | the coordinator's history behind these rows          |

A home's key is its kind (decimal), `:` and its id. `homes-alone` holds items that were accepted without the
coordinator's store and have not reached it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.groups.items import item_of as group_item
from treecast.middleware.broker.homes import HomeName, HomeWrite
from treecast.middleware.broker.transactions.records import item_of as transaction_item
from treecast.middleware.storage.tables import Change, Tables

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


class Stored(msgspec.Struct):
    """The rows about homes at the start."""

    epochs: dict[HomeName, int]
    history: str
    alone: dict[HomeName, dict[bytes, bytes | None]]


def load(tables: Tables) -> Stored:
    """Loads the rows. Items accepted alone count only in the home's present epoch."""
    epochs = {_name(key): int(value) for key, value in tables.load(HOMES).items()}
    alone: dict[HomeName, dict[bytes, bytes | None]] = {}
    for key, row in tables.load(ALONE).items():
        home, _, item = key.rpartition(_NUL)
        name = _name(home)
        epoch, value = _decode_alone(row)
        if epochs.get(name) == epoch:
            alone.setdefault(name, {})[bytes.fromhex(item)] = value
    history = tables.load(HISTORY).get("history", b"").decode()
    return Stored(epochs, history, alone)


def reports(tables: Tables) -> list[NotMerged]:
    return [_decode_report(row) for row in tables.load(NOT_MERGED).values()]


def items_of(write: HomeWrite) -> dict[bytes, bytes | None]:
    """Returns a home's changes as items for the coordinator's store."""
    item_of = group_item if write.name.kind is HomeKind.GROUP else transaction_item
    return dict(item_of(change) for change in write.changes)


def epoch_row(name: HomeName, epoch: int | None) -> Change:
    return Change(HOMES, _key(name), None if epoch is None else str(epoch).encode())


def history_row(history: str) -> Change:
    return Change(HISTORY, "history", history.encode())


def alone_rows(name: HomeName, epoch: int, items: Items) -> list[Change]:
    return [Change(ALONE, _alone_key(name, key), _encode((epoch, value))) for key, value in items.items()]


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


_encode = msgspec.msgpack.Encoder().encode
_decode_alone = msgspec.msgpack.Decoder(tuple[int, bytes | None]).decode
_decode_report = msgspec.msgpack.Decoder(NotMerged).decode
