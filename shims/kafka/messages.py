"""Kafka's messages, compiled from their descriptors: converts bytes to values and back, checks every length.

A descriptor is Kafka's own JSON; KIP-482 specifies how its fields are encoded. For one message and one
version it is compiled to a read plan and a write plan, lists of (field name, function). Encodings, all
big-endian:

| type          | plain versions                        | flexible versions                          |
| ------------- | ------------------------------------- | ------------------------------------------ |
| int8 .. int64 | two's complement                      | the same                                   |
| string        | int16 length, UTF-8; -1: null         | varint length + 1, UTF-8; 0: null          |
| bytes         | int32 length; -1: null                | varint length + 1; 0: null                 |
| array         | int32 count, elements; -1: null       | varint count + 1, elements; 0: null        |
| struct end    | nothing                               | varint count of (tag, size, bytes)         |

A count is checked against the remaining bytes before a list is allocated, and the sum of the counts of one
message against `MAX_ELEMENTS`. The memory of a message is therefore a bounded multiple of its size.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

MAX_ELEMENTS = 100_000  # in all arrays of one request together

NO_UUID = uuid.UUID(int=0)
_NO_UUID_BYTES = NO_UUID.bytes

Json = dict[str, Any]
Values = Mapping[str, Any]


class MalformedMessage(Exception):
    """Raised if the bytes are not a message of this type and version."""


class Reader:
    """Reads primitives. Raises MalformedMessage if the bytes end early or break a rule."""

    __slots__ = ("_data", "_elements", "position")

    def __init__(self, data: memoryview, position: int = 0) -> None:
        self._data = data
        self.position = position
        self._elements = MAX_ELEMENTS

    @property
    def left(self) -> int:
        return len(self._data) - self.position

    def unpack(self, packer: struct.Struct) -> Any:
        try:
            (value,) = packer.unpack_from(self._data, self.position)
        except struct.error as error:
            raise MalformedMessage("the message ends inside a number") from error
        self.position += packer.size
        return value

    def varint(self) -> int:
        """Reads an unsigned varint of at most 5 bytes."""
        value = 0
        for shift in range(0, 35, 7):
            if self.position >= len(self._data):
                break
            byte = self._data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedMessage("a varint does not end")

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= self.left:
            raise MalformedMessage(f"a field of {size} bytes where {self.left} are left")
        start = self.position
        self.position = start + size
        return self._data[start : start + size]

    def count(self, count: int, smallest: int) -> int:
        """Checks an array's count against the remaining bytes; an element takes at least `smallest` bytes."""
        if count < 0 or count * smallest > self.left:
            raise MalformedMessage(f"an array of {count} elements where {self.left} bytes are left")
        self._elements -= count
        if self._elements < 0:
            raise MalformedMessage(f"more than {MAX_ELEMENTS} array elements in one message")
        return count


Read = Callable[[Reader], Any]
Write = Callable[[bytearray, Any], None]

_FIXED = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_INT16 = _FIXED["int16"]
_INT32 = _FIXED["int32"]


def snake(name: str) -> str:
    """Converts `ErrorCode` to `error_code`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def in_versions(versions: str | None, version: int) -> bool:
    """Whether a version range in Kafka's notation (`3`, `1-4`, `2+` or `none`) contains `version`."""
    if not versions or versions == "none":
        return False
    first, _, last = versions.replace("+", f"-{2**15}").partition("-")
    return int(first) <= version <= int(last or first)


def write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# --- primitives


def _fixed(kind: str) -> tuple[Read, Write, int]:
    packer = _FIXED[kind]

    def read(reader: Reader) -> Any:
        return reader.unpack(packer)

    def write(out: bytearray, value: Any) -> None:
        out += packer.pack(value)

    return read, write, packer.size


def _uuid() -> tuple[Read, Write, int]:
    def read(reader: Reader) -> Any:
        data = bytes(reader.take(16))
        return NO_UUID if data == _NO_UUID_BYTES else uuid.UUID(bytes=data)

    def write(out: bytearray, value: Any) -> None:
        out += value.bytes

    return read, write, 16


def _length(packer: struct.Struct, flexible: bool) -> tuple[Read, Write]:
    """Returns the functions that read and write a length (-1: null)."""

    def read_compact(reader: Reader) -> Any:
        return reader.varint() - 1

    def read_plain(reader: Reader) -> Any:
        return reader.unpack(packer)

    def write_compact(out: bytearray, length: int) -> None:
        write_varint(out, length + 1)

    def write_plain(out: bytearray, length: int) -> None:
        out += packer.pack(length)

    return (read_compact, write_compact) if flexible else (read_plain, write_plain)


def _variable(kind: str, nullable: bool, flexible: bool) -> tuple[Read, Write, int]:
    text = kind == "string"
    read_length, write_length = _length(_INT16 if text else _INT32, flexible)

    def read(reader: Reader) -> Any:
        length = read_length(reader)
        if length == -1 and nullable:
            return None
        data = bytes(reader.take(length))
        if not text:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise MalformedMessage("a string is not UTF-8") from error

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError("null in a field that is not nullable")
            write_length(out, -1)
            return
        data = value.encode() if text else value
        write_length(out, len(data))
        out += data

    return read, write, 1 if flexible else (2 if text else 4)


