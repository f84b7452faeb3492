"""Fetch 4-17: decodes requests, encodes responses around the log's own bytes.

Source: FetchRequest.json and FetchResponse.json of Apache Kafka's message schemas; KIP-227 (sessions),
KIP-320 (leader epochs), KIP-392 (racks), KIP-516 (topic ids), KIP-903 (no replica id).

    request 4+:  4-14: replica_id int32, max_wait_ms int32, min_bytes int32, max_bytes int32, isolation int8,
                 7+: session_id int32, session_epoch int32,
                 [topic, [partition int32, 9+: current_leader_epoch int32, fetch_offset int64,
                 12+: last_fetched_epoch int32, 5+: log_start_offset int64, partition_max_bytes int32]],
                 7+: [topic, [partition int32]], 11+: rack_id
    response 4+: throttle_time_ms int32, 7+: error int16, session_id int32,
                 [topic, [partition int32, error int16, high_watermark int64, last_stable_offset int64,
                 5+: log_start_offset int64, [producer_id int64, first_offset int64],
                 11+: preferred_read_replica int32, records]]

From version 12 on, messages are flexible. Their tagged fields (cluster id, diverging epoch, current leader,
snapshot, replica state, endpoints of nodes) are skipped in requests and omitted from responses. From version
13 on, the topic is not a name but an id, a UUID. The request has one Treecast field: tag 29795 ("tc"), the
text of a filter (docs/filters.md), which other brokers skip.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from treecast.middleware.model.buffers import BUFFERS, Chunk, in_memory
from treecast.middleware.wire.kafka_primitives import (
    COMPACT_NAMES,
    LocalCodecError,
    Reader,
    compact_name,
    put_count,
    put_name,
)

FLEXIBLE: Final = 12
TOPIC_IDS: Final = 13  # the first version with ids instead of names
_NO_REPLICA_ID: Final = 15
FILTER_TAG: Final = 0x7463
JOIN_BELOW: Final = 2048  # records below this size are copied into one buffer with the fields around them
_MAX_FRAME: Final = 0x7FFF_FFFF
_SMALLEST_TOPIC: Final = 2
_SMALLEST_PARTITION: Final = 16  # of version 4

_FRAME: Final = struct.Struct(">iii")
_FRAME_FLEXIBLE: Final = struct.Struct(">iibi")
_SESSION: Final = struct.Struct(">hi")
_PARTITION_4: Final = struct.Struct(">ihqq")
_PARTITION_5: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_INT32: Final = struct.Struct(">i")

# A flexible answer for one partition: the fields before the topic's name, and from there to the records.
_ONE_HEAD: Final = struct.Struct(">iiBihiB")
_ONE_RESULT: Final = struct.Struct(">BihqqqBi")
_ONE_TAIL: Final = b"\0\0\0"
_ONE_SIZE: Final = _ONE_HEAD.size + _ONE_RESULT.size + len(_ONE_TAIL) - 4


class FetchPartition:
    """A partition to read. Epochs and the follower's log start are -1 if the request lacks them.

    A request names its topic by `topic` or, from `TOPIC_IDS` on, by `topic_id`, the 16 bytes of a UUID. The
    other one is empty.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        topic_id: bytes = b"",
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.offset = offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset


