"""The idempotent producers that a partition knows of, for finding hung transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity

from .cluster import PartitionLeader
from .partition import LogPartition
from .values import ActiveProducer


def active_producers(leader: PartitionLeader) -> Sequence[ActiveProducer]:
    """The producers, ordered by id. Raises NOT_LEADER if another host leads the partition."""
    if not isinstance(leader, LogPartition):
        raise TreecastError(Fault.NOT_LEADER, "another host leads the partition: ask the daemon there")
    return [
        ActiveProducer(
            ProducerIdentity(known.producer_id, known.epoch),
            known.last_sequence,
            known.batches[-1].timestamp if known.batches else -1,
            known.coordinator_epoch,
            known.transaction_start,
        )
        for known in sorted(leader.log.producers, key=lambda producer: producer.producer_id)
    ]
