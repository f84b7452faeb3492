"""The internal topics that Kafka's clients know: their descriptions, although the topics hold nothing.

Offsets and transactions are kept in tables, not in topics. The Kafka face answers for these names. Groups of
type consumer assign their partitions to members that subscribe to them, as in Kafka.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.model.topics import INTERNAL_TOPICS

from .values import Topic

_PARTITIONS: Final = 50  # Kafka's offsets.topic.num.partitions and transaction.state.log.num.partitions
_IDS: Final = uuid.UUID("5b1f0f6c-35a0-4c0b-9a57-3a1f2a8f7f10")  # namespace of the topics' ids


def _topic(name: str) -> Topic:
    config = TopicConfig.of({"cleanup.policy": "compact", "segment.bytes": "104857600"})
    return Topic(name, uuid.uuid5(_IDS, name), _PARTITIONS, config, internal=True)


INTERNAL: Final[Mapping[str, Topic]] = MappingProxyType({name: _topic(name) for name in INTERNAL_TOPICS})
