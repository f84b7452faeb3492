"""Record batches of a burst: encoded before its clock runs, and checked by sums while it runs."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from crc32c import crc32c
from ledger import HEAD_SIZE, make_value

from treecast.middleware.load.frames import LAST_OFFSET_DELTA, produce_request
from treecast.middleware.load.payload import records_in
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch

PRODUCER = 1  # its number in ledgers
RECORDS_AT = 61
_CRC_AT, _CRC_FROM = 17, 21
_MARK = b"here stands the head of a value."[:HEAD_SIZE]
_NUMBERS = struct.Struct("<II")
_SUM = struct.Struct(">I")
_INT32 = struct.Struct(">i")


@dataclass(slots=True)
class Batch:
    """A batch that is sent at once, and the numbers that are noted when it is acknowledged."""

    partition: int
    first: int
    records: int
    crc: int
    frame: bytes


class Encoder:
    """Makes batches with a fixed number of records from one encoded batch; only the heads of the values
    change."""

    def __init__(self, topic: str, records: int, size: int) -> None:
        value = _MARK.ljust(size, b".")
        self._topic = topic
        self._records = records
        stamp = int(time.time() * 1000)
        self._template = build_batch([Record(None, value, (), stamp) for _ in range(records)])
        self._heads = list(_places(bytes(self._template), _MARK))

    def data(self, first: int, sent: float = 0.0) -> tuple[bytes, int]:
        """Returns a batch whose records are numbered from `first`, and its checksum."""
        data = bytearray(self._template)
        for number, at in enumerate(self._heads, first):
            data[at : at + HEAD_SIZE] = make_value(PRODUCER, number, sent, HEAD_SIZE)
        crc = crc32c(bytes(data[_CRC_FROM:]))
        _SUM.pack_into(data, _CRC_AT, crc)
        return bytes(data), crc

    def batch(self, partition: int, first: int, sent: float = 0.0) -> Batch:
        data, crc = self.data(first, sent)
        return Batch(partition, first, self._records, crc, produce_request(self._topic, partition, data, -1))


def _places(data: bytes, mark: bytes) -> Iterator[int]:
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + len(mark))


def encoded(
    topic: str, partitions: int, before: int, records: int, size: int, limit: int
) -> tuple[list[Batch], list[Batch]]:
    """Returns (batches of one record each, those of the burst), round robin over partitions. `limit`:
    bytes."""
    encoders: dict[int, Encoder] = {}
    numbers = [0] * partitions

    def batches(left: int, most: int) -> Iterator[Batch]:
        turn = 0
        while left:
            count = min(left, most)
            if count not in encoders:
                encoders[count] = Encoder(topic, count, size)
            partition = turn % partitions
            yield encoders[count].batch(partition, numbers[partition])
            numbers[partition] += count
            left -= count
            turn += 1

    singles = list(batches(before, 1))
    return singles, list(batches(records, records_in(limit, size)))


@dataclass(frozen=True, slots=True)
class Seen:
    """A reader's notes on a batch. `whole`: its bytes match its checksum."""

    producer: int
    first: int
    records: int
    crc: int
    whole: bool


def look(batch: memoryview) -> Seen:
    """Reads the head only, without a step per record; the producer's checksum covers the order of the
    records."""
    (crc,) = _SUM.unpack_from(batch, _CRC_AT)
    producer, first = _NUMBERS.unpack_from(batch, _value_at(batch))
    records = _INT32.unpack_from(batch, LAST_OFFSET_DELTA)[0] + 1
    return Seen(producer, first, records, crc, crc == crc32c(batch[_CRC_FROM:]))


def _value_at(batch: memoryview) -> int:
    """Returns where the value of the first record starts. The record has no key; its length, attributes,
    timestamp, offset and the lengths of key and value come before."""
    at = _after_varint(batch, RECORDS_AT) + 1
    for _ in range(4):
        at = _after_varint(batch, at)
    return at


def _after_varint(data: memoryview, at: int) -> int:
    while data[at] >= 0x80:
        at += 1
    return at + 1
