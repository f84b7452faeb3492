"""How transactions lie in the durable tables: table `transactions`, transactional id -> JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.tables import Change

from .state import State, Transaction

TRANSACTIONS = "transactions"


def change(transaction: Transaction) -> Change:
    """Keeps the transaction; one that is dead is removed."""
    if transaction.state is State.DEAD:
        return Change(TRANSACTIONS, transaction.transactional_id, None)
    return Change(TRANSACTIONS, transaction.transactional_id, encode(transaction))


def encode(transaction: Transaction) -> bytes:
    partitions: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        partitions.setdefault(partition.topic, []).append(partition.partition)
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
    )


# What a transactional id's home keeps in the coordinator's store is one item, the value of its row.
_ITEM = b"t"


def item_of(change: Change) -> tuple[bytes, bytes | None]:
    return _ITEM, change.value


def items_of(transaction: Transaction) -> dict[bytes, bytes]:
    return {_ITEM: encode(transaction)}


def rows_of(transactional_id: str, items: Mapping[bytes, bytes]) -> list[Change]:
    """The rows of a transactional id that a host takes over. ValueError where an item makes no sense."""
    if items.keys() - {_ITEM}:
        raise ValueError(f"an item {next(iter(items.keys() - {_ITEM}))!r} of a transactional id")
    try:
        return [change(decode(transactional_id, value)) for value in items.values()]
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"a transaction without {error}") from error
