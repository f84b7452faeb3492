"""The few Kafka requests of a load generator, encoded once, and the parsing of their answers.

This is deliberately not the broker's codec: a generator that shared it would share its mistakes. Layouts are
those of Kafka's message schemas (clients/src/main/resources/common/message): ApiVersions 0, Metadata 4,
CreateTopics 2, ListOffsets 1 in the old encoding; Produce 9 and Fetch 12 in the flexible one (KIP-482). A
frame is a 4-byte big-endian length and that many bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19
PRODUCE_VERSION, FETCH_VERSION = 9, 12
LATEST, EARLIEST = -1, -2  # timestamps of ListOffsets
CLIENT_ID = b"treecast-load"
BATCH_PREFIX = 12  # baseOffset int64, batchLength int32
LAST_OFFSET_DELTA = 23  # position of lastOffsetDelta (int32) in a batch

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_ABORTED = struct.Struct(">qq")
_HEADER = struct.Struct(">hhi")
_PREFIX = struct.Struct(">qi")


class LoadError(Exception):
    """The server answered with an error (`code`, if it is Kafka's), or with invalid bytes."""

    def __init__(self, detail: str, code: int = 0) -> None:
        super().__init__(detail)
        self.code = code


# -- encoding ---------------------------------------------------------------------------------------------


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _compact_string(text: str) -> bytes:
    raw = text.encode()
    return _uvarint(len(raw) + 1) + raw


def _frame(api_key: int, version: int, body: bytes, correlation: int, flexible: bool) -> bytes:
    header = _HEADER.pack(api_key, version, correlation) + _INT16.pack(len(CLIENT_ID)) + CLIENT_ID
    if flexible:
        header += b"\0"
    return _INT32.pack(len(header) + len(body)) + header + body


def api_versions_request(correlation: int = 0) -> bytes:
    return _frame(API_VERSIONS, 0, b"", correlation, False)


def metadata_request(topics: list[str] | None = None, correlation: int = 0) -> bytes:
    """Returns Metadata 4, without auto-creation; None requests all topics."""
    body = _INT32.pack(-1 if topics is None else len(topics))
    body += b"".join(_string(topic) for topic in topics or ())
    return _frame(METADATA, 4, body + b"\0", correlation, False)


def create_topic_request(
    topic: str, partitions: int, configs: Mapping[str, str] | None = None, correlation: int = 0
) -> bytes:
    pairs = (configs or {}).items()
    body = _INT32.pack(1) + _string(topic) + struct.pack(">ihi", partitions, 1, 0)
    body += _INT32.pack(len(pairs)) + b"".join(_string(key) + _string(value) for key, value in pairs)
    body += struct.pack(">ib", 30_000, 0)
    return _frame(CREATE_TOPICS, 2, body, correlation, False)


def list_offsets_request(topic: str, partition: int, timestamp: int, correlation: int = 0) -> bytes:
    body = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">iiq", 1, partition, timestamp)
    return _frame(LIST_OFFSETS, 1, body, correlation, False)


def produce_request(topic: str, partition: int, batch: bytes, acks: int = 1, correlation: int = 0) -> bytes:
    """Returns Produce 9 of one batch to one partition."""
    body = b"\0" + struct.pack(">hi", acks, 30_000)  # no transactional id
    body += b"\x02" + _compact_string(topic) + b"\x02" + _INT32.pack(partition)
    body += _uvarint(len(batch) + 1) + batch + b"\0\0\0"
    return _frame(PRODUCE, PRODUCE_VERSION, body, correlation, True)


