"""The payload: one record batch, encoded once and sent repeatedly."""

from __future__ import annotations

import random
from dataclasses import dataclass

from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire.record_batch import build_batch

_BATCH_OVERHEAD = 61


@dataclass(frozen=True, slots=True)
class Batch:
    """`data` is a record batch of `records` records with values of `size` bytes each."""

    data: bytes
    records: int
    size: int


def _varint_size(value: int) -> int:
    """Returns the size in bytes of a zigzag varint of the non-negative `value`."""
    return max(1, -(-(2 * value).bit_length() // 7))


def _record_size(number: int, size: int) -> int:
    """Returns the size in bytes of record `number` of a batch: its length, attributes, timestamp delta 0,
    offset delta, no key, the value and no headers.
    """
    body = 1 + 1 + _varint_size(number) + 1 + _varint_size(size) + size + 1
    return _varint_size(body) + body


def records_in(batch_bytes: int, size: int) -> int:
    """Returns how many records of `size` bytes fit into a batch of `batch_bytes`; at least one."""
    left, count = batch_bytes - _BATCH_OVERHEAD, 0
    while (left := left - _record_size(count, size)) >= 0:
        count += 1
    return max(1, count)


def make_batch(
    records: int, size: int, timestamp: int, compression: Compression = Compression.NONE, seed: int = 1
) -> Batch:
    """Returns a batch without producer id: values of random letters, all at `timestamp` (ms since the
    epoch).
    """
    draw = random.Random(seed)
    letters = bytes(draw.choices(b"abcdefghijklmnopqrstuvwxyz 0123456789", k=4 * size + 4096))
    starts = [draw.randrange(len(letters) - size) for _ in range(records)]
    values = [Record(None, letters[start : start + size], (), timestamp) for start in starts]
    return Batch(build_batch(values, compression=compression), records, size)
