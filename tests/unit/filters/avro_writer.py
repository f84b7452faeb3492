"""A plain writer of Avro's binary encoding, from the specification: the reader's counterpart in tests."""

from __future__ import annotations

import struct
from typing import Any


def encoded(schema: Any, value: Any, named: dict[str, Any] | None = None) -> bytes:
    """Returns a value as bytes. A union's value is (branch, value)."""
    named = {} if named is None else named
    if isinstance(schema, list):
        branch, inner = value
        return long(branch) + encoded(schema[branch], inner, named)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, dict | list):
        return encoded(kind, value, named)
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = schema
    writer = _WRITERS.get(kind)
    if writer is not None:
        return bytes(writer(value))
    return _complex(kind, schema, value, named)


def _complex(kind: str, schema: Any, value: Any, named: dict[str, Any]) -> bytes:
    if kind == "record":
        return b"".join(encoded(one["type"], value[one["name"]], named) for one in schema["fields"])
    if kind == "enum":
        return long(schema["symbols"].index(value))
    if kind == "fixed":
        return bytes(value)
    if kind == "array":
        items = b"".join(encoded(schema["items"], one, named) for one in value)
        return (long(len(value)) + items if value else b"") + long(0)
    entries = b"".join(text(key) + encoded(schema["values"], one, named) for key, one in value.items())
    sized = long(-len(value)) + long(len(entries)) + entries if value else b""
    return sized + long(0)


def long(value: int) -> bytes:
    raw, out = (value << 1) ^ (value >> 63), bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def text(value: str) -> bytes:
    data = value.encode()
    return long(len(data)) + data


_WRITERS: dict[str, Any] = {
    "null": lambda value: b"",
    "boolean": lambda value: bytes([value]),
    "int": long,
    "long": long,
    "float": lambda value: struct.pack("<f", value),
    "double": lambda value: struct.pack("<d", value),
    "string": text,
    "bytes": lambda value: long(len(value)) + value,
}
