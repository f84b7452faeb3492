"""Messages, and runs of them, as record batches, which is how they travel in event streams.

A record with a key is one message: its key the topic as MQTT spells it, its value the payload, its headers
the properties (`wire.mqtt_headers`). Where there is more to say, the first header has an empty name, and
bytes:

    flags (1 byte): bits 0-1 QoS | 4 retain | 8 expiry | 16 number | 32 lineage | 64 stamp | 128 run
        | expiry, milliseconds since the Unix epoch (uint64) | number (uint64)
        | lineage: epoch, stream (uint32 each) | stamp (12 bytes, `pubsub.stamps`): of what is retained
        | format (1 byte): of a run

A record without a key is a run where its flags say so: its value are publishes as they came
(`wire.publish_runs`), its number the first message's, and the others have the numbers after it. Else it is a
barrier: nobody's message, there for what comes after it. Sequences of a stream count messages, so a batch may
stand for more of them than it has records.
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
    """A message as it arrives. `number`: its origin's own, 0 where it may be lost; `lineage`: None where it
    comes by the stream that it was first sent by."""

    __slots__ = ("lineage", "message", "number")

    def __init__(self, message: Message, number: int, lineage: Lineage | None) -> None:
        self.message = message
        self.number = number
        self.lineage = lineage


class RunEvent:
    """A run as it arrives; the rest as of an `Event`, of its first message."""

    __slots__ = ("lineage", "number", "run")

    def __init__(self, run: Run, number: int, lineage: Lineage | None) -> None:
        self.run = run
        self.number = number
        self.lineage = lineage

    def singly(self) -> list[Event]:
        """Its messages."""
        numbers = range(self.number, self.number + self.run.count) if self.number else [0] * self.run.count
        return [
            Event(message, number, self.lineage)
            for message, number in zip(self.run.messages(), numbers, strict=True)
        ]


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


def batch_of(parts: Sequence[Message | Run], now_ms: int, lineage: Lineage | None = None) -> bytes:
    """A batch of messages and runs. The bytes of a run are copied once."""
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
    return seal_pieces(pieces, len(parts), now_ms)


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
    """The messages and runs of a batch. CORRUPT_BATCH where it is none."""
    check_batches(memoryview(payload), len(payload), deep=False, single=True)
    return [
        _event(record) if record.key is not None else _run_event(record)
        for record in read_records(payload, 0, read_header(payload, 0))
        if record.key is not None or record.headers
    ]


def _run_event(record: Record) -> RunEvent:
    """A run whose bytes are in order; only its topics have still to be looked at."""
    try:
        format, number, lineage, qos = _read_run(record.headers[0])
    except (struct.error, ValueError, IndexError) as error:
        raise TreecastError(Fault.CORRUPT_BATCH, f"a run's headers are wrong: {error}") from error
    run = run_of(format, record.value or b"")
    if run is None or isinstance(run, PromisedRun) is not (qos == 1):
        raise TreecastError(Fault.CORRUPT_BATCH, "a run's publishes are not in order")
    return RunEvent(run, number, lineage)


def _read_run(header: tuple[str, bytes | None]) -> tuple[int, int, Lineage | None, int]:
    """(format, number, lineage, QoS)."""
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
