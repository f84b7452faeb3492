"""The header of a record batch of magic 2, and the fields that a broker writes in place.

Source: Kafka's protocol guide, "Record Batch"; KIP-98. All numbers are big-endian.

     0  baseOffset int64            21  attributes int16           43  producerId int64
     8  batchLength int32 (*)       23  lastOffsetDelta int32      51  producerEpoch int16
    12  partitionLeaderEpoch int32  27  baseTimestamp int64 (ms)   53  baseSequence int32
    16  magic int8                  35  maxTimestamp int64 (ms)    57  recordCount int32
    17  crc uint32 (**)                                            61  records

    (*)  bytes after this field        (**) CRC-32C of everything from `attributes` to the end

    attributes: 0-2 compression, 3 timestamp type (1: log append time), 4 transactional, 5 control,
                6 baseTimestamp is a delete horizon (KIP-534; the broker's own)
"""

from __future__ import annotations

import struct
from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError

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
_SIZE: Final = struct.Struct(">qi")
_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")

Data = memoryview | bytes | bytearray


class BatchHeader:
    """A batch's header. `size` counts the whole batch in bytes; times are ms since the Unix epoch.

    `first_keyless` and `min_timestamp` are known after a deep check: the index of the first record without a
    key (-1 if every record has one), and the oldest record's time.
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
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.count = count
        self.first_keyless = -1
        self.min_timestamp = base_timestamp

    @property
    def compression(self) -> int:
        """The codec: 0 to 4 are `Compression`; 5 to 7 are unknown."""
        return self.attributes & COMPRESSION_MASK

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
