"""Methods outside the hot path, and tables, with pamqp.

Any exception of pamqp's parser becomes a SYNTAX_ERROR.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, cast

from pamqp import base, commands, decode, exceptions

from .codec import COMMAND_INVALID, METHOD, QUEUE_DECLARE_OK, SYNTAX_ERROR, AmqpError, frame, short
from .codec_properties import table_of

_INDEX: Final = struct.Struct(">I")
_DOUBLE: Final = struct.Struct(">d")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_HALF: Final = timedelta(microseconds=500)
_MOST_SECONDS: Final = 0xFFFFFFFF
_DEPTH: Final = 64  # maximum nesting of tables
_WRONG: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    OverflowError,
    struct.error,
    exceptions.PAMQPException,
    RecursionError,
)

Table = dict[str, object]


def read_method(payload: bytes) -> base.Frame:
    """Reads the method in a frame's payload.

    Raises COMMAND_INVALID for an unknown method and SYNTAX_ERROR for malformed fields.
    """
    if len(payload) < _INDEX.size:
        raise AmqpError(SYNTAX_ERROR, "the method frame is empty")
    (index,) = _INDEX.unpack_from(payload)
    kind = commands.INDEX_MAPPING.get(index)
    if kind is None:
        raise AmqpError(COMMAND_INVALID, f"unknown method {{{index >> 16},{index & 0xFFFF}}}", index)
    method = cast(base.Frame, kind())
    try:
        method.unmarshal(payload[_INDEX.size :])
    except _WRONG as error:
        raise AmqpError(SYNTAX_ERROR, f"{method.name} cannot be read: {error}", index) from error
    if _deep(getattr(method, "arguments", None), _DEPTH):
        raise AmqpError(SYNTAX_ERROR, f"{method.name} nests tables more than {_DEPTH} deep", index)
    return method


def write_method(channel: int, method: base.Frame) -> bytes:
    """Returns the whole frame of a method."""
    return frame(METHOD, channel, _INDEX.pack(method.index) + method.marshal())


def queue_declared(channel: int, name: bytes, messages: int, consumers: int) -> bytes:
    """Returns the frame of a queue.declare-ok. Unlike pamqp, it accepts any queue name."""
    counts = messages.to_bytes(4, "big") + consumers.to_bytes(4, "big")
    return frame(METHOD, channel, _INDEX.pack(QUEUE_DECLARE_OK) + short(name) + counts)


def read_table(data: bytes) -> Table:
    """Reads a table that is preceded by its length. Raises SYNTAX_ERROR if it is malformed."""
    try:
        used, found = decode.field_table(data)
    except _WRONG as error:
        raise AmqpError(SYNTAX_ERROR, f"a table cannot be read: {error}") from error
    if used != len(data) or _deep(found, _DEPTH):
        raise AmqpError(SYNTAX_ERROR, "a table is longer than its length, or nested too deeply")
    return cast(Table, found)


def write_value(value: object) -> bytes:
    """Encodes a table value, preceded by its type. Raises ValueError, OverflowError or TypeError.

    Integers have 64 bits as in RabbitMQ, because some clients cast them to their long type; so have floats.
    """
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, int):
        return b"l" + value.to_bytes(8, "big", signed=True)
    if isinstance(value, float):
        return b"d" + _DOUBLE.pack(value)
    if isinstance(value, str):
        return b"S" + _sized(value.encode())
    if isinstance(value, bytes):
        return b"S" + _sized(value)
    if isinstance(value, bytearray):
        return b"x" + _sized(bytes(value))
    if isinstance(value, dict):
        return b"F" + write_table(value)
    if isinstance(value, list):
        return b"A" + _sized(b"".join([write_value(one) for one in value]))
    return _write_rare(value)


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _write_rare(value: object) -> bytes:
    if value is None:
        return b"V"
    if isinstance(value, datetime):
        return b"T" + _timestamp(value).to_bytes(8, "big")
    if isinstance(value, Decimal):
        scale = -int(value.as_tuple().exponent)  # raises ValueError for NaN and infinities
        return b"D" + scale.to_bytes(1, "big") + int(value.scaleb(scale)).to_bytes(4, "big", signed=True)
    raise TypeError(f"a table cannot have a value of type {type(value).__name__}")


def _timestamp(value: datetime) -> int:
    """Returns seconds since the Unix epoch, or milliseconds if that is what `read_table` needs to tell: it
    takes numbers beyond 32 bits for milliseconds."""
    milliseconds = (value - _EPOCH + _HALF) // _MILLISECOND
    seconds, rest = divmod(milliseconds, 1000)
    return seconds if not rest and seconds <= _MOST_SECONDS else milliseconds


def write_table(table: Table) -> bytes:
    """Encodes a table; the inverse of `read_table`."""
    return table_of([(name.encode(), write_value(value)) for name, value in table.items()])


def _deep(value: object, left: int) -> bool:
    if left == 0:
        return True
    if isinstance(value, dict):
        return any(_deep(one, left - 1) for one in value.values())
    return isinstance(value, list) and any(_deep(one, left - 1) for one in value)
