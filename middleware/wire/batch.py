"""Record batches of magic 2 as bytes: the header, the fields that a broker writes in place, and its checks.

Source: Kafka's protocol guide, "Record Batch"; KIP-98. All numbers are big-endian.

     0  baseOffset int64            21  attributes int16           43  producerId int64
     8  batchLength int32 (*)       23  lastOffsetDelta int32      51  producerEpoch int16
    12  partitionLeaderEpoch int32  27  baseTimestamp int64 (ms)   53  baseSequence int32
    16  magic int8                  35  maxTimestamp int64 (ms)    57  recordCount int32
    17  crc uint32 (**)                                            61  records

    (*)  bytes after this field        (**) CRC-32C of everything from `attributes` to the end

    attributes: 0-2 compression, 3 timestamp type (1: log append time), 4 transactional, 5 control,
                6 baseTimestamp is a delete horizon (KIP-534; the broker's own)

A record, after Kafka's protocol guide ("Record", magic 2); every number but `attributes` is a varint: zigzag,
then 7 bits a byte, lowest first (up to 5 bytes; a varlong up to 10), after Protocol Buffers' encoding:

  length | attributes (int8) | timestampDelta | offsetDelta | keyLength | key | valueLength | value
         | headerCount | (keyLength | key | valueLength | value)*

A key, value or header value of length -1 is null.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_LEADER_EPOCH, NO_PRODUCER, NO_SEQUENCE, ProducerIdentity
from treecast.middleware.model.records import Compression

from .compression import MAX_UNCOMPRESSED_BYTES, RECORD_BYTES, decompress, most_uncompressed
from .crc import crc32c

LOG_OVERHEAD: Final = 12  # baseOffset and batchLength
HEADER_SIZE: Final = 61
MAGIC: Final = 2
NO_TIMESTAMP: Final = -1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

MAGIC_AT: Final = 16
_CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_START: Final = struct.Struct(">qiibI")
_REST: Final = struct.Struct(">hiqqqhii")  # from `attributes` on: the part that the CRC covers
_SIZE: Final = struct.Struct(">qi")
_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")

_INT64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
_LAST_COMPRESSION: Final = 4  # Compression.ZSTD, as a number that the compiler knows
_CONTINUED: Final = 0x80  # a varint's byte with this bit is followed by another
_LOW: Final = 0x7F  # the bits of such a byte that belong to the number
_SMALLEST_RECORD: Final = 7  # bytes: each field takes one
_NULL: Final = 1  # the length -1 as a varint
_LOW_63_BITS: Final = 0x7FFF_FFFF_FFFF_FFFF

Data = memoryview | bytes | bytearray


class BatchHeader:
    """A batch's header. `size` counts the whole batch in bytes; times are ms since the Unix epoch.

    Known after a deep check: `first_keyless`, the index of the first record without a key (-1 if every record
    has one), `min_timestamp`, the oldest record's time, and `record_bytes`, of the decompressed records.
    """

    def __init__(
        self,
        base_offset: int,
        size: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        count: int,
    ) -> None:
        self.base_offset = base_offset
        self.size = size
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes: Final = attributes
        self.compression: Final = attributes & COMPRESSION_MASK  # Compression, or 5 to 7: unknown
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.count = count
        self.first_keyless = -1
        self.min_timestamp = base_timestamp
        self.record_bytes = 0

    @property
    def log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number. Sequences wrap from 2^31 - 1 to 0 (KIP-98)."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    def follows(self, before: BatchHeader) -> bool:
        """Whether the same idempotent producer sent this one right after `before`."""
        return (
            self.producer_id == before.producer_id
            and self.producer_epoch == before.producer_epoch
            and self.base_sequence == (before.last_sequence + 1) & 0x7FFF_FFFF
            and self.transactional == before.transactional
        )


def read_header(data: Data, position: int) -> BatchHeader:
    """Returns the header at `position` and checks nothing else. Raises CORRUPT_BATCH if `data` ends inside
    it.
    """
    if position < 0 or position + HEADER_SIZE > len(data):
        raise TreecastError(Fault.CORRUPT_BATCH, "the data ends inside a batch header")
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _HEADER.unpack_from(data, position)
    return BatchHeader(
        base_offset,
        length + LOG_OVERHEAD,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )


def seal_pieces(pieces: Sequence[Data], count: int, timestamp: int, *, summed: bool = True) -> bytes:
    """Returns a batch of `count` encoded records with offset deltas from 0 on, all of one time. The pieces
    are copied once. Not `summed`: the CRC is 0, for data that a tag protects."""
    times = (timestamp, timestamp)
    return joined(
        pieces, 0, count - 1, times, NO_PRODUCER, NO_SEQUENCE, count, 0, NO_LEADER_EPOCH, summed=summed
    )


def joined(
    pieces: Sequence[Data],
    attributes: int,
    last_offset_delta: int,
    times: tuple[int, int],
    producer: ProducerIdentity,
    base_sequence: int,
    count: int,
    base_offset: int,
    leader_epoch: int,
    *,
    summed: bool = True,
) -> bytes:
    """Returns a header and the pieces. `times` are the base and the largest timestamp."""
    rest = _REST.pack(
        attributes,
        last_offset_delta,
        times[0],
        times[1],
        producer.producer_id,
        producer.epoch,
        base_sequence,
        count,
    )
    length = HEADER_SIZE - LOG_OVERHEAD
    crc = crc32c(rest) if summed else 0
    for piece in pieces:
        length += len(piece)
        if summed:
            crc = crc32c(piece, crc)
    start = _START.pack(base_offset, length, leader_epoch, MAGIC, crc)
    return b"".join([start, rest, *pieces])


def patch_batch(data: memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Writes the batch's base offset and leader epoch. The CRC covers neither field."""
    _BASE_OFFSET.pack_into(data, position, base_offset)
    _LEADER_EPOCH.pack_into(data, position + LOG_OVERHEAD, leader_epoch)


