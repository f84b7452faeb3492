"""AMQP messages as records of Kafka topics, and records as AMQP messages.

| message                      | header of the record                                                   |
| ---------------------------- | ---------------------------------------------------------------------- |
| content type, correlation id | `mqtt.content-type`, `mqtt.correlation-data`: the names of all faces   |
| headers: text and numbers    | headers of the same names, as text                                     |
| all properties, as encoded   | `amqp.properties`, in base64; left out if there are none; streams only |
| exchange, routing key        | `amqp.exchange`, `amqp.key`; streams only                              |

The body is the value. Records of streams have no key. A record of another face has no `amqp.exchange`: it is
shown as a persistent message with the other headers, whose routing key is the name of the stream.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final

from treecast.middleware.broker.queues import Run, message, messages
from treecast.middleware.model.records import Record

from .codec import AmqpError
from .codec_methods import read_table, write_value
from .codec_properties import (
    CONTENT_TYPE_BIT,
    CORRELATION_BIT,
    HEADERS_BIT,
    MODE_BIT,
    fields,
    joined,
    table_of,
    values,
)
from .codec_publish import FORMAT

EXCHANGE: Final = "amqp.exchange"
_KEY: Final = "amqp.key"
_PROPERTIES: Final = "amqp.properties"
_OWN: Final = "amqp."
_CONTENT_TYPE: Final = "mqtt.content-type"
_CORRELATION: Final = "mqtt.correlation-data"
_LONGEST: Final = 255  # bytes of a short string
_NOTHING: Final = b"\0\0"
_PERSISTENT: Final = b"\x02"
_OFFSET: Final = b"x-stream-offset"

Headers = list[tuple[str, bytes | None]]


def headers_of(properties: bytes) -> Headers:
    """Returns the properties that other faces show: headers, content type and correlation id."""
    if properties == _NOTHING:
        return []
    found = values(properties)
    headers: Headers = []
    for bit, name in ((CONTENT_TYPE_BIT, _CONTENT_TYPE), (CORRELATION_BIT, _CORRELATION)):
        if bit in found:
            headers.append((name, found[bit][1:]))
    if HEADERS_BIT in found:
        try:
            table = read_table(found[HEADERS_BIT])
        except AmqpError:
            return headers
        for key, value in table.items():
            if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
                headers.append((key, str(value).encode()))
    return headers


def properties_of(headers: Iterable[tuple[str, bytes | None]], *, persistent: bool) -> bytes:
    """Returns the properties for the headers of a message of another face."""
    properties: dict[int, bytes] = {}
    table: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        given = value or b""
        if name == _CONTENT_TYPE and len(given) <= _LONGEST:
            properties[CONTENT_TYPE_BIT] = bytes((len(given),)) + given
        elif name == _CORRELATION and len(given) <= _LONGEST:
            properties[CORRELATION_BIT] = bytes((len(given),)) + given
        elif len(name.encode()) <= _LONGEST:
            table.append((name.encode(), write_value(given.decode(errors="replace"))))
    if table:
        properties[HEADERS_BIT] = table_of(table)
    if persistent:
        properties[MODE_BIT] = _PERSISTENT
    return joined(properties)


# --- streams


def records_of(run: Run, now_ms: int) -> list[Record]:
    """Returns the messages of a run as records of a stream. Most have the properties of the one before."""
    records: list[Record] = []
    last = b""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    for properties, body in messages(run.data):
        if properties != last:
            last, headers = properties, _headers(run, properties)
        records.append(Record(None, body, headers, now_ms))
    return records


def _headers(run: Run, properties: bytes) -> tuple[tuple[str, bytes | None], ...]:
    headers: Headers = [(EXCHANGE, run.exchange), (_KEY, run.key)]
    if properties != _NOTHING:
        headers.append((_PROPERTIES, b64encode(properties)))
        headers += [one for one in headers_of(properties) if not one[0].startswith(_OWN)]
    return tuple(headers)


def runs_of(records: Sequence[Record], stream: bytes) -> list[Run]:
    """Returns the messages for records of a stream, each with its offset in the header `x-stream-offset`.
    Consecutive ones with one exchange and key are one run, and most have the same headers as the one before.
    """
    runs: list[Run] = []
    pieces: list[bytes] = []
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    size, place, before, behind = 0, (b"", b""), b"", b""
    for record in records:
        if record.headers != headers:
            headers = record.headers
            last = place
            place, properties = _read(record, stream)
            before, behind = _around_offset(properties)
            if pieces and place != last:
                runs.append(_run(last, pieces, size))
                pieces, size = [], 0
        body = record.value or b""
        pieces.append(message(before + record.offset.to_bytes(8, "big") + behind, body))
        size += len(body)
    if pieces:
        runs.append(_run(place, pieces, size))
    return runs


def _run(place: tuple[bytes, bytes], pieces: list[bytes], size: int) -> Run:
    run = Run(*place, b"".join(pieces), len(pieces), size, True)
    run.format = FORMAT
    return run


def _read(record: Record, stream: bytes) -> tuple[tuple[bytes, bytes], bytes]:
    """Returns ((exchange, key), properties)."""
    own = {name: value or b"" for name, value in record.headers if name.startswith(_OWN)}
    if EXCHANGE not in own:
        return (b"", stream), properties_of(_plain(record), persistent=True)
    place = own[EXCHANGE][:_LONGEST], own.get(_KEY, b"")[:_LONGEST]
    try:
        properties = b64decode(own.get(_PROPERTIES, b""), validate=True) or _NOTHING
        values(properties)
    except (AmqpError, binascii.Error):  # another client has written such a header
        properties = properties_of(_plain(record), persistent=True)
    return place, properties


def _plain(record: Record) -> Headers:
    return [header for header in record.headers if not header[0].startswith(_OWN)]


def _around_offset(properties: bytes) -> tuple[bytes, bytes]:
    """Returns the properties with the header `x-stream-offset`, without its 8 bytes: (before, behind)."""
    found = values(properties)
    try:
        table = fields(found[HEADERS_BIT]) if HEADERS_BIT in found else []
    except AmqpError:  # its publisher has sent a table that nobody can read
        table = []
    table = [field for field in table if field[0] != _OFFSET]
    table.append((_OFFSET, b"l" + bytes(8)))
    found[HEADERS_BIT] = table_of(table)
    written = joined(found)
    end = len(written) - sum([len(value) for bit, value in found.items() if bit < HEADERS_BIT])
    return written[: end - 8], written[end:]
