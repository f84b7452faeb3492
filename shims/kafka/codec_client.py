"""The client's end of the Kafka codec: Fetch and Produce on the hot path, all other calls by their
descriptors.

An agent asks a Kafka cluster with the messages that the face reads and writes (`codec`, `codec_fetch`,
`schema`). Records stay views of the frame in which they arrived.

    fetch response 12+, tagged fields of a partition: 0: the offset where the reader's log and the leader's
    part (leader epoch int32, end offset int64, tags; KIP-595), 1: the current leader (id int32, epoch int32,
    tags)

A version of an API that both ends know is `shared_version`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from treecast.middleware.wire.kafka_primitives import (
    LocalCodecError,
    Reader,
    RemoteCodecError,
    put_count,
    put_string,
)

from .codec import FLEXIBLE as FLEXIBLE_PRODUCE
from .codec_fetch import FLEXIBLE, TOPIC_IDS
from .messages import MalformedMessage, Row
from .messages import Reader as MessageReader
from .schema import request_message, response_message
from .versions import APIS, FETCH, PRODUCE

_HEAD: Final = struct.Struct(">ihhi")
_INT32: Final = struct.Struct(">i")
_ASKED: Final = struct.Struct(">iiiib")
_SESSION: Final = struct.Struct(">ii")
_PRODUCED: Final = struct.Struct(">hi")
_SMALLEST_TOPIC: Final = 2
_SMALLEST_RESULT: Final = 30
_SMALLEST_PRODUCED: Final = 22
_DIVERGING_TAG: Final = 0
_LEADER_TAG: Final = 1
_NO_REPLICA_ID: Final = 15
_CORRELATION: Final = 4


class Asked(Struct, frozen=True):
    """A partition to fetch. `topic_id`: 16 bytes. `last_epoch`: of the last record before `offset`, -1 if
    unknown."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_epoch: int = -1
    log_start: int = -1


class Fetched(Struct):
    """The answer for one partition. `records` is a view of the frame; its last batch may be cut off.

    `diverging`: (leader epoch, its end offset) if the reader's log parts from the leader's, else None.
    `leader`: (node id, leader epoch) if another node leads it, else None.
    """

    topic: str
    topic_id: bytes
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: memoryview | None = None
    diverging: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    aborted: list[tuple[int, int]] = []


class Produced(Struct, frozen=True):
    """The answer to a Produce for one partition. Absent offsets and times are -1."""

    error_code: int
    base_offset: int
    log_append_time: int
    log_start_offset: int
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()


def shared_version(key: int, theirs: Mapping[int, tuple[int, int]], most: int = 1 << 15) -> int:
    """Returns the highest version of an API that both ends know, at most `most`.

    `theirs`: API key -> (first, last), as ApiVersions answered. Raises LocalCodecError if there is none.
    """
    ours = APIS[key]
    first, last = theirs.get(key, (1, 0))
    version = min(ours.last, last, most)
    if version < max(first, ours.first):
        raise LocalCodecError(
            f"the broker serves versions {first} to {last} of {ours.name}, this end speaks"
            f" {ours.first} to {ours.last}"
        )
    return version


def _begin(key: int, version: int, correlation_id: int, client_id: str) -> bytearray:
    out = bytearray(_HEAD.pack(0, key, version, correlation_id))
    put_string(out, client_id, False)
    if version >= APIS[key].flexible:
        out += b"\0"
    return out


def _end(out: bytearray) -> bytearray:
    _INT32.pack_into(out, 0, len(out) - _INT32.size)
    return out


# --- calls off the hot path


def encode_request(
    key: int, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]
) -> bytearray:
    """Returns a framed request. Omitted fields get their defaults. Raises ValueError for what does not
    fit."""
    out = _begin(key, version, correlation_id, client_id)
    message = request_message(key, version)
    message.write(out, values)
    return _end(out)


