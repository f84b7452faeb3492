"""Records as values, for whatever is off the hot path; on it they stay bytes (see `wire.record_batch`)."""

from __future__ import annotations

import enum

from msgspec import Struct

Headers = tuple[tuple[str, bytes | None], ...]


class Compression(enum.IntEnum):
    """Bits 0-2 of a record batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(enum.IntEnum):
    """Bit 3 of a record batch's attributes."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(Struct, frozen=True):
    """One record. `timestamp` is milliseconds since the Unix epoch, `offset` -1 while it has none."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = -1
    offset: int = -1
