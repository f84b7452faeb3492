"""Record batches built from values and read into values, for code off the hot path.

Control records (KIP-98) are the markers that end a transaction. Their key is version (int16, 0) and type
(int16); their value is version (int16, 0) and the coordinator's epoch (int32).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_LEADER_EPOCH, NO_PRODUCER, NO_SEQUENCE, ProducerIdentity
from treecast.middleware.model.records import Compression, Headers, Record, TimestampType

from .batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Data,
    joined,
    patch_batch,
    read_varint,
    read_varlong,
    set_time,
    varlong_size,
    write_varlong,
)
from .compression import MAX_UNCOMPRESSED_BYTES, compress, decompress

ABORT: Final = 0
COMMIT: Final = 1

_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_VALUE: Final = struct.Struct(">hi")
_PRODUCER_AT: Final = 43
_PRODUCER: Final = struct.Struct(">qhi")  # producer id, its epoch, base sequence


def sign_batch(
    data: memoryview, position: int, header: BatchHeader, producer: ProducerIdentity, base_sequence: int
) -> None:
    """Makes a batch that of a transaction of `producer`, at offset 0: only fields of its header change.

    `header` is that of the batch as it is. Its records must have offset deltas 0, 1, 2...
    """
    patch_batch(data, position, 0, NO_LEADER_EPOCH)
    _PRODUCER.pack_into(data, position + _PRODUCER_AT, producer.producer_id, producer.epoch, base_sequence)
    attributes = header.attributes | TRANSACTIONAL_BIT
    set_time(data, position, header.size, attributes, header.max_timestamp)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    producer: ProducerIdentity = NO_PRODUCER,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
    delete_horizon: int | None = None,
) -> bytes:
    """Returns a batch of `records`.

    A record's `offset` is used if it is at least `base_offset` (so compaction keeps gaps); otherwise it
    follows the previous record's. `last_offset_delta` and `max_timestamp` default to the records' own values.
    Compaction passes the old batch's last offset delta, and may then keep a batch without records.
    `delete_horizon` (ms, KIP-534) replaces `baseTimestamp`.
    """
    attributes = int(compression)
    attributes |= LOG_APPEND_TIME_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    attributes |= DELETE_HORIZON_BIT if delete_horizon is not None else 0
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    body, last = _encode_records(records, base_offset, base_timestamp)
    if last_offset_delta is not None:
        last = last_offset_delta
    times = (base_timestamp, max_timestamp)
    return _sealed(
        body, attributes, last, times, producer, base_sequence, len(records), base_offset, leader_epoch
    )


def seal_batch(
    body: Data,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    compression: Compression = Compression.NONE,
    producer: ProducerIdentity = NO_PRODUCER,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytes:
    """Returns a producer's batch of `count` already encoded records, with offset deltas from 0."""
    attributes = int(compression) | (TRANSACTIONAL_BIT if transactional else 0)
    times = (base_timestamp, max_timestamp)
    return _sealed(body, attributes, count - 1, times, producer, base_sequence, count, 0, NO_LEADER_EPOCH)


def _sealed(
    body: Data,
    attributes: int,
    last_offset_delta: int,
    times: tuple[int, int],
    producer: ProducerIdentity,
    base_sequence: int,
    count: int,
    base_offset: int,
    leader_epoch: int,
) -> bytes:
    """Returns header and payload. `times` are the base and the largest timestamp."""
    payload = compress(Compression(attributes & COMPRESSION_MASK), body)
    return joined(
        [payload],
        attributes,
        last_offset_delta,
        times,
        producer,
        base_sequence,
        count,
        base_offset,
        leader_epoch,
    )


def rebuild_batch(header: BatchHeader, records: Sequence[Record], horizon: int | None) -> bytes:
    """Returns the batch of `header` with only `records`: same offsets, sequence and codec.

    `horizon` is its delete horizon (ms, KIP-534), or None.
    """
    stamped = header.log_append_time
    return build_batch(
        records,
        base_offset=header.base_offset,
        compression=Compression(header.compression) if records else Compression.NONE,
        producer=ProducerIdentity(header.producer_id, header.producer_epoch),
        base_sequence=header.base_sequence,
        transactional=header.transactional,
        control=header.control,
        leader_epoch=header.leader_epoch,
        timestamp_type=TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME,
        max_timestamp=header.max_timestamp if stamped or not records else None,
        last_offset_delta=header.last_offset_delta,
        delete_horizon=horizon,
    )


def recompress_batch(data: Data, position: int, header: BatchHeader, codec: Compression, limit: int) -> bytes:
    """Returns the batch at `position` with the same records in another codec, and without offset and epoch.

    Raises BATCH_TOO_LARGE if its records have more than `limit` bytes.
    """
    payload = memoryview(data)[position + HEADER_SIZE : position + header.size]
    return _sealed(
        decompress(Compression(header.compression), payload, limit),
        header.attributes & ~COMPRESSION_MASK | codec,
        header.last_offset_delta,
        (header.base_timestamp, header.max_timestamp),
        ProducerIdentity(header.producer_id, header.producer_epoch),
        header.base_sequence,
        header.count,
        header.base_offset,
        NO_LEADER_EPOCH,
    )


