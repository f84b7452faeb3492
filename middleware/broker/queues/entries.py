"""What is stored of queues beside their runs: entries, in the same blocks of the log as the runs themselves.

| kind     | fields                                                                                       |
| -------- | -------------------------------------------------------------------------------------------- |
| ENQUEUED | queue (uint32), place (uint64), begin, end, messages, bytes of bodies (uint32 each),          |
|          | position (uint64), expires (float64, seconds since the Unix epoch), priority (int16),         |
|          | deliveries (uint16)                                                                          |
| SETTLED  | queue, segment of the runs (uint32), first position (uint64), messages (uint32)               |
| HANDED   | the same                                                                                     |
| RETURNED | the same, failed deliveries (uint16)                                                          |
| RESET    | size (uint32), msgpack: the number of the next queue; all definitions follow                  |
| DECLARED | size, msgpack: virtual host, kind, name, number (of queues), definition                       |
| DELETED  | size, msgpack: virtual host, kind, name                                                       |
| BOUND    | size, msgpack: virtual host, source, kind, name, key, arguments                               |
| UNBOUND  | the same                                                                                     |

The kind is one byte. Queues are called by numbers that are never used again, messages by their positions in a
queue. What is said of a message only adds up: settled is final, handed is not taken back, and the highest
number of failed deliveries counts. So entries may be read in any order, and twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

ENQUEUED: Final = 1
SETTLED: Final = 2
HANDED: Final = 3
RETURNED: Final = 4
RESET: Final = 5
DECLARED: Final = 6
DELETED: Final = 7
BOUND: Final = 8
UNBOUND: Final = 9

_ENQUEUED: Final = struct.Struct(">BIQIIIIQdhH")
_RANGE: Final = struct.Struct(">BIIQI")
_RETURNED: Final = struct.Struct(">BIIQIH")
_SIZED: Final = struct.Struct(">BI")
_SIZES: Final = {
    ENQUEUED: _ENQUEUED.size,
    SETTLED: _RANGE.size,
    HANDED: _RANGE.size,
    RETURNED: _RETURNED.size,
}

Fields = tuple[int, ...]


class Declared(msgspec.Struct, array_like=True, frozen=True):
    """An exchange, a queue (with its `number`), or whatever else a virtual host has by kind and name."""

    vhost: str
    kind: str
    name: bytes
    number: int = 0
    definition: Mapping[str, object] = {}


class Bound(msgspec.Struct, array_like=True, frozen=True):
    """A binding."""

    vhost: str
    source: bytes
    kind: str
    name: bytes
    key: bytes
    arguments: Mapping[str, object]


def enqueued(
    queue: int,
    place: int,
    begin: int,
    end: int,
    count: int,
    size: int,
    position: int,
    expires: float,
    priority: int,
    deliveries: int,
) -> bytes:
    return _ENQUEUED.pack(
        ENQUEUED, queue, place, begin, end, count, size, position, expires, priority, deliveries
    )


def ranged(kind: int, queue: int, segment: int, first: int, count: int) -> bytes:
    """SETTLED or HANDED."""
    return _RANGE.pack(kind, queue, segment, first, count)


def returned(queue: int, segment: int, first: int, count: int, deliveries: int) -> bytes:
    return _RETURNED.pack(RETURNED, queue, segment, first, count, deliveries)


def sized(kind: int, value: object) -> bytes:
    """RESET and what follows it in the table."""
    packed = msgspec.msgpack.encode(value)
    return _SIZED.pack(kind, len(packed)) + packed


def walk(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(kind, where the entry begins, where it ends) of each."""
    at, end = 0, len(data)
    while at < end:
        kind = data[at]
        size = _SIZES.get(kind)
        if size is None:
            size = _SIZED.size + int.from_bytes(data[at + 1 : at + 5], "big")
        yield kind, at, at + size
        at += size


def read_enqueued(data: bytes, at: int) -> tuple[int, int, int, int, int, int, int, float, int, int]:
    """The fields after the kind."""
    found = _ENQUEUED.unpack_from(data, at)
    return found[1:]


def read_range(data: bytes, at: int) -> tuple[int, int, int, int]:
    """(queue, segment, first, count) of SETTLED, HANDED and RETURNED."""
    _, queue, segment, first, count = _RANGE.unpack_from(data, at)
    return queue, segment, first, count


def read_deliveries(data: bytes, at: int) -> int:
    """Those of RETURNED."""
    return int.from_bytes(data[at + _RANGE.size : at + _RETURNED.size], "big")


def packed(data: bytes, begin: int, end: int) -> bytes:
    """The msgpack of an entry that has a size."""
    return data[begin + _SIZED.size : end]
