"""The codec of what consumers repeat at each poll: OffsetCommit 2-9 and Heartbeat 0-4.

    OffsetCommit request:  group_id, generation int32, member_id, 7+: group_instance_id,
                           2-4: retention_ms int64,
                           [name, [index int32, offset int64, 6+: leader_epoch int32, metadata]]
    OffsetCommit response: 3+: throttle_time_ms int32, [name, [index int32, error int16]]
    Heartbeat request:     group_id, generation int32, member_id, 3+: group_instance_id
    Heartbeat response:    1+: throttle_time_ms int32, error int16

OffsetCommit is flexible from version 8 on, Heartbeat from version 4 on. Tagged fields are skipped in
requests and omitted from responses. `schema` reads and writes the same messages from their descriptors: it
serves the requests that this path leaves to it, and is the reference in tests. Text with U+FFFD is left to it
as well: it may stand for bytes that are not UTF-8, which `schema` refuses.

Source: OffsetCommitRequest.json, HeartbeatRequest.json and their responses of Apache Kafka's message schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from treecast.middleware.wire.kafka_primitives import Reader, put_count, put_name

FLEXIBLE_COMMIT: Final = 8
FLEXIBLE_HEARTBEAT: Final = 4
_INSTANCE_COMMIT: Final = 7  # the first version with a group instance id
_INSTANCE_HEARTBEAT: Final = 3
_EPOCHS: Final = 6  # the first version with leader epochs
_RETENTION_UNTIL: Final = 4
_THROTTLE_COMMIT: Final = 3
_THROTTLE_HEARTBEAT: Final = 1
_SMALLEST_TOPIC: Final = 2
_SMALLEST_PARTITION: Final = 13  # index, offset and null metadata of a compact string
_REPLACED: Final = "\ufffd"

_FRAME: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">ih")
_PARTITION_FLEXIBLE: Final = struct.Struct(">ihb")
_HEARTBEAT_0: Final = struct.Struct(">iih")
_HEARTBEAT_1: Final = struct.Struct(">iiih")
_HEARTBEAT_4: Final = struct.Struct(">iibihb")


class CommitRequest:
    """An OffsetCommit request. The lists of partitions have one element for each partition of the request, in
    its order; `counts` says how many belong to each of `topics`. A null `metadata` is empty.
    """

    def __init__(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> None:
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics: list[str] = []
        self.counts: list[int] = []
        self.partitions: list[int] = []
        self.offsets: list[int] = []
        self.leader_epochs: list[int] = []
        self.metadata: list[str] = []


class HeartbeatRequest:
    """A Heartbeat request."""

    def __init__(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> None:
        self.group_id = group_id
        self.generation = generation
        self.member_id = member_id
        self.instance_id = instance_id


def _is_plain(text: str) -> bool:
    return text.isascii() or _REPLACED not in text


def decode_commit(frame: memoryview, body: int, version: int) -> CommitRequest | None:
    """Reads the request from `body` on; None if it is left to `schema`. Raises RemoteCodecError.

    Trailing bytes are ignored, as in Kafka.
    """
    reader = Reader(frame, body)
    compact = version >= FLEXIBLE_COMMIT
    group_id = reader.string(compact)
    generation = reader.int32()
    member_id = reader.string(compact)
    instance_id = reader.nullable_string(compact) if version >= _INSTANCE_COMMIT else None
    request = CommitRequest(group_id, generation, member_id, instance_id)
    if version <= _RETENTION_UNTIL:
        reader.int64()
    for _ in range(reader.count(_SMALLEST_TOPIC, compact)):
        request.topics.append(reader.string(compact))
        count = reader.count(_SMALLEST_PARTITION, compact)
        request.counts.append(count)
        for _ in range(count):
            _decode_partition(reader, request, version, compact)
        if compact:
            reader.skip_tagged_fields()
    if compact:
        reader.skip_tagged_fields()
    return request if _all_plain(request) else None


def _all_plain(request: CommitRequest) -> bool:
    if not (_is_plain(request.group_id) and _is_plain(request.member_id)):
        return False
    if request.instance_id is not None and not _is_plain(request.instance_id):
        return False
    plain = True
    for text in request.topics:
        plain = plain and _is_plain(text)
    for text in request.metadata:
        plain = plain and _is_plain(text)
    return plain


def _decode_partition(reader: Reader, request: CommitRequest, version: int, compact: bool) -> None:
    request.partitions.append(reader.int32())
    request.offsets.append(reader.int64())
    request.leader_epochs.append(reader.int32() if version >= _EPOCHS else -1)
    request.metadata.append(reader.nullable_string(compact) or "")
    if compact:
        reader.skip_tagged_fields()


def encode_commit_answer(
    correlation_id: int, version: int, request: CommitRequest, codes: Sequence[int] | None
) -> bytearray:
    """Returns the framed response. `codes`: of each partition in the request's order; None: no errors."""
    compact = version >= FLEXIBLE_COMMIT
    out = bytearray(_FRAME.size)
    if compact:
        out.append(0)  # the header's tagged fields
    if version >= _THROTTLE_COMMIT:
        out += _INT32.pack(0)
    put_count(out, len(request.topics), compact)
    place = 0
    for topic, count in zip(request.topics, request.counts, strict=True):
        put_name(out, topic, compact)
        put_count(out, count, compact)
        for _ in range(count):
            code = 0 if codes is None else codes[place]
            index = request.partitions[place]
            out += _PARTITION_FLEXIBLE.pack(index, code, 0) if compact else _PARTITION.pack(index, code)
            place += 1
        if compact:
            out.append(0)
    if compact:
        out.append(0)
    _FRAME.pack_into(out, 0, len(out) - _INT32.size, correlation_id)
    return out


def decode_heartbeat(frame: memoryview, body: int, version: int) -> HeartbeatRequest | None:
    """As `decode_commit`."""
    reader = Reader(frame, body)
    compact = version >= FLEXIBLE_HEARTBEAT
    group_id = reader.string(compact)
    generation = reader.int32()
    member_id = reader.string(compact)
    instance_id = reader.nullable_string(compact) if version >= _INSTANCE_HEARTBEAT else None
    if compact:
        reader.skip_tagged_fields()
    if not (_is_plain(group_id) and _is_plain(member_id) and _is_plain(instance_id or "")):
        return None
    return HeartbeatRequest(group_id, generation, member_id, instance_id)


def encode_heartbeat_answer(correlation_id: int, version: int, code: int) -> bytes:
    """Returns the framed response."""
    if version >= FLEXIBLE_HEARTBEAT:
        return _HEARTBEAT_4.pack(_HEARTBEAT_4.size - 4, correlation_id, 0, 0, code, 0)
    if version >= _THROTTLE_HEARTBEAT:
        return _HEARTBEAT_1.pack(_HEARTBEAT_1.size - 4, correlation_id, 0, code)
    return _HEARTBEAT_0.pack(_HEARTBEAT_0.size - 4, correlation_id, code)
