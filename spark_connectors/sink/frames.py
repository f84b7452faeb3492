"""The requests of tasks and the driver, and their answers. Pure.

InitProducerId 3, AddPartitionsToTxn 3, Produce 9 and EndTxn 3, after their descriptors in Apache Kafka.
EndTxn for a batch that was staged in parts carries tagged fields of ours (docs/faces/kafka.md):

    29795  int64: the batch
    29796  compact array of (compact string: transactional id, int64: producer id, int16: epoch): valid parts
    29797  compact string: the content of the batch; a repeat must have the same (`naming.content`)

and its answer, if it is refused, one:

    29798  compact string: the reason
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from treecast.middleware.model.identity import ProducerIdentity

from ..fields import Fields, answered, compact, framed, uvarint
from ..source.offsets import Partition

_PRODUCE, _INIT, _ADD, _END = 0, 22, 24, 26
_BATCH_TAG, _PARTS_TAG, _CONTENT_TAG, _WHY_TAG = 29795, 29796, 29797, 29798
_TIMEOUT_MS = 30_000


class Staged(NamedTuple):
    """A part of a batch: a task's report to the driver about what it has written."""

    transactional_id: str
    producer_id: int
    epoch: int


def init_request(transactional_id: str | None, timeout_ms: int) -> bytes:
    body = compact(transactional_id) + struct.pack(">iqh", timeout_ms, -1, -1) + b"\0"
    return framed(_INIT, 3, body)


def parse_init(payload: bytes) -> tuple[int, ProducerIdentity]:
    """Parses (error, identity). `payload` is an answer without its length, here and below."""
    fields = answered(payload)
    error = fields.number(">h")
    return error, ProducerIdentity(fields.number(">q"), fields.number(">h"))


def add_request(transactional_id: str, producer: ProducerIdentity, partitions: Iterable[Partition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.number)
    body = compact(transactional_id) + struct.pack(">qh", producer.producer_id, producer.epoch)
    body += uvarint(len(topics) + 1)
    for topic, numbers in topics.items():
        body += compact(topic) + uvarint(len(numbers) + 1)
        body += struct.pack(f">{len(numbers)}i", *numbers) + b"\0"
    return framed(_ADD, 3, body + b"\0")


def parse_add(payload: bytes) -> dict[Partition, int]:
    """Returns the error of each partition."""
    fields = answered(payload)
    found: dict[Partition, int] = {}
    for _ in range(fields.uvarint() - 1):
        topic = fields.string()
        for _ in range(fields.uvarint() - 1):
            number = fields.number(">i")
            found[Partition(topic, number)] = fields.number(">h")
            fields.tags()
        fields.tags()
    return found


def produce_request(transactional_id: str | None, batches: Mapping[Partition, bytes]) -> bytes:
    """Returns a request with one batch per partition, acknowledged by all."""
    topics: dict[str, list[tuple[int, bytes]]] = {}
    for partition, batch in batches.items():
        topics.setdefault(partition.topic, []).append((partition.number, batch))
    pieces = [compact(transactional_id), struct.pack(">hi", -1, _TIMEOUT_MS), uvarint(len(topics) + 1)]
    for topic, rows in topics.items():
        pieces += [compact(topic), uvarint(len(rows) + 1)]
        for number, batch in rows:
            pieces += [struct.pack(">i", number), uvarint(len(batch) + 1), batch, b"\0"]
        pieces.append(b"\0")
    return framed(_PRODUCE, 9, b"".join((*pieces, b"\0")))


def parse_produce(payload: bytes) -> dict[Partition, tuple[int, str]]:
    """Returns the error of each partition, and the broker's message."""
    fields = Fields(payload)
    fields.skip(4)
    fields.tags()
    found: dict[Partition, tuple[int, str]] = {}
    for _ in range(fields.uvarint() - 1):
        topic = fields.string()
        for _ in range(fields.uvarint() - 1):
            partition = Partition(topic, fields.number(">i"))
            error = fields.number(">h")
            fields.skip(8 + 8 + 8)  # base offset, append time, log start
            for _ in range(fields.uvarint() - 1):
                fields.skip(4)
                fields.string()
                fields.tags()
            found[partition] = error, fields.string()
            fields.tags()
        fields.tags()
    return found


def end_request(staged: Staged, *, committed: bool) -> bytes:
    """Ends one part, or an ordinary transaction."""
    return framed(_END, 3, _end_body(staged, committed) + b"\0")


def end_parts_request(
    whole: str, batch: int, parts: Sequence[Staged], *, committed: bool, content: str = ""
) -> bytes:
    """Returns a request that commits `batch` of `whole`, or aborts its open parts."""
    named = uvarint(len(parts) + 1) + b"".join(
        compact(part.transactional_id) + struct.pack(">qh", part.producer_id, part.epoch) + b"\0"
        for part in parts
    )
    tags = uvarint(_BATCH_TAG) + uvarint(8) + struct.pack(">q", batch)
    tags += uvarint(_PARTS_TAG) + uvarint(len(named)) + named
    count = 2
    if content:
        text = compact(content)
        tags += uvarint(_CONTENT_TAG) + uvarint(len(text)) + text
        count = 3
    return framed(_END, 3, _end_body(Staged(whole, -1, -1), committed) + uvarint(count) + tags)


def _end_body(staged: Staged, committed: bool) -> bytes:
    return compact(staged.transactional_id) + struct.pack(">qhb", staged.producer_id, staged.epoch, committed)


def parse_end(payload: bytes) -> tuple[int, str]:
    """Returns the error, and a daemon's message."""
    fields = answered(payload)
    error, why = fields.number(">h"), ""
    for _ in range(fields.uvarint()):
        tag, size = fields.uvarint(), fields.uvarint()
        if tag == _WHY_TAG:
            why = fields.string()
        else:
            fields.skip(size)
    return error, why
