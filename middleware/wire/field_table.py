"""Field tables of AMQP 0-9-1 as hosts store them and tell them each other: msgpack with two extensions.

| field, by its letter on the wire       | value              | msgpack                     |
| -------------------------------------- | ------------------ | --------------------------- |
| integers: b, B, s, u, I, i, l, L       | int                | int                         |
| f, d                                   | float              | float 64                    |
| t                                      | bool               | bool                        |
| V                                      | None               | nil                         |
| S, if it is UTF-8                      | str                | str                         |
| S, if it is not                        | bytes              | bin                         |
| x                                      | bytearray          | extension 2: the bytes      |
| D                                      | Decimal            | extension 1: its text       |
| T                                      | datetime, aware    | timestamp                   |
| A, F                                   | list, dict         | array, map                  |

Plain msgpack, in which tables were stored before, makes a string of a Decimal and bytes of a bytearray. It is
read as far as it tells: a `bin` that is UTF-8 was an array of bytes, as a string would be a `str`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec
from msgspec.msgpack import Ext

_DECIMAL: Final = 1
_BYTES: Final = 2
_write: Final = msgspec.msgpack.Encoder().encode


def encode(value: object) -> bytes:
    """Encodes a table, or a list or tuple that has tables in it.

    Raises ValueError, OverflowError or TypeError for a value that no table can have.
    """
    return _write(_extended(value))


def _extended(value: object) -> object:
    if isinstance(value, dict):
        return {key: _extended(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_extended(one) for one in value]
    if isinstance(value, Decimal):
        return Ext(_DECIMAL, str(value).encode())
    if isinstance(value, bytearray):
        return Ext(_BYTES, bytes(value))
    return value


def extension(code: int, data: memoryview) -> object:
    """The `ext_hook` for msgspec's decoders of values with tables in them. Raises ValueError."""
    if code == _BYTES:
        return bytearray(data)
    if code == _DECIMAL:
        try:
            return Decimal(bytes(data).decode())
        except InvalidOperation as error:
            raise ValueError(f"not a decimal: {bytes(data)!r}") from error
    raise ValueError(f"a field of the unknown kind {code}")


def table(read: Mapping[str, object]) -> dict[str, object]:
    """Returns a table as a decoder with `extension` has read it, with arrays of bytes of the plain form."""
    return {key: _value(one) for key, one in read.items()}


def _value(value: object) -> object:
    if isinstance(value, dict):
        return table(value)
    if isinstance(value, list):
        return [_value(one) for one in value]
    return bytearray(value) if isinstance(value, bytes) and _is_text(value) else value


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def same(one: object, other: object) -> bool:
    """Whether two values are the same to RabbitMQ: integers of any width are, but not an integer and a float
    or a boolean, nor decimals that differ in scale."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return one.as_tuple() == other.as_tuple()
    return one == other