def decode_response(key: int, version: int, frame: memoryview, *, header_tags: bool | None = None) -> Row:
    """Returns a response's fields; `frame` begins with the correlation id. Raises RemoteCodecError."""
    tags = version >= APIS[key].flexible if header_tags is None else header_tags
    try:
        reader = MessageReader(frame, _CORRELATION)
        if tags:
            for _ in range(reader.varint()):
                reader.varint()
                reader.take(reader.varint())
        return response_message(key, version).read(reader)
    except MalformedMessage as error:
        raise RemoteCodecError(f"the answer to {APIS[key].name} cannot be read: {error}") from error


def correlation_of(frame: memoryview) -> int:
    """Returns the correlation id of a response. Raises RemoteCodecError."""
    if len(frame) < _CORRELATION:
        raise RemoteCodecError(f"an answer of {len(frame)} bytes is too short")
    number: int = _INT32.unpack_from(frame)[0]
    return number


# --- Fetch


def encode_fetch_request(
    correlation_id: int,
    version: int,
    client_id: str,
    asked: Sequence[Asked],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[Asked] = (),
) -> bytearray:
    """Returns a framed request. Consecutive partitions of one topic are grouped.

    `session_epoch` -1: no fetch session (KIP-227), 0: begin one, else the partitions are those that have
    changed in session `session_id`, and `forgotten` leave it.
    """
    out = _begin(FETCH, version, correlation_id, client_id)
    compact = version >= FLEXIBLE
    fields = _ASKED.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation)
    out += fields[_INT32.size :] if version >= _NO_REPLICA_ID else fields
    if version >= 7:
        out += _SESSION.pack(session_id, session_epoch)
    _put_groups(out, asked, version, _put_asked)
    if version >= 7:
        _put_groups(out, forgotten, version, _put_number)
    if version >= 11:
        put_string(out, "", compact)
    if compact:
        out += b"\0"
    return _end(out)


def _grouped(asked: Sequence[Asked]) -> list[list[Asked]]:
    groups: list[list[Asked]] = []
    for one in asked:
        if groups and groups[-1][0].topic_id == one.topic_id and groups[-1][0].topic == one.topic:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _put_groups(
    out: bytearray, asked: Sequence[Asked], version: int, put: Callable[[bytearray, Asked, int], None]
) -> None:
    compact = version >= FLEXIBLE
    groups = _grouped(asked)
    put_count(out, len(groups), compact)
    for group in groups:
        if version >= TOPIC_IDS:
            out += group[0].topic_id
        else:
            put_string(out, group[0].topic, compact)
        put_count(out, len(group), compact)
        for one in group:
            put(out, one, version)
        if compact:
            out += b"\0"


def _put_number(out: bytearray, one: Asked, version: int) -> None:
    out += _INT32.pack(one.partition)


def _put_asked(out: bytearray, one: Asked, version: int) -> None:
    out += _INT32.pack(one.partition)
    if version >= 9:
        out += _INT32.pack(one.leader_epoch)
    out += one.offset.to_bytes(8, "big", signed=True)
    if version >= FLEXIBLE:
        out += _INT32.pack(one.last_epoch)
    if version >= 5:
        out += one.log_start.to_bytes(8, "big", signed=True)
    out += _INT32.pack(one.max_bytes)
    if version >= FLEXIBLE:
        out += b"\0"


def decode_fetch_response(frame: memoryview, version: int) -> tuple[int, int, list[Fetched]]:
    """Returns (error code of the whole, session id, the partitions); `frame` begins with the correlation id.

    In a session, partitions without news are left out.

    Raises RemoteCodecError.
    """
    reader = Reader(frame, _CORRELATION)
    compact = version >= FLEXIBLE
    if compact:
        reader.skip_tagged_fields()
    reader.int32()  # throttle time
    error_code = session_id = 0
    if version >= 7:
        error_code = reader.int16()
        session_id = reader.int32()
    found: list[Fetched] = []
    for _ in range(reader.count(_SMALLEST_TOPIC, compact)):
        topic = reader.string(compact) if version < TOPIC_IDS else ""
        topic_id = reader.uuid() if version >= TOPIC_IDS else b""
        for _ in range(reader.count(_SMALLEST_RESULT, compact)):
            found.append(_fetched(reader, topic, topic_id, version))
        if compact:
            reader.skip_tagged_fields()
    return error_code, session_id, found


