"""Messages as record batches, which is how they travel in event streams.

One record is one message: its key the topic as MQTT spells it, its value the payload, its headers the
properties (`wire.mqtt_headers`). Where there is more to say, the first header has an empty name, and bytes:

    flags (1 byte): bits 0-1 QoS | 4 retain | 8 expiry | 16 number | 32 lineage | 64 stamp
        | expiry, milliseconds since the Unix epoch (uint64) | number (uint64)
        | lineage: epoch, stream (uint32 each) | stamp (12 bytes, `pubsub.stamps`): of what is retained

A record without a key is a barrier: nobody's message, there for what comes after it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from treecast.middleware.broker.pubsub import NEVER, Message
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Headers, Record
from treecast.middleware.wire.mqtt_headers import headers_of, properties_of
from treecast.middleware.wire.record_batch import build_batch, check_batches, read_header, read_records

_RETAIN: Final = 4
_EXPIRY: Final = 8
_NUMBER: Final = 16
_LINEAGE: Final = 32
_STAMP: Final = 64
_STAMP_BYTES: Final = 12
_U64: Final = struct.Struct(">Q")
_LINE: Final = struct.Struct(">II")

Lineage = tuple[int, int]  # (epoch, stream) by which a message was first sent


class Event:
    """A message as it arrives. `number`: its origin's own, 0 where it may be lost; `lineage`: None where it
    comes by the stream that it was first sent by."""

    __slots__ = ("lineage", "message", "number")

    def __init__(self, message: Message, number: int, lineage: Lineage | None) -> None:
        self.message = message
        self.number = number
        self.lineage = lineage


BARRIER: Final = build_batch([Record(None, None, (), 0)])


def record_of(message: Message, now_ms: int, lineage: Lineage | None = None) -> Record:
    """One message. Its number is said where it has one."""
    headers: Headers = headers_of(message.properties) if message.properties else ()
    flags = message.qos | (_RETAIN if message.retain else 0)
    rest = b""
    if message.expires_at != NEVER:
        flags |= _EXPIRY
        rest += _U64.pack(int(message.expires_at * 1000))
    if message.qos and message.number:
        flags |= _NUMBER
        rest += _U64.pack(message.number)
        if lineage is not None:
            flags |= _LINEAGE
            rest += _LINE.pack(*lineage)
    if message.retain and message.stamp:
        flags |= _STAMP
        rest += message.stamp.to_bytes(_STAMP_BYTES, "big")
    if flags or headers:
        headers = (("", bytes([flags]) + rest), *headers)
    return Record(message.topic, message.payload, headers, now_ms)


def batch_of(records: Sequence[Record]) -> bytes:
    return build_batch(records)


def events_of(payload: bytes) -> Iterable[Event]:
    """The messages of a batch. CORRUPT_BATCH where it is none."""
    check_batches(memoryview(payload), len(payload), deep=False, single=True)
    for record in read_records(payload, 0, read_header(payload, 0)):
        if record.key is not None:
            yield _event(record)


def _event(record: Record) -> Event:
    message = Message(record.key or b"", record.value or b"")
    headers = record.headers
    number, lineage = 0, None
    if headers:
        try:
            number, lineage = _read_more(message, headers[0])
            if len(headers) > 1:
                message.properties = properties_of(headers[1:])
        except (struct.error, ValueError, IndexError) as error:
            raise TreecastError(Fault.CORRUPT_BATCH, f"an event's headers are wrong: {error}") from error
    return Event(message, number, lineage)


def _read_more(message: Message, header: tuple[str, bytes | None]) -> tuple[int, Lineage | None]:
    name, value = header
    if name or not value:
        raise ValueError(f"the first is {name!r}")
    flags, position = value[0], 1
    number, lineage = 0, None
    message.qos = flags & 3
    message.retain = bool(flags & _RETAIN)
    if message.qos == 3:
        raise ValueError("QoS 3")
    if flags & _EXPIRY:
        message.expires_at = _U64.unpack_from(value, position)[0] / 1000
        position += _U64.size
    if flags & _NUMBER:
        number = _U64.unpack_from(value, position)[0]
        position += _U64.size
    if flags & _LINEAGE:
        lineage = _LINE.unpack_from(value, position)
        position += _LINE.size
    if flags & _STAMP:
        if len(value) < position + _STAMP_BYTES:
            raise ValueError("the stamp is cut off")
        message.stamp = int.from_bytes(value[position : position + _STAMP_BYTES], "big")
    return number, lineage
