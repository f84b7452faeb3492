"""What partitions need of their surroundings, as small Protocols, and the numbers of their calls."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from typing import Protocol

from treecast.middleware.api.v1 import peer_partitions_pb2 as pb
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.relay.entries import Leader


class PartitionMethod(enum.IntEnum):
    """Numbers of calls; their messages are those of `peer_partitions.proto`."""

    FOLLOW = 40
    UNFOLLOW = 41
    PRODUCE = 42
    FETCH = 43
    WATCH = 44
    OFFSET = 45
    EPOCH_END = 46
    DELETE = 47
    MARKER = 48
    LOG_START = 49


class Topics(Protocol):
    """The definitions, as far as they are looked at here."""

    def topics(self) -> Mapping[str, Topic]: ...

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        """UNKNOWN_TOPIC_ID where there is none."""


class Leaders(Protocol):
    """Who leads: `view.ClusterView`."""

    def leader(self, topic: str, index: int) -> Leader | None: ...


def topic_of(topics: Topics, ref: pb.PartitionRef) -> Topic:
    """The topic that a peer names. INVALID_REQUEST, UNKNOWN_TOPIC_ID."""
    if len(ref.topic_id) != 16:
        raise TreecastError(Fault.INVALID_REQUEST, f"a topic id has 16 bytes, not {len(ref.topic_id)}")
    return topics.topic_by_id(uuid.UUID(bytes=ref.topic_id))
