"""The idempotent producers that a partition knows of, for finding hung transactions (KIP-664)."""

from __future__ import annotations

from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage.log import PartitionLog

from .values import ActiveProducer


def active_producers(log: PartitionLog) -> tuple[ActiveProducer, ...]:
    """Returns the producers, ordered by id."""
    return tuple(
        ActiveProducer(
            ProducerIdentity(known.producer_id, known.epoch),
            known.last_sequence,
            known.batches[-1].timestamp if known.batches else -1,
            known.coordinator_epoch,
            known.transaction_start,
        )
        for known in sorted(log.producers, key=lambda producer: producer.producer_id)
    )
