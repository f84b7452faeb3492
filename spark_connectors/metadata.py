"""Metadata 12, after its descriptors in Apache Kafka: the leaders and the ids of topics. Pure.

A topic's id distinguishes it from an earlier one of the same name.
"""

from __future__ import annotations

import uuid
from typing import Final

from treecast.middleware.load.frames import ClusterView

from .fields import Fields, answered, compact, framed, uvarint

KEY: Final = 3
VERSION: Final = 12
_NO_ID: Final = bytes(16)


def request(topics: list[str] | None) -> bytes:
    """Returns a request for these topics, without creating any; None: for all."""
    if topics is None:
        body = b"\0"
    else:
        body = uvarint(len(topics) + 1)
        body += b"".join(_NO_ID + compact(topic) + b"\0" for topic in topics)
    return framed(KEY, VERSION, body + b"\0\0\0")  # no topic is made, no operations, no tags


def parse(payload: bytes) -> ClusterView:
    """Parses an answer. Raises LoadError if it is invalid. Topics without an id are not in `ids`."""
    fields = answered(payload)
    brokers = {}
    for _ in range(fields.uvarint() - 1):
        node, host, port = fields.number(">i"), fields.string(), fields.number(">i")
        fields.string()  # rack
        fields.tags()
        brokers[node] = (host, port)
    cluster_id = fields.string()
    fields.skip(4)  # controller
    topics: dict[str, tuple[int, dict[int, int]]] = {}
    ids: dict[str, str] = {}
    for _ in range(fields.uvarint() - 1):
        error, name, topic_id = fields.number(">h"), fields.string(), fields.raw(16)
        fields.skip(1)  # internal
        topics[name] = error, _leaders(fields)
        fields.skip(4)  # operations
        fields.tags()
        if topic_id != _NO_ID:
            ids[name] = str(uuid.UUID(bytes=topic_id))
    return ClusterView(brokers, topics, cluster_id, ids)


def _leaders(fields: Fields) -> dict[int, int]:
    leaders = {}
    for _ in range(fields.uvarint() - 1):
        fields.skip(2)  # error
        number = fields.number(">i")
        leaders[number] = fields.number(">i")
        fields.skip(4)  # leader epoch
        for _ in range(3):  # replicas, those in sync, those that are away
            fields.skip(4 * (fields.uvarint() - 1))
        fields.tags()
    return leaders