def _array(
    read_item: Read, write_item: Write, smallest: int, nullable: bool, flexible: bool
) -> tuple[Read, Write, int]:
    read_length, write_length = _length(_INT32, flexible)

    def read(reader: Reader) -> Any:
        count = read_length(reader)
        if count == -1 and nullable:
            return None
        return [read_item(reader) for _ in range(reader.count(count, smallest))]

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise ValueError("null in an array that is not nullable")
            write_length(out, -1)
            return
        write_length(out, len(value))
        for item in value:
            write_item(out, item)

    return read, write, 1 if flexible else 4


# --- structs


class Row(msgspec.Struct, gc=False):
    """The base of what is read. A request of many rows is no work for the collector: nothing in it refers
    back to it.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Message:
    """One struct of one version. `read` returns a `Row` with every field of every version."""

    def __init__(self, fields: Sequence[Json], version: int, flexible: bool) -> None:
        self._flexible = flexible
        self._names = frozenset(snake(field["name"]) for field in fields)
        self._absent: Json = {}
        self._reads: list[tuple[str, Read]] = []
        self._writes: list[tuple[str, Write, Any]] = []
        self._tagged: dict[int, tuple[str, Read, Write, Any]] = {}
        self.smallest = 1 if flexible else 0
        for field in fields:
            self._add(field, version)
        self._row: Any = msgspec.defstruct(
            "Row", [(name, Any) for name in sorted(self._names)], bases=(Row,), kw_only=True, gc=False
        )

    def _add(self, field: Json, version: int) -> None:
        name, default = snake(field["name"]), _default(field)
        if not in_versions(field["versions"], version):
            self._absent[name] = default
            return
        read, write, smallest = _compile(field, version, self._flexible)
        if "tag" in field and in_versions(field["taggedVersions"], version):
            self._absent[name] = default
            self._tagged[int(field["tag"])] = (name, read, write, default)
            return
        self._reads.append((name, read))
        self._writes.append((name, write, default))
        self.smallest += smallest

    def read(self, reader: Reader) -> Row:
        values = {name: read(reader) for name, read in self._reads}
        if self._absent:
            values = self._absent | values
        if self._flexible:
            self._read_tagged(reader, values)
        row: Row = self._row(**values)
        return row

    def _read_tagged(self, reader: Reader, values: Json) -> None:
        for _ in range(reader.count(reader.varint(), 2)):
            tag, size = reader.varint(), reader.varint()
            inner = Reader(reader.take(size))
            if tag in self._tagged:
                name, read, _, _ = self._tagged[tag]
                values[name] = read(inner)

    def write(self, out: bytearray, values: Values) -> None:
        if not values.keys() <= self._names:
            raise ValueError(f"no such fields: {sorted(values.keys() - self._names)}")
        for name, write, default in self._writes:
            try:
                write(out, values.get(name, default))
            except (struct.error, TypeError, AttributeError) as error:
                raise ValueError(f"{name} cannot be {values.get(name, default)!r}") from error
        if self._flexible:
            self._write_tagged(out, values)

    def _write_tagged(self, out: bytearray, values: Values) -> None:
        present = [
            (tag, write, values[name])
            for tag, (name, _, write, default) in sorted(self._tagged.items())
            if name in values and not _is_default(values[name], default)
        ]
        write_varint(out, len(present))
        for tag, write, value in present:
            inner = bytearray()
            write(inner, value)
            write_varint(out, tag)
            write_varint(out, len(inner))
            out += inner


def _compile(field: Json, version: int, flexible: bool) -> tuple[Read, Write, int]:
    """Returns (reader, writer, smallest size in bytes) of one field."""
    kind: str = field["type"]
    nullable = in_versions(field.get("nullableVersions"), version)
    element = kind.removeprefix("[]")
    if element in _FIXED:
        compiled = _fixed(element)
    elif element == "uuid":
        compiled = _uuid()
    elif element in ("string", "bytes", "records"):
        compiled = _variable(element, nullable and element == kind, flexible)
    else:
        inner = Message(field["fields"], version, flexible)
        compiled = inner.read, inner.write, inner.smallest
        if nullable and element == kind:
            return _nullable_struct(inner)
    if element == kind:
        return compiled
    read, write, smallest = compiled
    return _array(read, write, smallest, nullable, flexible)


def _nullable_struct(inner: Message) -> tuple[Read, Write, int]:
    """As `_compile`, for a nullable struct: an int8 precedes it, -1 for null, 1 otherwise (KIP-893)."""
    mark = _FIXED["int8"]

    def read(reader: Reader) -> Any:
        found = reader.unpack(mark)
        if found == -1:
            return None
        if found != 1:
            raise MalformedMessage(f"{found} before a struct")
        return inner.read(reader)

    def write(out: bytearray, value: Any) -> None:
        out += mark.pack(-1 if value is None else 1)
        if value is not None:
            inner.write(out, value)

    return read, write, 1


def _is_default(value: Any, default: Any) -> bool:
    return bool(value == default) or (default == () and value == [])


def _default(field: Json) -> Any:
    """Returns the value of a field that a message does not carry."""
    kind: str = field["type"]
    default = field.get("default", "")
    if default == "null":
        return None
    if kind.startswith("[]"):
        return ()
    if kind == "bool":
        return default is True or default == "true"
    if kind == "uuid":
        return NO_UUID
    if kind in ("bytes", "records"):
        return b""
    if kind == "float64":
        return float(default or 0)
    if kind in _FIXED:
        return int(default, 0) if isinstance(default, str) and default else int(default or 0)
    return default if kind == "string" else None
