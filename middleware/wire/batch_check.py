"""The checks that a broker makes on record batches before it accepts them."""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Compression

from .batch_header import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    set_time,
)
from .compression import MAX_UNCOMPRESSED_BYTES, decompress
from .crc import crc32c
from .record_walk import RecordFacts, walk_records

_INT64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
_LAST_COMPRESSION: Final = 4  # Compression.ZSTD, as a number that the compiler knows


def check_batches(
    data: memoryview,
    max_batch_bytes: int,
    *,
    deep: bool = True,
    single: bool = False,
    summed: bool = True,
    max_uncompressed_bytes: int = MAX_UNCOMPRESSED_BYTES,
) -> list[BatchHeader]:
    """Returns the headers of a producer's data: whole batches only, each valid by the rules of Kafka's
    broker.

    Always checks structure, magic, size, CRC-32C, counts against offsets, and attributes. With `deep` it also
    checks every record (decompressed, up to `max_uncompressed_bytes`): their number, sizes and offset deltas.
    The header then holds the true times; a wrong `maxTimestamp` is corrected in place with its CRC, so `data`
    must be writable. `single` refuses more than one batch, as Produce does. Not `summed`: a CRC of 0 stands
    for none.

    Raises UNSUPPORTED_BATCH_FORMAT, CORRUPT_BATCH, BATCH_TOO_LARGE, UNSUPPORTED_COMPRESSION,
    INVALID_TIMESTAMP or INVALID_RECORD. The rules are those of Kafka's `LogValidator` and `UnifiedLog`, with
    one stricter: offset deltas other than 0, 1, 2... are refused, not rewritten, whatever the compression.
    """
    headers: list[BatchHeader] = []
    position = 0
    end = len(data)
    while position < end:
        if single and headers:
            raise TreecastError(Fault.INVALID_RECORD, "only one record batch per partition is allowed")
        header = _check_structure(data, position, max_batch_bytes, summed)
        _check_claims(header)
        if deep:
            _check_records(data, position, header, max_uncompressed_bytes)
        headers.append(header)
        position += header.size
    if not headers:
        raise TreecastError(Fault.INVALID_RECORD, "at least one record batch per partition is needed")
    return headers


def _check_structure(data: memoryview, position: int, max_batch_bytes: int, summed: bool) -> BatchHeader:
    """Checks size, magic and CRC, from the outside in, and returns the header."""
    left = len(data) - position
    if left < HEADER_SIZE:
        if left > MAGIC_AT:
            _check_magic(data[position + MAGIC_AT])
        raise TreecastError(Fault.CORRUPT_BATCH, "the data ends inside a batch header")
    header = read_header(data, position)
    _check_magic(header.magic)
    if header.size < HEADER_SIZE:
        raise TreecastError(Fault.CORRUPT_BATCH, f"a batch claims a size of {header.size} bytes")
    if header.size > max_batch_bytes:
        raise TreecastError(
            Fault.BATCH_TOO_LARGE, f"the batch has {header.size} bytes, {max_batch_bytes} are allowed"
        )
    if header.size > left:
        raise TreecastError(Fault.CORRUPT_BATCH, f"a batch of {header.size} bytes is cut off at {left}")
    if (summed or header.crc) and header.crc != crc32c(
        data[position + ATTRIBUTES_AT : position + header.size]
    ):
        raise TreecastError(Fault.CORRUPT_BATCH, "a batch fails its CRC-32C")
    return header


def _check_magic(magic: int) -> None:
    if magic != MAGIC:
        raise TreecastError(
            Fault.UNSUPPORTED_BATCH_FORMAT, f"a batch has magic {magic}, only magic {MAGIC} is allowed"
        )


def _check_claims(header: BatchHeader) -> None:
    """Checks that the header's fields are consistent."""
    if header.count <= 0 or header.last_offset_delta != header.count - 1:
        raise TreecastError(
            Fault.INVALID_RECORD,
            f"a batch claims {header.count} records and a last offset delta of {header.last_offset_delta}",
        )
    if header.attributes & (CONTROL_BIT | DELETE_HORIZON_BIT):
        raise TreecastError(Fault.INVALID_RECORD, "clients are not allowed to write control records")
    if header.compression > _LAST_COMPRESSION:
        raise TreecastError(
            Fault.UNSUPPORTED_COMPRESSION, f"compression codec {header.compression} is unknown"
        )
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise TreecastError(
            Fault.INVALID_TIMESTAMP, "a producer must not set the timestamp type to LogAppendTime"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise TreecastError(
            Fault.INVALID_RECORD,
            f"producer {header.producer_id} sent epoch {header.producer_epoch}"
            f" and sequence {header.base_sequence}",
        )
    if header.producer_id < 0 and header.attributes & TRANSACTIONAL_BIT:
        raise TreecastError(Fault.INVALID_RECORD, "a transactional batch names no producer")


def _check_records(data: memoryview, position: int, header: BatchHeader, limit: int) -> None:
    start = position + HEADER_SIZE
    payload = data[start : position + header.size]
    records: bytes
    if header.compression == 0:
        records = bytes(payload)
    else:
        records = decompress(Compression(header.compression), payload, limit)
    facts: RecordFacts
    try:
        facts = walk_records(records, 0, header.count)
    except ValueError as error:
        raise TreecastError(Fault.INVALID_RECORD, f"a batch's records are wrong: {error}") from None
    header.first_keyless = facts.first_keyless
    header.min_timestamp = header.base_timestamp + facts.min_delta
    max_timestamp = header.base_timestamp + facts.max_delta
    if max_timestamp > _INT64_MAX or header.min_timestamp < -_INT64_MAX:
        raise TreecastError(Fault.INVALID_TIMESTAMP, "a record's timestamp takes more than 64 bits")
    if max_timestamp != header.max_timestamp:
        header.crc = set_time(data, position, header.size, header.attributes, max_timestamp)
        header.max_timestamp = max_timestamp
