"""ListOffsets 6 for many partitions at once, after its descriptors in Apache Kafka. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from ..fields import Fields, answered, compact, framed, uvarint
from .offsets import Partition

_LIST_OFFSETS, _VERSION = 2, 6
_NO_EPOCH = -1


class Found(NamedTuple):
    """The answer for a partition; `offset` is -1 if nothing is at or after the time."""

    error: int
    offset: int


def offsets_request(times: Mapping[Partition, int], *, committed: bool) -> bytes:
    """Asks for the first offset at or after a time (ms), or EARLIEST or LATEST; `committed`: the latest that
    readers of committed records may see."""
    topics: dict[str, list[tuple[int, int]]] = {}
    for partition, time in times.items():
        topics.setdefault(partition.topic, []).append((partition.number, time))
    body = struct.pack(">ib", -1, int(committed)) + uvarint(len(topics) + 1)
    for topic, rows in topics.items():
        body += compact(topic) + uvarint(len(rows) + 1)
        body += b"".join(struct.pack(">iiq", number, _NO_EPOCH, time) + b"\0" for number, time in rows)
        body += b"\0"
    return framed(_LIST_OFFSETS, _VERSION, body + b"\0")


def parse_offsets(payload: bytes) -> dict[Partition, Found]:
    """Parses an answer. Raises LoadError if it is invalid."""
    fields: Fields = answered(payload)
    found: dict[Partition, Found] = {}
    for _ in range(fields.uvarint() - 1):
        topic = fields.string()
        for _ in range(fields.uvarint() - 1):
            partition = Partition(topic, fields.number(">i"))
            error = fields.number(">h")
            fields.skip(8)  # the time of the found record
            found[partition] = Found(error, fields.number(">q"))
            fields.skip(4)
            fields.tags()
        fields.tags()
    return found