def stamp_append_time(data: memoryview, position: int, now_ms: int) -> None:
    """Sets the time of all the batch's records to `now_ms`: the type bit, `maxTimestamp` and the CRC."""
    attributes: int = _ATTRIBUTES.unpack_from(data, position + ATTRIBUTES_AT)[0]
    length: int = _SIZE.unpack_from(data, position)[1]
    set_time(data, position, length + LOG_OVERHEAD, attributes | LOG_APPEND_TIME_BIT, now_ms)


def set_time(data: memoryview, position: int, size: int, attributes: int, max_timestamp: int) -> int:
    """Writes attributes and `maxTimestamp` of a batch of `size` bytes, then its CRC, and returns the CRC."""
    _ATTRIBUTES.pack_into(data, position + ATTRIBUTES_AT, attributes)
    _BASE_OFFSET.pack_into(data, position + _MAX_TIMESTAMP_AT, max_timestamp)
    crc: int = crc32c(data[position + ATTRIBUTES_AT : position + size])
    _CRC.pack_into(data, position + _CRC_AT, crc)
    return crc


# --- checks


def check_batches(
    data: memoryview,
    max_batch_bytes: int,
    *,
    deep: bool = True,
    single: bool = False,
    summed: bool = True,
    at_once: int = MAX_UNCOMPRESSED_BYTES,
) -> list[BatchHeader]:
    """Returns the headers of a producer's data: whole batches only, each valid by the rules of Kafka's
    broker.

    Always checks structure, magic, size, CRC-32C, counts against offsets, and attributes. With `deep` it also
    checks every record (decompressed, within `most_uncompressed`): their number, sizes and offset deltas.
    The header then holds the true times; a wrong `maxTimestamp` is corrected in place with its CRC, so `data`
    must be writable. `single` refuses more than one batch, as Produce does. Not `summed`: a CRC of 0 stands
    for none.

    Raises UNSUPPORTED_BATCH_FORMAT, CORRUPT_BATCH, BATCH_TOO_LARGE, UNSUPPORTED_COMPRESSION,
    INVALID_TIMESTAMP or INVALID_RECORD; Unfinished if a batch that is not too large decompresses to more than
    `at_once` bytes. The rules are those of Kafka's `LogValidator` and `UnifiedLog`, with one stricter: offset
    deltas other than 0, 1, 2... are refused, not rewritten, whatever the compression.
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
            _check_records(data, position, header, max_batch_bytes, at_once)
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


def _check_records(data: memoryview, position: int, header: BatchHeader, most: int, at_once: int) -> None:
    """`most`: the largest batch, in bytes."""
    start = position + HEADER_SIZE
    payload = data[start : position + header.size]
    records: bytes
    if header.compression == 0:
        records = bytes(payload)
    else:
        limit = most_uncompressed(most)
        records = decompress(Compression(header.compression), payload, limit, at_once)
        if limit // RECORD_BYTES < header.count <= len(records) // _SMALLEST_RECORD:
            raise TreecastError(
                Fault.BATCH_TOO_LARGE,
                f"the compressed batch has {header.count} records, more than {limit // RECORD_BYTES}:"
                " send smaller batches",
            )
    header.record_bytes = len(records)
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


# --- records


class RecordFacts:
    """The result of a walk: the index of the first record without a key (-1 if all have one), and the time
    bounds.
    """

    def __init__(self, first_keyless: int, min_delta: int, max_delta: int) -> None:
        self.first_keyless: Final = first_keyless
        self.min_delta: Final = min_delta
        self.max_delta: Final = max_delta


def walk_records(data: bytes, position: int, count: int) -> RecordFacts:
    """Checks that `data` from `position` to its end is exactly `count` records, numbered from 0.

    Raises ValueError with the reason.
    """
    if count * _SMALLEST_RECORD > len(data) - position:
        raise ValueError(f"the records end before there are {count}")
    try:
        return _walk(data, position, count)
    except IndexError:
        raise ValueError(f"the records end before there are {count}") from None


def _walk(data: bytes, position: i64, count: i64) -> RecordFacts:
    """Walks the records. Reads varints of one and two bytes, the most common ones, in place: calls would
    double the time, which is why this function is longer than others.
    """
    size: i64 = len(data)
    first_keyless: i64 = -1
    min_delta: i64 = 0
    max_delta: i64 = 0
    number: i64 = 0
    following: i64 = 0
    index: i64 = 0
    while index < count:
        number = data[position]
        if number < _CONTINUED:
            number = (number >> 1) ^ -(number & 1)
            position += 1
        else:
            following = data[position + 1]
            if following < _CONTINUED:
                number = (number & _LOW) | following << 7
                number = (number >> 1) ^ -(number & 1)
                position += 2
            else:
                number, position = read_varint(data, position)
        if number < 0 or number > size - position:
            raise ValueError(f"record {index} is longer than the batch")
        end: i64 = position + number
        position += 1
        number = data[position]
        if number < _CONTINUED:
            number = (number >> 1) ^ -(number & 1)
            position += 1
        else:
            number, position = read_varlong(data, position)
        if index == 0:
            min_delta = max_delta = number
        elif number > max_delta:
            max_delta = number
        elif number < min_delta:
            min_delta = number
        number = data[position]
        if number < _CONTINUED:
            number = (number >> 1) ^ -(number & 1)
            position += 1
        else:
            following = data[position + 1]
            if following < _CONTINUED:
                number = (number & _LOW) | following << 7
                number = (number >> 1) ^ -(number & 1)
                position += 2
            else:
                number, position = read_varint(data, position)
        if number != index:
            raise ValueError(f"record {index} has the offset delta {number}")
        number = data[position]
        if number == _NULL:
            position += 1
            if first_keyless < 0:
                first_keyless = index
        else:
            position = _skip_bytes(data, position, end)
        position = _skip_bytes(data, position, end)
        number = data[position]
        if number == 0:
            position += 1
        else:
            number, position = read_varint(data, position)
            position = _skip_headers(data, position, number, end)
        if position != end:
            raise ValueError(f"record {index} does not have the length of its parts")
        index += 1
    if position != size:
        raise ValueError(f"bytes are left after {count} records")
    return RecordFacts(first_keyless, min_delta, max_delta)


def _skip_bytes(data: bytes, position: i64, end: i64) -> i64:
    """Returns the position after a key or value, its length included."""
    length: i64 = data[position]
    if length < _CONTINUED:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    else:
        following: i64 = data[position + 1]
        if following < _CONTINUED:
            length = (length & _LOW) | following << 7
            length = (length >> 1) ^ -(length & 1)
            position += 2
        else:
            length, position = read_varint(data, position)
    return _skip(length, position, end)


def _skip(length: i64, position: i64, end: i64) -> i64:
    """Returns the position after a key or value of `length` (-1: null)."""
    if length > end - position or length < -1:
        raise ValueError(f"a length of {length} does not fit the record")
    return position + length if length > 0 else position


def _skip_headers(data: bytes, position: i64, count: i64, end: i64) -> i64:
    if count < 0 or count > end - position:
        raise ValueError(f"a record cannot have {count} headers")
    while count > 0:
        length, position = read_varint(data, position)
        if length < 0:
            raise ValueError("a header has no key")
        position = _skip(length, position, end)
        length, position = read_varint(data, position)
        position = _skip(length, position, end)
        count -= 1
    return position


# --- varints


def read_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """Returns (number, position after it) of a varint of 32 bits; bits beyond 32 are kept in the number.

    `data` is cut to the readable part. Raises IndexError if it ends too soon (the caller knows whose fault
    that is), and ValueError for a number longer than its type allows.
    """
    byte: i64 = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw: i64 = byte & 0x7F
    shift: i64 = 7
    while shift < 35:
        position += 1
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 1
        shift += 7
    raise ValueError("a varint is longer than 5 bytes")


def read_varlong(data: bytes, position: i64) -> tuple[i64, i64]:
    """Returns (number, position after it) of a varlong of 64 bits."""
    byte: i64 = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw: i64 = byte & 0x7F
    shift: i64 = 7
    while shift < 70:
        position += 1
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                raise ValueError("a varlong is longer than 64 bits")
            return ((raw >> 1) & _LOW_63_BITS) ^ -(raw & 1), position + 1
        shift += 7
    raise ValueError("a varlong is longer than 10 bytes")


def write_varlong(out: bytearray, number: int) -> None:
    """Appends `number` (64 bits, signed) as a varlong; a varint has the same encoding."""
    raw = (number << 1) ^ (number >> 63)
    while raw >= 0x80:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def varlong_size(number: int) -> int:
    """Returns the number of bytes that `write_varlong` appends."""
    raw = (number << 1) ^ (number >> 63)
    size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size
