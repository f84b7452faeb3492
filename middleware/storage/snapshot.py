"""Producer states on disk: `<20 digits of the offset>.snapshot`, for everything before that offset.

Kafka's format (version 1, big-endian), followed by an extension: the older remembered batches, so that a
repeat is recognised after a restart as well. Kafka's own tools ignore the extension.

  version int16, CRC-32C uint32 of the rest
  count int32, then per producer: id int64, epoch int16, last sequence int32, last offset int64,
    offset delta int32, timestamp int64 (ms), coordinator epoch int32, transaction's first offset int64
  count int32, then per older batch, oldest first: id int64, last sequence int32, last offset int64,
    offset delta int32, timestamp int64
"""

from __future__ import annotations

import struct
from typing import Final

from treecast.middleware.wire.crc import crc32c

from .producers import NO_OFFSET, Producer, ProducerBatch, ProducerStates

_VERSION: Final = 1
_START: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">qhiqiqiq")
_OLDER: Final = struct.Struct(">qiqiq")


def encode_snapshot(states: ProducerStates) -> bytes:
    """Returns the file's bytes."""
    producers = list(states)
    body = bytearray(_COUNT.pack(len(producers)))
    older = bytearray()
    count = 0
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        body += _PRODUCER.pack(
            producer.producer_id,
            producer.epoch,
            last.last_sequence if last else -1,
            last.last_offset if last else NO_OFFSET,
            last.offset_delta if last else 0,
            producer.last_ms,
            producer.coordinator_epoch,
            producer.transaction_start,
        )
        for batch in producer.batches[:-1]:
            older += _OLDER.pack(
                producer.producer_id,
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp,
            )
            count += 1
    body += _COUNT.pack(count) + older
    return _START.pack(_VERSION, crc32c(bytes(body))) + body


def decode_snapshot(data: bytes) -> ProducerStates | None:
    """Returns the states, or None if the file is not whole."""
    if len(data) < _START.size + _COUNT.size:
        return None
    version, crc = _START.unpack_from(data, 0)
    if version != _VERSION or crc != crc32c(data[_START.size :]):
        return None
    try:
        return _decode_body(data, _START.size)
    except (struct.error, KeyError):
        return None


def _decode_body(data: bytes, position: int) -> ProducerStates:
    producers: dict[int, Producer] = {}
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    for _ in range(count):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, start = _PRODUCER.unpack_from(
            data, position
        )
        position += _PRODUCER.size
        producer = Producer(producer_id, epoch)
        producer.coordinator_epoch = coordinator
        producer.transaction_start = start
        producer.last_ms = timestamp
        if offset >= 0:
            producer.batches.append(ProducerBatch(sequence, offset, delta, timestamp))
        producers[producer_id] = producer
    if position < len(data):
        _decode_older(data, position, producers)
    states = ProducerStates()
    for producer in producers.values():
        states.restore(producer)
    return states


def _decode_older(data: bytes, position: int, producers: dict[int, Producer]) -> None:
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    for _ in range(count):
        producer_id, sequence, offset, delta, timestamp = _OLDER.unpack_from(data, position)
        position += _OLDER.size
        batches = producers[producer_id].batches
        batches.insert(len(batches) - 1, ProducerBatch(sequence, offset, delta, timestamp))
