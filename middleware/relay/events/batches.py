"""Messages and runs of messages as record batches, their form in event streams.

A record with a key is one message: its key is the MQTT topic name, its value the payload, its headers the
properties (`wire.mqtt_headers`). Further fields, if any, are in a first header with an empty name and these
bytes:

    flags (1 byte): bits 0-1 QoS | 4 retain | 8 expiry | 16 number | 32 lineage | 64 stamp | 128 run
        | expiry, milliseconds since the Unix epoch (uint64) | number (uint64)
        | lineage: epoch, stream (uint32 each) | stamp (12 bytes, `pubsub.stamps`): of a retained message
        | format (1 byte): of a run

A record without a key is a run if its flags say so: its value holds publishes as received
(`wire.publish_runs`), its number is that of the first message, and the others have consecutive numbers.
Otherwise it is a barrier: it carries no message and only delays what follows it. Sequences of a stream count
messages, so a batch may cover more sequences than it has records.

A batch whose segments carry tags has no checksum of its own: its CRC is 0.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from treecast.middleware.broker.pubsub import NEVER, Message, PromisedRun, Run, run_of
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Headers, Record
from treecast.middleware.wire.mqtt_headers import headers_of, properties_of
from treecast.middleware.wire.record_batch import (
    build_batch,
    check_batches,
    encode_around,
    encode_record,
    read_header,
    read_records,
    seal_pieces,
)

_RETAIN: Final = 4
_EXPIRY: Final = 8
_NUMBER: Final = 16
_LINEAGE: Final = 32
_STAMP: Final = 64
_RUN: Final = 128
_STAMP_BYTES: Final = 12
_U64: Final = struct.Struct(">Q")
_LINE: Final = struct.Struct(">II")

Lineage = tuple[int, int]  # (epoch, stream) by which a message was first sent


class Event:
    """A message as it arrives.

    `number`: given by its origin; 0 if the message may be lost. `lineage`: None if it arrives by the stream
    that first sent it.
    """

    __slots__ = ("lineage", "message", "number")

    def __init__(self, message: Message, number: int, lineage: Lineage | None) -> None:
        self.message = message
        self.number = number
        self.lineage = lineage


class RunEvent:
    """A run as it arrives. `number` and `lineage` are those of its first message, as in `Event`."""

    __slots__ = ("lineage", "number", "run")

    def __init__(self, run: Run, number: int, lineage: Lineage | None) -> None:
        self.run = run
        self.number = number
        self.lineage = lineage

    def singly(self) -> list[Event]:
        """Returns its messages as single events."""
        numbers = range(self.number, self.number + self.run.count) if self.number else [0] * self.run.count
        return [
            Event(message, number, self.lineage)
            for message, number in zip(self.run.messages(), numbers, strict=True)
        ]


BARRIER: Final = build_batch([Record(None, None, (), 0)])


def record_of(message: Message, now_ms: int, lineage: Lineage | None = None) -> Record:
    """Returns the record of one message, with its number if it has one."""
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


def batch_of(
    parts: Sequence[Message | Run], now_ms: int, lineage: Lineage | None = None, *, summed: bool = True
) -> bytes:
    """Returns a batch of messages and runs. The bytes of a run are copied once."""
    pieces: list[bytes | bytearray] = []
    out = bytearray()
    for number, part in enumerate(parts):
        if isinstance(part, Message):
            encode_record(out, record_of(part, now_ms, lineage), 0, number)
        else:
            before, behind = encode_around(len(part.data), _run_headers(part, lineage), number)
            pieces += [out, before, part.data]
            out = behind
    pieces.append(out)
    return seal_pieces(pieces, len(parts), now_ms, summed=summed)


def _run_headers(run: Run, lineage: Lineage | None) -> Headers:
    flags, rest = _RUN, b""
    if isinstance(run, PromisedRun):
        flags |= 1
        if run.number:
            flags |= _NUMBER
            rest += _U64.pack(run.number)
            if lineage is not None:
                flags |= _LINEAGE
                rest += _LINE.pack(*lineage)
    return (("", bytes([flags]) + rest + bytes([run.format])),)


def events_of(payload: bytes) -> list[Event | RunEvent]:
    """Returns the messages and runs of a batch. Raises CORRUPT_BATCH if it is invalid."""
    check_batches(memoryview(payload), len(payload), deep=False, single=True, summed=False)
    return [
        _event(record) if record.key is not None else _run_event(record)
        for record in read_records(payload, 0, read_header(payload, 0))
        if record.key is not None or record.headers
    ]


def _run_event(record: Record) -> RunEvent:
    """Returns a run with validated bytes; only its topics are not validated. Raises CORRUPT_BATCH."""
    try:
        format, number, lineage, qos = _read_run(record.headers[0])
    except (struct.error, ValueError, IndexError) as error:
        raise TreecastError(Fault.CORRUPT_BATCH, f"a run's headers are wrong: {error}") from error
    run = run_of(format, record.value or b"")
    if run is None or isinstance(run, PromisedRun) is not (qos == 1):
        raise TreecastError(Fault.CORRUPT_BATCH, "a run's publishes are not in order")
    return RunEvent(run, number, lineage)


def _read_run(header: tuple[str, bytes | None]) -> tuple[int, int, Lineage | None, int]:
    """Returns (format, number, lineage, QoS)."""
    name, value = header
    if name or not value or not value[0] & _RUN:
        raise ValueError(f"the first is {name!r}")
    flags, position = value[0], 1
    number, lineage = 0, None
    if flags & _NUMBER:
        number = _U64.unpack_from(value, position)[0]
        position += _U64.size
    if flags & _LINEAGE:
        lineage = _LINE.unpack_from(value, position)
        position += _LINE.size
    if flags & ~(_RUN | _NUMBER | _LINEAGE) > 1:
        raise ValueError(f"flags {flags:#x}")
    return value[position], number, lineage, flags & 1


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
