"""What is sent: one record batch, encoded once and sent again and again."""

from __future__ import annotations

import random
from dataclasses import dataclass

from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire.record_batch import build_batch

# A record of magic 2 without key and headers around its value: length, attributes, timestamp delta, offset
# delta, key length, value length, header count. Only used to choose how many records fill a batch.
_RECORD_OVERHEAD = 8
_BATCH_OVERHEAD = 61


@dataclass(frozen=True, slots=True)
class Batch:
    """`data` is a record batch of `records` records with values of `size` bytes each."""

    data: bytes
    records: int
    size: int


def records_in(batch_bytes: int, size: int) -> int:
    """How many records of `size` bytes a client puts into a batch of at most `batch_bytes`; at least one."""
    return max(1, (batch_bytes - _BATCH_OVERHEAD) // (size + _RECORD_OVERHEAD))


def make_batch(
    records: int, size: int, timestamp: int, compression: Compression = Compression.NONE, seed: int = 1
) -> Batch:
    """A batch without producer id: values of random letters, all at `timestamp` (ms since the epoch)."""
    draw = random.Random(seed)
    letters = bytes(draw.choices(b"abcdefghijklmnopqrstuvwxyz 0123456789", k=4 * size + 4096))
    starts = [draw.randrange(len(letters) - size) for _ in range(records)]
    values = [Record(None, letters[start : start + size], (), timestamp) for start in starts]
    return Batch(build_batch(values, compression=compression), records, size)