class FetchRequest:
    """A Fetch request. Before version 7 there is no session: session id 0, epoch -1. From version 15 on,
    there is no replica id: -1.

    `forgotten` lists the (topic, partition) that an incremental fetch drops from its session; topics with ids
    have an empty name. `filter` is the
    text of a filter, which only Treecast's own clients send.
    """

    def __init__(
        self,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation: int,
        session_id: int,
        session_epoch: int,
        partitions: list[FetchPartition],
        forgotten: list[tuple[str, int]],
        rack: str,
        filter: str | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation = isolation
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.partitions = partitions
        self.forgotten = forgotten
        self.rack = rack
        self.filter = filter


class FetchResult:
    """The answer for one partition. `chunks` are whole record batches, sent unchanged.

    `aborted` lists (producer id, first offset); it is None (null) unless read_committed was requested.
    `topic_id` is that of the request.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        error_code: int = 0,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        chunks: Sequence[Chunk] = (),
        aborted: Sequence[tuple[int, int]] | None = None,
        preferred_read_replica: int = -1,
        topic_id: bytes = b"",
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.chunks = chunks
        self.aborted = aborted
        self.preferred_read_replica = preferred_read_replica


def decode_fetch_request(frame: memoryview, body: int, version: int) -> FetchRequest:
    """Decodes the request whose body begins at offset `body` of `frame`. Raises RemoteCodecError."""
    reader = Reader(frame, body)
    compact = version >= FLEXIBLE
    replica_id = reader.int32() if version < _NO_REPLICA_ID else -1
    max_wait_ms = reader.int32()
    min_bytes = reader.int32()
    max_bytes = reader.int32()
    isolation = reader.int8()
    session_id = reader.int32() if version >= 7 else 0
    session_epoch = reader.int32() if version >= 7 else -1
    partitions: list[FetchPartition] = []
    for _ in range(reader.count(_SMALLEST_TOPIC, compact)):
        topic = reader.string(compact) if version < TOPIC_IDS else ""
        topic_id = reader.uuid() if version >= TOPIC_IDS else b""
        for _ in range(reader.count(_SMALLEST_PARTITION, compact)):
            partitions.append(_partition(reader, topic, topic_id, version))
        if compact:
            reader.skip_tagged_fields()
    forgotten = _forgotten(reader, version) if version >= 7 else []
    rack = reader.string(compact) if version >= 11 else ""
    wanted = reader.tagged_field(FILTER_TAG) if compact else None
    reader.end()
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack,
        wanted,
    )


def _partition(reader: Reader, topic: str, topic_id: bytes, version: int) -> FetchPartition:
    partition = reader.int32()
    current_leader_epoch = reader.int32() if version >= 9 else -1
    offset = reader.int64()
    last_fetched_epoch = reader.int32() if version >= FLEXIBLE else -1
    log_start_offset = reader.int64() if version >= 5 else -1
    max_bytes = reader.int32()
    if version >= FLEXIBLE:
        reader.skip_tagged_fields()
    return FetchPartition(
        topic,
        partition,
        offset,
        max_bytes,
        current_leader_epoch,
        last_fetched_epoch,
        log_start_offset,
        topic_id,
    )


def _forgotten(reader: Reader, version: int) -> list[tuple[str, int]]:
    forgotten: list[tuple[str, int]] = []
    compact = version >= FLEXIBLE
    for _ in range(reader.count(_SMALLEST_TOPIC, compact)):
        topic = ""
        if version < TOPIC_IDS:
            topic = reader.string(compact)
        else:
            reader.uuid()
        for _ in range(reader.count(4, compact)):
            forgotten.append((topic, reader.int32()))
        if compact:
            reader.skip_tagged_fields()
    return forgotten


class _Pieces:
    """A frame under construction: fields are joined, large records stay separate buffers."""

    def __init__(self, start: bytes) -> None:
        self.first = bytearray(start)
        self.out = self.first  # the buffer that takes fields; not yet in `buffers`
        self.buffers: list[Chunk] = []
        self.size = 0  # total of `buffers`, in bytes

    def add_records(self, chunk: Chunk) -> None:
        size = len(chunk)
        if size < JOIN_BELOW:
            self.out += in_memory(chunk)
            return
        self._flush()
        self.buffers.append(chunk)
        self.size += size

    def _flush(self) -> None:
        if self.out:
            self.buffers.append(self.out)
            self.size += len(self.out)
            self.out = bytearray()

    def finish(self) -> list[Chunk]:
        self._flush()
        if self.size - 4 > _MAX_FRAME:
            raise LocalCodecError(f"a response of {self.size} bytes is too long")
        _INT32.pack_into(self.first, 0, self.size - 4)
        return self.buffers


def encode_fetch_response(
    correlation_id: int,
    version: int,
    results: list[FetchResult],
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
) -> list[Chunk]:
    """Returns the whole frame, size prefix included, in the fewest buffers that leave large records uncopied.

    Consecutive results of one topic are grouped.
    """
    if version >= FLEXIBLE and len(results) == 1 and results[0].aborted is None:
        return _encode_one(correlation_id, version, results[0], error_code, session_id, throttle_ms)
    return encode_fetch_results(correlation_id, version, results, error_code, session_id, throttle_ms)


def _encode_one(
    correlation_id: int,
    version: int,
    result: FetchResult,
    error_code: int,
    session_id: int,
    throttle_ms: int,
) -> list[Chunk]:
    size = 0
    for chunk in result.chunks:
        size += len(chunk)
    if version >= TOPIC_IDS:
        name = result.topic_id
    else:
        name = COMPACT_NAMES.get(result.topic) or compact_name(result.topic)
    rest, count = size + 1, bytearray()  # an unsigned varint
    while rest >= 0x80:
        count.append(rest & 0x7F | 0x80)
        rest >>= 7
    count.append(rest)
    whole = _ONE_SIZE + len(name) + len(count) + size
    if whole > _MAX_FRAME:
        raise LocalCodecError(f"a response of {whole} bytes is too long")
    head: bytes = _ONE_HEAD.pack(whole, correlation_id, 0, throttle_ms, error_code, session_id, 2)
    fields: bytes = _ONE_RESULT.pack(
        2,  # one partition
        result.partition,
        result.error_code,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        0,  # no list of aborted transactions
        result.preferred_read_replica,
    )
    if size < JOIN_BELOW:
        parts = [chunk if isinstance(chunk, BUFFERS) else bytes(chunk) for chunk in result.chunks]
        return [b"".join([head, name, fields, count, *parts, _ONE_TAIL])]
    records = [chunk for chunk in result.chunks if len(chunk)]
    return [b"".join([head, name, fields, count]), *records, _ONE_TAIL]


def encode_fetch_results(
    correlation_id: int,
    version: int,
    results: list[FetchResult],
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
) -> list[Chunk]:
    """As `encode_fetch_response`, encoded field by field: the reference for the fast path."""
    compact = version >= FLEXIBLE
    if compact:
        pieces = _Pieces(_FRAME_FLEXIBLE.pack(0, correlation_id, 0, throttle_ms))
    else:
        pieces = _Pieces(_FRAME.pack(0, correlation_id, throttle_ms))
    if version >= 7:
        pieces.out += _SESSION.pack(error_code, session_id)
    put_count(pieces.out, _topics(results), compact)
    first = 0
    while first < len(results):
        end = _end_of_topic(results, first)
        if version >= TOPIC_IDS:
            pieces.out += results[first].topic_id
        else:
            put_name(pieces.out, results[first].topic, compact)
        put_count(pieces.out, end - first, compact)
        while first < end:
            _put_result(pieces, results[first], version)
            first += 1
        if compact:
            pieces.out += b"\0"
    if compact:
        pieces.out += b"\0"
    return pieces.finish()


def _topics(results: list[FetchResult]) -> int:
    """Returns the number of runs of consecutive results with the same topic."""
    runs = first = 0
    while first < len(results):
        first = _end_of_topic(results, first)
        runs += 1
    return runs


def _end_of_topic(results: list[FetchResult], first: int) -> int:
    topic, topic_id = results[first].topic, results[first].topic_id
    end = first + 1
    while end < len(results) and results[end].topic == topic and results[end].topic_id == topic_id:
        end += 1
    return end


def _put_result(pieces: _Pieces, result: FetchResult, version: int) -> None:
    compact = version >= FLEXIBLE
    out = pieces.out
    if version >= 5:
        out += _PARTITION_5.pack(
            result.partition,
            result.error_code,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
        )
    else:
        out += _PARTITION_4.pack(
            result.partition, result.error_code, result.high_watermark, result.last_stable_offset
        )
    _put_aborted(out, result.aborted, compact)
    if version >= 11:
        out += _INT32.pack(result.preferred_read_replica)
    size = 0
    for chunk in result.chunks:
        size += len(chunk)
    if size >= _MAX_FRAME:
        raise LocalCodecError(f"records of {size} bytes are too long")
    put_count(out, size, compact)
    for chunk in result.chunks:
        pieces.add_records(chunk)
    if compact:
        pieces.out += b"\0"


def _put_aborted(out: bytearray, aborted: Sequence[tuple[int, int]] | None, compact: bool) -> None:
    if aborted is None:
        put_count(out, -1, compact)
        return
    put_count(out, len(aborted), compact)
    for producer_id, first_offset in aborted:
        out += _ABORTED.pack(producer_id, first_offset)
        if compact:
            out += b"\0"
