"""Rows of transactions in the durable tables: table `transactions`, transactional id -> JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.tables import Change

from .parts import whole_of
from .state import State, Transaction

TRANSACTIONS = "transactions"


def change(transaction: Transaction) -> Change:
    """Returns the change that stores the transaction, or removes a dead one."""
    if transaction.state is State.DEAD:
        return Change(TRANSACTIONS, transaction.transactional_id, None)
    return Change(TRANSACTIONS, transaction.transactional_id, encode(transaction))


def encode(transaction: Transaction) -> bytes:
    partitions: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        partitions.setdefault(partition.topic, []).append(partition.partition)
    in_parts: dict[str, object] = {"batch": transaction.batch, "winners": sorted(transaction.winners)}
    if transaction.content:
        in_parts["content"] = transaction.content
    return json.dumps(
        {
            "producer": [transaction.producer_id, transaction.epoch],
            "last": [transaction.last_producer_id, transaction.last_epoch],
            "timeout_ms": transaction.timeout_ms,
            "state": transaction.state.value,
            "partitions": partitions,
            "groups": sorted(transaction.groups),
            "started": transaction.started,
            "updated": transaction.updated,
            **(in_parts if transaction.batch >= 0 else {}),
        }
    ).encode()


def decode(transactional_id: str, value: bytes) -> Transaction:
    entry = json.loads(value)
    return Transaction(
        transactional_id,
        producer_id=entry["producer"][0],
        epoch=entry["producer"][1],
        timeout_ms=entry["timeout_ms"],
        state=State(entry["state"]),
        partitions=frozenset(
            TopicPartition(topic, index)
            for topic, indexes in entry["partitions"].items()
            for index in indexes
        ),
        groups=frozenset(entry["groups"]),
        started=entry["started"],
        updated=entry["updated"],
        last_producer_id=entry["last"][0],
        last_epoch=entry["last"][1],
        batch=entry.get("batch", -1),
        winners=frozenset(entry.get("winners", ())),
        content=entry.get("content", ""),
    )


# In the coordinator's store, a transactional id has one item with the value of its row, and one more for each
# of its parts: `p` and the rest of the part's id.
_ITEM = b"t"
_PART = b"p"


def item_of(change: Change) -> tuple[bytes, bytes | None]:
    return _item_key(change.key), change.value


def _item_key(transactional_id: str) -> bytes:
    whole = whole_of(transactional_id)
    return _ITEM if whole == transactional_id else _PART + transactional_id[len(whole) :].encode()


def items_of(transactions: Iterable[Transaction]) -> dict[bytes, bytes]:
    """Returns the transactions of one home as items."""
    return {_item_key(transaction.transactional_id): encode(transaction) for transaction in transactions}


def rows_of(whole: str, items: Mapping[bytes, bytes]) -> list[Change]:
    """Returns the rows of a transactional id that a host takes over. Raises ValueError for a bad item."""
    try:
        return [change(decode(_id_of(whole, key), value)) for key, value in items.items()]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"a transaction without {error}") from error


def _id_of(whole: str, key: bytes) -> str:
    if key == _ITEM:
        return whole
    transactional_id = whole + key[len(_PART) :].decode()
    if not key.startswith(_PART) or whole_of(transactional_id) != whole or transactional_id == whole:
        raise ValueError(f"unknown item {key!r} of a transactional id")
    return transactional_id