class FetchRequest:
    """Fetch 12 of one partition, without a session; only the offset changes between requests."""

    __slots__ = ("data", "offset_at")

    def __init__(
        self,
        topic: str,
        partition: int,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        *,
        committed: bool = False,
    ) -> None:
        head = struct.pack(">iiii", -1, max_wait_ms, min_bytes, max_bytes)
        head += struct.pack(">bii", committed, 0, -1)  # isolation level, session 0, epoch -1: no session
        head += b"\x02" + _compact_string(topic) + b"\x02" + struct.pack(">ii", partition, -1)
        tail = struct.pack(">iqi", -1, -1, max_bytes) + b"\0\0" + b"\x01\x01\0"
        frame = _frame(FETCH, FETCH_VERSION, head + _INT64.pack(0) + tail, 0, True)
        self.offset_at = len(frame) - len(tail) - 8
        self.data = bytearray(frame)

    def at(self, offset: int) -> bytearray:
        """Returns the frame that asks from `offset`; the same buffer each time."""
        _INT64.pack_into(self.data, self.offset_at, offset)
        return self.data


# -- answers ----------------------------------------------------------------------------------------------


class _Cursor:
    """Reads the old (not flexible) encoding, for rare answers."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data, self.position = data, position

    def _take(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return int(value)

    def int8(self) -> int:
        return self._take(_INT8)

    def int16(self) -> int:
        return self._take(_INT16)

    def int32(self) -> int:
        return self._take(_INT32)

    def int64(self) -> int:
        return self._take(_INT64)

    def skip(self, count: int) -> None:
        self.position += count

    def string(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        start = self.position
        self.position += length
        return self.data[start : start + length].decode()


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The content of Metadata: node id -> (host, port), and topic -> (error, leader node of each partition).

    `ids`: of topics, if the requested version has them.
    """

    brokers: dict[int, tuple[str, int]]
    topics: dict[str, tuple[int, dict[int, int]]]
    cluster_id: str = ""
    ids: dict[str, str] = field(default_factory=dict)


def parse_api_versions(payload: bytes) -> dict[int, tuple[int, int]]:
    """Returns key -> (lowest, highest version). `payload` is a response without its length."""
    cursor = _Cursor(payload, 4)
    if error := cursor.int16():
        raise LoadError(f"ApiVersions was answered with error {error}")
    return {cursor.int16(): (cursor.int16(), cursor.int16()) for _ in range(cursor.int32())}


def parse_metadata(payload: bytes) -> ClusterView:
    cursor = _Cursor(payload, 8)  # correlation id, throttle time
    brokers = {}
    for _ in range(cursor.int32()):
        node, host, port = cursor.int32(), cursor.string() or "", cursor.int32()
        cursor.string()  # rack
        brokers[node] = (host, port)
    cluster_id = cursor.string() or ""
    cursor.int32()  # controller
    topics = {}
    for _ in range(cursor.int32()):
        error, name = cursor.int16(), cursor.string() or ""
        internal = cursor.int8() != 0
        leaders = _leaders(cursor)
        if not internal:  # Kafka's own, which no pattern means
            topics[name] = (error, leaders)
    return ClusterView(brokers, topics, cluster_id)


def _leaders(cursor: _Cursor) -> dict[int, int]:
    leaders = {}
    for _ in range(cursor.int32()):
        cursor.skip(2)  # error
        index, leader = cursor.int32(), cursor.int32()
        cursor.skip(4 * cursor.int32())  # replicas
        cursor.skip(4 * cursor.int32())  # in-sync replicas
        leaders[index] = leader
    return leaders


def parse_create_topics(payload: bytes) -> tuple[int, str]:
    """Returns the error of the one topic that was asked for, and its message."""
    cursor = _Cursor(payload, 8)
    if cursor.int32() != 1:
        raise LoadError("CreateTopics was not answered for one topic")
    cursor.string()
    return cursor.int16(), cursor.string() or ""


def parse_list_offsets(payload: bytes) -> int:
    cursor = _Cursor(payload, 4)
    if cursor.int32() != 1:
        raise LoadError("ListOffsets was not answered for one topic")
    cursor.string()
    if cursor.int32() != 1:
        raise LoadError("ListOffsets was not answered for one partition")
    cursor.int32()
    if error := cursor.int16():
        raise LoadError(f"ListOffsets was answered with error {error}", error)
    cursor.int64()
    return cursor.int64()


