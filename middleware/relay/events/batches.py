"""Messages and runs of messages as record batches, their form in event streams.

A record with a key is one message: its key is the MQTT topic name, its value the payload, its headers the
properties (`wire.mqtt_headers`). Further fields, if any, are in a first header with an empty name and these
bytes:

    flags (1 byte): bits 0-1 QoS | 4 retain | 8 expiry | 16 number | 32 lineage | 64 stamp | 128 run
        | expiry, milliseconds since the Unix epoch (uint64) | number (uint64)
        | lineage: epoch, stream (uint32 each) | stamp (12 bytes, `pubsub.stamps`): of a retained message
        | format (1 byte): of a run

A record without a key is a run if its flags say so: its value holds publishes as received
(`wire.mqtt_publish`), its number is that of the first message, and the others have consecutive numbers.
Otherwise it is a barrier: it carries no message and only delays what follows it. Sequences of a stream count
messages, so a batch may cover more sequences than it has records.

A batch whose segments carry tags has no checksum of its own: its CRC is 0.

Most records have no properties and are written and read in place; `record_of` and `events_in` do the same for
all, by way of `Record`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from treecast.middleware.broker.pubsub import NEVER, Message, PromisedRun, Run, run_of
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Headers, Record
from treecast.middleware.wire.batch import (
    HEADER_SIZE,
    BatchHeader,
    check_batches,
    read_varint,
    read_varlong,
    seal_pieces,
    write_varlong,
)
from treecast.middleware.wire.mqtt_headers import headers_of, properties_of
from treecast.middleware.wire.record_batch import build_batch, encode_around, encode_record, read_records

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
    more = _more_of(message, lineage)
    if more or headers:
        headers = (("", more or b"\0"), *headers)
    return Record(message.topic, message.payload, headers, now_ms)


def _more_of(message: Message, lineage: Lineage | None) -> bytes:
    """Returns flags and further fields; nothing if no flag is set."""
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
    return bytes([flags]) + rest if flags else b""


def _put_message(out: bytearray, message: Message, lineage: Lineage | None, delta: int) -> None:
    """Appends the record of a message without properties, of the batch's time."""
    body = bytearray(b"\0\0")  # attributes, time
    write_varlong(body, delta)
    write_varlong(body, len(message.topic))
    body += message.topic
    write_varlong(body, len(message.payload))
    more = _more_of(message, lineage)
    behind = bytes([2, 0, len(more) << 1]) + more if more else b"\0"  # one header without a name, or none
    write_varlong(out, len(body) + len(message.payload) + len(behind))
    out += body
    out += message.payload
    out += behind


def batch_of(
    parts: Sequence[Message | Run], now_ms: int, lineage: Lineage | None = None, *, summed: bool = True
) -> bytes:
    """Returns a batch of messages and runs. The bytes of a run are copied once."""
    pieces: list[bytes | bytearray] = []
    out = bytearray()
    for number, part in enumerate(parts):
        if isinstance(part, Message) and not part.properties:
            _put_message(out, part, lineage, number)
        elif isinstance(part, Message):
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
    data = memoryview(payload)
    header = check_batches(data, len(payload), deep=False, single=True, summed=False)[0]
    found: list[Event | RunEvent] | None = None
    try:
        found = _plain_events(payload, header)
    except (struct.error, ValueError, IndexError):
        pass  # read again in full, which finds what is wrong
    return events_in(payload, header) if found is None else found


def _plain_events(data: bytes, header: BatchHeader) -> list[Event | RunEvent] | None:
    """Reads an uncompressed batch in which no record has properties; None for all others."""
    if header.compression:
        return None
    found: list[Event | RunEvent] = []
    position = HEADER_SIZE
    for _ in range(header.count):
        length, position = read_varint(data, position)
        end = position + length
        _, position = read_varlong(data, position + 1)  # behind the attributes: the time
        _, position = read_varint(data, position)  # offset
        key, position = _field(data, position, end)
        value, position = _field(data, position, end)
        headers, position = read_varint(data, position)
        more: bytes | None = None
        if headers == 1:
            name, position = read_varint(data, position)
            more, position = _field(data, position, end)
            if name or not more:
                return None
        elif headers:
            return None
        if position != end:
            return None
        if key is not None:
            found.append(_message_event(Message(key, value or b""), more))
        elif more is not None:
            found.append(_run_event(more, value))
    return found if position == len(data) else None


def _field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Returns a key or value, and the position after it. Raises ValueError if it does not fit its record."""
    size, position = read_varint(data, position)
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise ValueError(f"a length of {size}")
    return data[position : position + size], position + size


def _message_event(message: Message, more: bytes | None) -> Event:
    number, lineage = _read_more(message, more) if more is not None else (0, None)
    return Event(message, number, lineage)


def events_in(payload: bytes, header: BatchHeader) -> list[Event | RunEvent]:
    """Reads any batch. Raises CORRUPT_BATCH."""
    found: list[Event | RunEvent] = []
    for record in read_records(payload, 0, header):
        if record.key is not None:
            found.append(_event(record))
        elif record.headers:
            found.append(_run_event(_first(record.headers), record.value))
    return found


def _first(headers: Headers) -> bytes:
    """Returns the value of the first header, which has no name. Raises CORRUPT_BATCH."""
    name, value = headers[0]
    if name or not value:
        raise TreecastError(Fault.CORRUPT_BATCH, f"an event's headers are wrong: the first is {name!r}")
    return value


def _run_event(more: bytes, value: bytes | None) -> RunEvent:
    """Returns a run with validated bytes; only its topics are not validated. Raises CORRUPT_BATCH."""
    try:
        format, number, lineage, qos = _read_run(more)
    except (struct.error, ValueError, IndexError) as error:
        raise TreecastError(Fault.CORRUPT_BATCH, f"a run's headers are wrong: {error}") from error
    run = run_of(format, value or b"")
    if run is None or isinstance(run, PromisedRun) is not (qos == 1):
        raise TreecastError(Fault.CORRUPT_BATCH, "a run's publishes are not in order")
    return RunEvent(run, number, lineage)


def _read_run(value: bytes) -> tuple[int, int, Lineage | None, int]:
    """Returns (format, number, lineage, QoS)."""
    if not value[0] & _RUN:
        raise ValueError("flags without a run")
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
    if not record.headers:
        return Event(message, 0, None)
    more = _first(record.headers)
    try:
        number, lineage = _read_more(message, more)
        if len(record.headers) > 1:
            message.properties = properties_of(record.headers[1:])
    except (struct.error, ValueError, IndexError) as error:
        raise TreecastError(Fault.CORRUPT_BATCH, f"an event's headers are wrong: {error}") from error
    return Event(message, number, lineage)


def _read_more(message: Message, value: bytes) -> tuple[int, Lineage | None]:
    """Reads flags and further fields into `message`. Returns (number, lineage)."""
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
