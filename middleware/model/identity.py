"""Identities of hosts, topics and producers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition by its topic's Kafka spelling and its number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What an idempotent or transactional producer is known by (KIP-98)."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NO_PRODUCER = ProducerIdentity()


@dataclass(frozen=True, slots=True)
class Host:
    """A host of the cluster. `host_id` is what Kafka clients see as the broker's node id."""

    host_id: int
    name: str


TopicId = uuid.UUID
