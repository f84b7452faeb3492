"""Identities of hosts, topics and producers."""

from __future__ import annotations

import base64
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
    """The identity of an idempotent or transactional producer (KIP-98)."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH


NO_PRODUCER = ProducerIdentity()


class Host(Struct, frozen=True):
    """A host of the cluster. Kafka clients see `host_id` as the broker's node id."""

    host_id: int
    name: str


TopicId = uuid.UUID


def new_cluster_id(random_bits: int) -> str:
    """Returns Kafka's spelling of a random UUID: 22 characters of URL-safe base64, the first one never `-`.

    Kafka avoids a leading `-` too, because its tools would take such an id for an option.
    """
    raw = uuid.UUID(int=random_bits & (2**127 - 1), version=4).bytes
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
