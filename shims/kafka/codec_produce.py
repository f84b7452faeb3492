"""Produce 3-12: decodes requests into values that point into the frame, encodes responses.

Source: ProduceRequest.json and ProduceResponse.json of Apache Kafka's message schemas.

    request 3+:  transactional_id, acks int16, timeout_ms int32, [name, [index int32, records]]
    response 3+: [name, [index int32, error int16, base_offset int64, log_append_time_ms int64,
                 5+: log_start_offset int64, 8+: [batch_index int32, message], error_message]],
                 throttle_time_ms int32

Versions 9 and later are flexible. The tagged fields of version 10 (KIP-951) are omitted.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from treecast.middleware.wire.kafka_primitives import (
    Reader,
    compact_name,
    put_count,
    put_name,
    put_string,
)

FLEXIBLE: Final = 9
_SMALLEST_PARTITION: Final = 5  # the index and the compact length of null records
_SMALLEST_TOPIC: Final = 2

_PARTITION_3: Final = struct.Struct(">ihqq")
_PARTITION_5: Final = struct.Struct(">ihqqq")
_INT32: Final = struct.Struct(">i")
_FRAME: Final = struct.Struct(">ii")

# A flexible answer for one partition without errors: the fields before and after the topic's name.
_ONE_HEAD: Final = struct.Struct(">iiBB")
_ONE_TAIL: Final = struct.Struct(">BihqqqBBBBiB")
_ONE_SIZE: Final = _ONE_HEAD.size + _ONE_TAIL.size - 4


class ProducedPartition:
    """The records for one partition. `records` points into the frame; None if the client sent null."""

    def __init__(self, topic: str, partition: int, records: memoryview | None) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records


class ProduceRequest:
    """A Produce request, with its partitions in the order in which they were sent."""

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        partitions: list[ProducedPartition],
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.partitions = partitions


class ProduceResult:
    """The answer for one partition. Absent offsets and times are -1.

    `record_errors` lists (index in the batch, message). It and `error_message` are sent from version 8 on.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        error_code: int = 0,
        base_offset: int = -1,
        log_append_time: int = -1,
        log_start_offset: int = -1,
        error_message: str | None = None,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.error_message = error_message
        self.record_errors = record_errors


def decode_produce_request(
    frame: memoryview, body: int, version: int, reader: Reader | None = None
) -> ProduceRequest:
    """Decodes the request whose body begins at offset `body` of `frame`. Raises RemoteCodecError.

    `reader`, if given, must be positioned at the body.
    """
    if reader is None:
        reader = Reader(frame, body)
    compact = version >= FLEXIBLE
    transactional_id = reader.nullable_string(compact)
    acks = reader.int16()
    timeout_ms = reader.int32()
    partitions: list[ProducedPartition] = []
    for _ in range(reader.count(_SMALLEST_TOPIC, compact)):
        topic = reader.string(compact)
        for _ in range(reader.count(_SMALLEST_PARTITION, compact)):
            index = reader.int32()
            partitions.append(ProducedPartition(topic, index, reader.nullable_bytes(compact)))
            if compact:
                reader.skip_tagged_fields()
        if compact:
            reader.skip_tagged_fields()
    if compact:
        reader.skip_tagged_fields()
    reader.end()
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def encode_produce_response(
    correlation_id: int, version: int, results: list[ProduceResult], throttle_ms: int = 0
) -> bytes:
    """Returns the whole frame, size prefix included. Consecutive results of one topic are grouped."""
    if version >= FLEXIBLE and len(results) == 1:
        result = results[0]
        if result.error_message is None and not result.record_errors:
            return _encode_one(correlation_id, result, throttle_ms)
    return encode_produce_results(correlation_id, version, results, throttle_ms)


def _encode_one(correlation_id: int, result: ProduceResult, throttle_ms: int) -> bytes:
    name = compact_name(result.topic)
    head = _ONE_HEAD.pack(_ONE_SIZE + len(name), correlation_id, 0, 2)
    tail = _ONE_TAIL.pack(
        2,  # one partition
        result.partition,
        result.error_code,
        result.base_offset,
        result.log_append_time,
        result.log_start_offset,
        1,  # no record errors
        0,  # no message
        0,
        0,
        throttle_ms,
        0,
    )
    frame: bytes = head + name + tail
    return frame


def encode_produce_results(
    correlation_id: int, version: int, results: list[ProduceResult], throttle_ms: int = 0
) -> bytes:
    """As `encode_produce_response`, encoded field by field: the reference for the fast path."""
    compact = version >= FLEXIBLE
    out = bytearray(_FRAME.pack(0, correlation_id))
    if compact:
        out += b"\0"
    put_count(out, _topics(results), compact)
    first = 0
    while first < len(results):
        end = _end_of_topic(results, first)
        put_name(out, results[first].topic, compact)
        put_count(out, end - first, compact)
        while first < end:
            _put_result(out, results[first], version)
            first += 1
        if compact:
            out += b"\0"
    out += _INT32.pack(throttle_ms)
    if compact:
        out += b"\0"
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _topics(results: list[ProduceResult]) -> int:
    """Returns the number of runs of consecutive results with the same topic."""
    runs = 0
    last = ""
    for index, result in enumerate(results):
        if index == 0 or result.topic != last:
            runs += 1
            last = result.topic
    return runs


def _end_of_topic(results: list[ProduceResult], first: int) -> int:
    topic = results[first].topic
    end = first + 1
    while end < len(results) and results[end].topic == topic:
        end += 1
    return end


def _put_result(out: bytearray, result: ProduceResult, version: int) -> None:
    if version < 5:
        out += _PARTITION_3.pack(
            result.partition, result.error_code, result.base_offset, result.log_append_time
        )
        return
    out += _PARTITION_5.pack(
        result.partition,
        result.error_code,
        result.base_offset,
        result.log_append_time,
        result.log_start_offset,
    )
    if version >= 8:
        compact = version >= FLEXIBLE
        put_count(out, len(result.record_errors), compact)
        for index, message in result.record_errors:
            out += _INT32.pack(index)
            put_string(out, message, compact)
            if compact:
                out += b"\0"
        put_string(out, result.error_message, compact)
        if compact:
            out += b"\0"