def _encode_records(
    records: Sequence[Record], base_offset: int, base_timestamp: int
) -> tuple[bytearray, int]:
    """Returns the records' bytes and the last offset delta (-1 without records)."""
    out = bytearray()
    delta = -1
    for record in records:
        delta = record.offset - base_offset if record.offset >= base_offset + delta + 1 else delta + 1
        encode_record(out, record, record.timestamp - base_timestamp, delta)
    return out, delta


def encode_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    """Appends one record with its length."""
    body = bytearray(b"\0")
    write_varlong(body, timestamp_delta)
    write_varlong(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    _write_headers(body, record.headers)
    write_varlong(out, len(body))
    out += body


def encode_around(size: int, headers: Headers, offset_delta: int) -> tuple[bytearray, bytearray]:
    """Returns the bytes before and after a value of `size` bytes in a keyless record of the batch's time."""
    before, behind = bytearray(b"\0\0"), bytearray()
    write_varlong(before, offset_delta)
    _write_bytes(before, None)
    write_varlong(before, size)
    _write_headers(behind, headers)
    length = bytearray()
    write_varlong(length, len(before) + size + len(behind))
    return length + before, behind


def _write_headers(out: bytearray, headers: Headers) -> None:
    write_varlong(out, len(headers))
    for name, value in headers:
        _write_bytes(out, name.encode("utf-8", "surrogateescape"))
        _write_bytes(out, value)


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # -1
    else:
        write_varlong(out, len(value))
        out += value


def record_size(record: Record, timestamp_delta: int, offset_delta: int) -> int:
    """Returns the size of `encode_record`'s output, overestimated by at most 5 bytes."""
    size = 1 + varlong_size(timestamp_delta) + varlong_size(offset_delta)
    size += 10 + len(record.key or b"") + len(record.value or b"") + 5
    for name, value in record.headers:
        size += 10 + len(name.encode("utf-8", "surrogateescape")) + len(value or b"")
    return size + 5


def read_records(
    data: Data,
    position: int,
    header: BatchHeader,
    limit: int = MAX_UNCOMPRESSED_BYTES,
    at_once: int = MAX_UNCOMPRESSED_BYTES,
) -> list[Record]:
    """Returns the records of the batch at `position` with absolute offsets and times. Decompresses at most
    `limit` bytes. Raises Unfinished if the batch is not too large, and has more than `at_once` bytes then.
    """
    begin, end = position + HEADER_SIZE, position + header.size
    if header.compression > Compression.ZSTD:
        raise TreecastError(Fault.UNSUPPORTED_COMPRESSION, f"compression codec {header.compression}")
    records: bytes
    if isinstance(data, bytes) and header.compression == 0 and end - begin <= limit and end <= len(data):
        records = data  # read where they lie
    else:
        payload = memoryview(data)[begin:end]
        records = decompress(Compression(header.compression), payload, limit, at_once)
        begin, end = 0, len(records)
    try:
        return _decode_records(records, begin, end, header)
    except (IndexError, ValueError) as error:
        raise TreecastError(Fault.CORRUPT_BATCH, f"a batch's records are wrong: {error}") from error


def _decode_records(data: bytes, position: int, all_end: int, header: BatchHeader) -> list[Record]:
    """Those between two places."""
    records: list[Record] = []
    for _ in range(header.count):
        length, position = read_varint(data, position)
        end = position + length
        if not 0 < length <= all_end - position:
            raise ValueError("a record is longer than the batch")
        timestamp_delta, position = read_varlong(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        headers, position = _read_headers(data, position, end)
        if position != end:
            raise ValueError("a record's parts do not fill it")
        timestamp = (
            header.max_timestamp if header.log_append_time else header.base_timestamp + timestamp_delta
        )
        records.append(Record(key, value, headers, timestamp, header.base_offset + offset_delta))
    if position != all_end:
        raise ValueError("bytes are left after the last record")
    return records


def _read_headers(data: bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if count == 0:
        return (), position
    if not 0 < count <= end - position:
        raise ValueError(f"a record cannot have {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise ValueError("a header has no key")
        value, position = _read_bytes(data, position, end)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise ValueError(f"a length of {length} does not fit the record")
    return data[position : position + length], position + length


def control_marker(
    kind: int,
    producer: ProducerIdentity,
    *,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Returns the batch that ends a transaction of `producer`: `kind` is COMMIT or ABORT."""
    marker = Record(_CONTROL_KEY.pack(0, kind), _CONTROL_VALUE.pack(0, coordinator_epoch), (), timestamp)
    return build_batch(
        [marker],
        base_offset=base_offset,
        producer=producer,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def read_control_type(data: Data, position: int, header: BatchHeader) -> int:
    """Returns COMMIT, ABORT, or a type of later Kafka versions. Raises CORRUPT_BATCH if there is none."""
    records = read_records(data, position, header)
    key = records[0].key if records else None
    if not header.control or key is None or len(key) < _CONTROL_KEY.size:
        raise TreecastError(Fault.CORRUPT_BATCH, "a control batch has no type")
    kind: int = _CONTROL_KEY.unpack_from(key, 0)[1]
    return kind