def produce_error_position(topic: str) -> int:
    """Returns the position of the error code (int16) in an answer to `produce_request` for `topic`.

    It is followed by the base offset (int64). Length 4, correlation 4, tags 1, one topic 1, its name, one
    partition 1, its index 4.
    """
    return 4 + 4 + 1 + 1 + len(_compact_string(topic)) + 1 + 4


def produce_response(topic: str, partition: int, base_offset: int) -> bytes:
    """Returns a server's answer to `produce_request`, for the bare loop that measures the floor."""
    body = _INT32.pack(0) + b"\0" + b"\x02" + _compact_string(topic) + b"\x02"
    body += struct.pack(">ihqqq", partition, 0, base_offset, -1, 0) + b"\x01\0\0" + b"\0"
    body += _INT32.pack(0) + b"\0"
    return _INT32.pack(len(body)) + body


def fetch_response_head(topic: str, partition: int, high_watermark: int, size: int) -> bytes:
    """Returns a Fetch 12 response up to its `size` bytes of records, length included; `FETCH_TAIL` follows
    them.
    """
    body = _INT32.pack(0) + b"\0" + struct.pack(">ihi", 0, 0, 0)
    body += b"\x02" + _compact_string(topic) + b"\x02"
    body += struct.pack(">ihqqq", partition, 0, high_watermark, high_watermark, 0)
    body += b"\0" + _INT32.pack(-1) + _uvarint(size + 1)
    return _INT32.pack(len(body) + size + len(FETCH_TAIL)) + body


FETCH_TAIL = b"\0\0\0"  # no tags of the partition, the topic, the response


@dataclass(slots=True)
class FetchAnswer:
    """The head of a Fetch 12 response for one partition, before its records."""

    error: int
    high_watermark: int
    records_at: int  # position in the frame, the length included
    records_size: int
    aborted: tuple[tuple[int, int], ...] = ()  # (producer id, first offset), for reads of committed records


def parse_fetch_head(data: memoryview | bytearray | bytes) -> FetchAnswer:
    """Reads the frame of a response up to its records. Raises LoadError on an error of the whole request."""
    position = 4 + 4 + 1 + 4  # length, correlation id, tags, throttle time
    (error,) = _INT16.unpack_from(data, position)
    if error:
        raise LoadError(f"Fetch was answered with error {error}")
    position += 2 + 4  # error, session id
    topics, position = _read_uvarint(data, position)
    if topics != 2:
        raise LoadError("Fetch was not answered for one topic")
    name, position = _read_uvarint(data, position)
    position += name - 1
    partitions, position = _read_uvarint(data, position)
    if partitions != 2:
        raise LoadError("Fetch was not answered for one partition")
    _, error, high_watermark = struct.unpack_from(">ihq", data, position)
    position += 14 + 16  # the two offsets after the high watermark
    count, position = _read_uvarint(data, position)
    aborted: list[tuple[int, int]] = []
    for _ in range(count - 1):
        aborted.append(_ABORTED.unpack_from(data, position))
        position += _ABORTED.size + 1  # and no tags
    size, position = _read_uvarint(data, position + 4)  # preferred replica
    return FetchAnswer(error, high_watermark, position, max(size - 1, 0), tuple(aborted))


def _read_uvarint(data: memoryview | bytearray | bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def next_offset(data: memoryview | bytearray | bytes, position: int, size: int) -> tuple[int, int]:
    """Walks the batches in `size` bytes from `position`. Returns (offset after the last whole one, their
    number).

    Returns (-1, 0) if not even one is whole; a torn one at the end is legal (a server may cut at max_bytes).
    """
    end, after, count = position + size, -1, 0
    while position + LAST_OFFSET_DELTA + 4 <= end:
        base, length = _PREFIX.unpack_from(data, position)
        if position + BATCH_PREFIX + length > end:
            break
        after = base + _INT32.unpack_from(data, position + LAST_OFFSET_DELTA)[0] + 1
        position += BATCH_PREFIX + length
        count += 1
    return after, count
