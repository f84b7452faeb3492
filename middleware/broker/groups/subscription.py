"""The topics that a member of protocol type "consumer" subscribes to.

This module reads the fields common to all versions of Kafka's ConsumerProtocolSubscription:

    version  int16
    topics   int32 count, then per topic an int16 length and that many bytes of UTF-8
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Returns the topics; None if `metadata` is not a subscription."""
    try:
        _version, count = struct.unpack_from(">hi", metadata)
        if not 0 <= count <= len(metadata):
            return None
        position, topics = 6, []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            name = metadata[position + 2 : position + 2 + length]
            if length < 0 or len(name) != length:
                return None
            topics.append(name.decode())
            position += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def all_subscribed(metadatas: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics of all members; None if one subscription is unreadable."""
    topics: set[str] = set()
    for metadata in metadatas:
        found = subscribed_topics(metadata)
        if found is None:
            return None
        topics |= found
    return frozenset(topics)
