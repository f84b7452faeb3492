"""Repair of hanging transactions: open in a log, but unknown to every home.

A kill leaves none, because partitions are named on disk before their first record and markers follow until
the home has written the end. A power loss can leave one if fsync is not per batch: the tables may have kept
the end of a transaction whose marker the log has lost. Such a transaction would block read_committed readers
forever. It is aborted; its commit belonged to the seconds that this policy does not promise to keep.
"""

from __future__ import annotations

from collections.abc import Iterable

from treecast.middleware.broker.partition import LocalPartition
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.model.logs import Log

from .state import Transaction

_log = Log(__name__)


async def abort_hanging(partitions: Iterable[LocalPartition], known: Iterable[Transaction]) -> int:
    """Writes the missing abort markers. Returns their number."""
    held: dict[TopicPartition, set[int]] = {}
    for transaction in known:
        for name in transaction.partitions:
            held.setdefault(name, set()).add(transaction.producer_id)
    count = 0
    for partition in partitions:
        if not partition.log.has_open_transactions:
            continue  # its log may stay closed
        holders = held.get(partition.name, set())
        for producer_id in partition.log.producers.open_transactions():
            if producer_id not in holders:
                await _abort(partition, producer_id)
                count += 1
    return count


async def _abort(partition: LocalPartition, producer_id: int) -> None:
    producer = partition.log.producers.get(producer_id)
    assert producer is not None
    _log.warning(
        "transaction of an unknown producer is aborted", partition=partition.name, producer=producer_id
    )
    flushed = partition.append_marker(
        ProducerIdentity(producer_id, producer.epoch),
        committed=False,
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    if flushed is not None:
        await flushed
