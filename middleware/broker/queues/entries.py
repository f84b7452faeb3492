"""The entries about queues, which are stored in the same blocks of the log as the queues' runs.

| kind     | fields                                                                                       |
| -------- | -------------------------------------------------------------------------------------------- |
| ENQUEUED | queue (uint32), place (uint64), begin, end, messages, bytes of bodies (uint32 each),          |
|          | position (uint64), expires (float64, seconds since the Unix epoch), priority (int16),         |
|          | deliveries (uint16)                                                                          |
| SETTLED  | queue, segment of the runs (uint32), first position (uint64), messages (uint32)               |
| HANDED   | the same                                                                                     |
| RETURNED | the same, failed deliveries (uint16)                                                          |
| RESET    | size (uint32), msgpack: the number of the next queue; all definitions follow                  |
| DECLARED | size, `Declared` in msgpack: virtual host, kind, name, number (of queues), definition         |
| DELETED  | the same                                                                                      |
| BOUND    | size, `Bound` in msgpack: virtual host, source, kind, name, key, arguments                    |
| UNBOUND  | the same                                                                                     |

The kind is one byte. Queues are identified by numbers that are never reused, messages by their positions in
a queue. Entries about a message are monotonic: settled is final, handed is never revoked, and the highest
number of failed deliveries counts. Entries may therefore be read in any order, and repeatedly.

Definitions and arguments are tables (`wire/field_table`). The coordinator has definitions in the same form.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from treecast.middleware.wire import field_table

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
SIZED: Final = struct.Struct(">BI")  # kind and size, before the msgpack of a definition
_SIZES: Final = {
    ENQUEUED: _ENQUEUED.size,
    SETTLED: _RANGE.size,
    HANDED: _RANGE.size,
    RETURNED: _RETURNED.size,
}

Fields = tuple[int, ...]


class Declared(msgspec.Struct, array_like=True, frozen=True):
    """An exchange, a queue (with its `number`), or another object of a virtual host, by kind and name."""

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


_read_declared: Final = msgspec.msgpack.Decoder(Declared, ext_hook=field_table.extension).decode
_read_bound: Final = msgspec.msgpack.Decoder(Bound, ext_hook=field_table.extension).decode


def encoded(one: Declared | Bound) -> bytes:
    """Returns a definition as it is stored, and told to other hosts."""
    return field_table.encode(msgspec.structs.astuple(one))


# As `encoded`, for a `Declared` whose definition has only texts and numbers, which need no extensions.
plain: Final = msgspec.msgpack.Encoder().encode


def declared(data: bytes) -> Declared:
    """Reads a definition. Raises msgspec.DecodeError."""
    one = _read_declared(data)
    return Declared(one.vhost, one.kind, one.name, one.number, field_table.table(one.definition))


def bound(data: bytes) -> Bound:
    """Reads a binding. Raises msgspec.DecodeError."""
    one = _read_bound(data)
    return Bound(one.vhost, one.source, one.kind, one.name, one.key, field_table.table(one.arguments))


# The fields of the table above, without the kind of ENQUEUED and RETURNED. Packed in C: each part has one.
enqueued: Final = partial(_ENQUEUED.pack, ENQUEUED)
ranged: Final = _RANGE.pack  # SETTLED or HANDED
returned: Final = partial(_RETURNED.pack, RETURNED)


def reset(following: int) -> bytes:
    """Returns a RESET entry. `following`: the number of the next queue."""
    return _sized(RESET, field_table.encode(following))


def defined(kind: int, one: Declared | Bound) -> bytes:
    """Returns a DECLARED, DELETED, BOUND or UNBOUND entry."""
    return _sized(kind, encoded(one))


def _sized(kind: int, data: bytes) -> bytes:
    return SIZED.pack(kind, len(data)) + data


def walk(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields (kind, begin, end) of each entry."""
    at, end = 0, len(data)
    while at < end:
        kind = data[at]
        size = _SIZES.get(kind)
        if size is None:
            size = SIZED.size + int.from_bytes(data[at + 1 : at + 5], "big")
        yield kind, at, at + size
        at += size


def read_enqueued(data: bytes, at: int) -> tuple[int, int, int, int, int, int, int, float, int, int]:
    """Returns the fields of ENQUEUED after the kind."""
    found = _ENQUEUED.unpack_from(data, at)
    return found[1:]


def read_range(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Returns (queue, segment, first, count) of SETTLED, HANDED or RETURNED."""
    _, queue, segment, first, count = _RANGE.unpack_from(data, at)
    return queue, segment, first, count


def read_deliveries(data: bytes, at: int) -> int:
    """Returns the failed deliveries of RETURNED."""
    return int.from_bytes(data[at + _RANGE.size : at + _RETURNED.size], "big")


def packed(data: bytes, begin: int, end: int) -> bytes:
    """Returns the msgpack of an entry that has a size."""
    return data[begin + SIZED.size : end]
