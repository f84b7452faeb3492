"""Transactions that a log holds open and no home knows of.

A kill leaves none: partitions are named on disk before their first record, and markers follow until the
home has written the end. Power loss can, where fsync is not per batch: the tables may have kept the end
of a transaction whose marker the log has lost. Such a transaction would stop read_committed readers for
good. It is aborted: its commit was part of the seconds that this policy does not promise to keep.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from treecast.middleware.broker.partition import LocalPartition
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition

from .state import Transaction

_log = logging.getLogger(__name__)


async def abort_hanging(partitions: Iterable[LocalPartition], known: Iterable[Transaction]) -> int:
    """Writes the abort markers that are missing; how many."""
    held: dict[TopicPartition, set[int]] = {}
    for transaction in known:
        for name in transaction.partitions:
            held.setdefault(name, set()).add(transaction.producer_id)
    count = 0
    for partition in partitions:
        if not partition.log.has_open_transactions:
            continue  # its log may rest
        holders = held.get(partition.name, set())
        for producer_id in partition.log.producers.open_transactions():
            if producer_id not in holders:
                await _abort(partition, producer_id)
                count += 1
    return count


async def _abort(partition: LocalPartition, producer_id: int) -> None:
    producer = partition.log.producers.get(producer_id)
    assert producer is not None
    _log.warning("%s: aborting producer %d's transaction, which no home knows", partition.name, producer_id)
    flushed = partition.append_marker(
        ProducerIdentity(producer_id, producer.epoch),
        committed=False,
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    if flushed is not None:
        await flushed
