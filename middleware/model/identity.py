"""Identities of hosts, topics and producers."""

from __future__ import annotations

import uuid

from msgspec import Struct

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1


class TopicPartition(Struct, frozen=True, order=True):
    """A partition by its topic's Kafka spelling and its number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerIdentity(Struct, frozen=True):
    """What an idempotent or transactional producer is known by (KIP-98)."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NO_PRODUCER = ProducerIdentity()


class Host(Struct, frozen=True):
    """A host of the cluster. `host_id` is what Kafka clients see as the broker's node id."""

    host_id: int
    name: str


TopicId = uuid.UUID
