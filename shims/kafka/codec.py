"""The codec of the hot path: request headers and Produce 3-12. `codec_fetch` holds Fetch.

All other messages go through `schema`.

Request header version 1 is `api_key int16, api_version int16, correlation_id int32, client_id`. Version 2,
used by flexible requests, adds tagged fields (KIP-482). The client id has an int16 length in both.

    request 3+:  transactional_id, acks int16, timeout_ms int32, [name, [index int32, records]]
    response 3+: [name, [index int32, error int16, base_offset int64, log_append_time_ms int64,
                 5+: log_start_offset int64, 8+: [batch_index int32, message], error_message]],
                 throttle_time_ms int32

Produce 9 and later are flexible. The tagged fields of version 10 (KIP-951) are omitted. Requests are decoded
into values that point into the frame. The usual forms of header, request and response have a fast path each,
which does in one pass what the field by field reading does.

Source: RequestHeader.json, ProduceRequest.json and ProduceResponse.json of Apache Kafka's message schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from treecast.middleware.wire.kafka_primitives import (
    COMPACT_NAMES,
    KNOWN_NAMES,
    CodecError,
    LocalCodecError,
    Reader,
    RemoteCodecError,
    compact_name,
    name_of,
    put_count,
    put_name,
    put_string,
)

from .codec_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    decode_fetch_request,
    encode_fetch_response,
)
from .versions import APIS, NEVER

FLEXIBLE: Final = 9  # the first such version of Produce
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

# A flexible request for one partition without a transaction: the fields around the topic's name.
_ASKED_HEAD: Final = struct.Struct(">BhiBB")
_ASKED_PARTITION: Final = struct.Struct(">Bi")
_ASKED_TAIL: Final = b"\0\0\0"
_ASKED_BYTES: Final = _ASKED_HEAD.size + 0x7F + _ASKED_PARTITION.size + 5  # maximum before the records

_START: Final = struct.Struct(">hhih")  # a request's header up to the length of the client id
_CLIENT_AT: Final = _START.size
_FLEXIBLE_FROM: Final[dict[int, int]] = {key: api.flexible for key, api in APIS.items()}


class RequestHeader:
    """A request's header. `body` is the offset of the body in the frame."""

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: int,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Returns the header of the request that fills `frame` (size prefix excluded). Raises RemoteCodecError.

    The header of an API that is not served is read as version 1.
    """
    if len(frame) > _CLIENT_AT:
        api_key, api_version, correlation_id, length = _START.unpack_from(frame)
        body: int = _CLIENT_AT + max(length, 0)
        flexible: bool = api_version >= _FLEXIBLE_FROM.get(api_key, NEVER)
        if length >= -1 and body < len(frame) and not (flexible and frame[body]):  # no tagged fields
            raw = frame[_CLIENT_AT:body].tobytes()
            client_id = None if length < 0 else KNOWN_NAMES.get(raw) or name_of(raw)
            return RequestHeader(
                api_key, api_version, correlation_id, client_id, body + 1 if flexible else body
            )
    return decode_header_fields(frame)


def client_id_of(frame: memoryview) -> str:
    """Returns the client id of a request; empty if it has none, or cannot be read."""
    try:
        return decode_request_header(frame).client_id or ""
    except CodecError:
        return ""


def decode_header_fields(frame: memoryview) -> RequestHeader:
    """As `decode_request_header`, field by field: the reference for the fast path."""
    reader = Reader(frame)
    api_key = reader.int16()
    api_version = reader.int16()
    correlation_id = reader.int32()
    client_id = reader.nullable_string(False)
    if api_version >= _FLEXIBLE_FROM.get(api_key, NEVER):
        reader.skip_tagged_fields()
    return RequestHeader(api_key, api_version, correlation_id, client_id, reader.position)


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


def decode_produce_request(frame: memoryview, body: int, version: int) -> ProduceRequest:
    """Decodes the request whose body begins at offset `body` of `frame`. Raises RemoteCodecError."""
    if version >= FLEXIBLE:
        request = _decode_one(frame, body)
        if request is not None:
            return request
    return decode_produce_fields(frame, body, version)


def _decode_one(frame: memoryview, body: int) -> ProduceRequest | None:
    """Decodes a request for one partition, without a transaction and without tagged fields. Returns None for
    all others, and for bytes that are no request."""
    head = frame[body : body + _ASKED_BYTES].tobytes()
    if len(head) < _ASKED_HEAD.size:
        return None
    transaction, acks, timeout_ms, topics, length = _ASKED_HEAD.unpack_from(head)
    at: int = _ASKED_HEAD.size + length - 1
    if transaction or topics != 2 or not 0 < length < 0x80 or at + _ASKED_PARTITION.size >= len(head):
        return None
    partitions, index = _ASKED_PARTITION.unpack_from(head, at)
    raw = head[_ASKED_HEAD.size : at]
    at += _ASKED_PARTITION.size
    size = shift = 0
    while at < len(head) and shift < 35:
        byte = head[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        return None
    end = body + at + size - 1
    if partitions != 2 or not size or end + len(_ASKED_TAIL) != len(frame):
        return None
    if frame[end:].tobytes() != _ASKED_TAIL:
        return None
    asked = ProducedPartition(KNOWN_NAMES.get(raw) or name_of(raw), index, frame[body + at : end])
    return ProduceRequest(None, acks, timeout_ms, [asked])


def decode_produce_fields(frame: memoryview, body: int, version: int) -> ProduceRequest:
    """As `decode_produce_request`, field by field: the reference for the fast path."""
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
    name = COMPACT_NAMES.get(result.topic) or compact_name(result.topic)
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


__all__ = [
    "CodecError",
    "FetchPartition",
    "FetchRequest",
    "FetchResult",
    "LocalCodecError",
    "ProduceRequest",
    "ProduceResult",
    "ProducedPartition",
    "RemoteCodecError",
    "RequestHeader",
    "decode_fetch_request",
    "decode_produce_request",
    "decode_request_header",
    "encode_fetch_response",
    "encode_produce_response",
]