def _fetched(reader: Reader, topic: str, topic_id: bytes, version: int) -> Fetched:
    compact = version >= FLEXIBLE
    one = Fetched(topic, topic_id, reader.int32(), reader.int16(), reader.int64(), reader.int64())
    if version >= 5:
        one.log_start_offset = reader.int64()
    aborted: list[tuple[int, int]] = []
    for _ in range(reader.nullable_count(16, compact)):
        aborted.append((reader.int64(), reader.int64()))
        if compact:
            reader.skip_tagged_fields()
    one.aborted = aborted
    if version >= 11:
        reader.int32()  # preferred read replica
    one.records = reader.nullable_bytes(compact)
    if compact:
        _read_tags(reader, one)
    return one


def _read_tags(reader: Reader, one: Fetched) -> None:
    for _ in range(reader.uvarint()):
        tag = reader.uvarint()
        end = reader.uvarint() + reader.position
        if tag == _DIVERGING_TAG:
            one.diverging = reader.int32(), reader.int64()
        elif tag == _LEADER_TAG:
            one.leader = reader.int32(), reader.int32()
        if reader.position > end:
            raise RemoteCodecError(f"tagged field {tag} is too short")
        while reader.position < end:
            reader.int8()


# --- Produce


def encode_produce_request(
    correlation_id: int,
    version: int,
    client_id: str,
    topic: str,
    partition: int,
    records: memoryview,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
) -> list[bytes | bytearray | memoryview]:
    """Returns the frame of a request for one partition, in pieces: the records are not copied."""
    out = _begin(PRODUCE, version, correlation_id, client_id)
    compact = version >= FLEXIBLE_PRODUCE
    put_string(out, transactional_id, compact)
    out += _PRODUCED.pack(acks, timeout_ms)
    put_count(out, 1, compact)
    put_string(out, topic, compact)
    put_count(out, 1, compact)
    out += _INT32.pack(partition)
    put_count(out, len(records), compact)
    tail = b"\0\0\0" if compact else b""
    _INT32.pack_into(out, 0, len(out) + len(records) + len(tail) - _INT32.size)
    return [out, records, tail]


def decode_produce_response(frame: memoryview, version: int) -> Produced:
    """Returns the answer for the one partition of a request. Raises RemoteCodecError."""
    reader = Reader(frame, _CORRELATION)
    compact = version >= FLEXIBLE_PRODUCE
    if compact:
        reader.skip_tagged_fields()
    topics = reader.count(_SMALLEST_TOPIC, compact)
    if topics != 1:
        raise RemoteCodecError(f"the answer to a Produce for one topic has {topics}")
    reader.string(compact)
    partitions = reader.count(_SMALLEST_PRODUCED, compact)
    if partitions != 1:
        raise RemoteCodecError(f"the answer to a Produce for one partition has {partitions}")
    reader.int32()
    code, base, time = reader.int16(), reader.int64(), reader.int64()
    start = reader.int64() if version >= 5 else -1
    errors: list[tuple[int, str]] = []
    message: str | None = None
    if version >= 8:
        for _ in range(reader.count(6 - 2 * compact, compact)):
            index, text = reader.int32(), reader.nullable_string(compact)
            errors.append((index, text or ""))
            if compact:
                reader.skip_tagged_fields()
        message = reader.nullable_string(compact)
    return Produced(code, base, time, start, message, tuple(errors))


__all__ = [
    "Asked",
    "Fetched",
    "Produced",
    "correlation_of",
    "decode_fetch_response",
    "decode_produce_response",
    "decode_response",
    "encode_fetch_request",
    "encode_produce_request",
    "encode_request",
    "shared_version",
]
