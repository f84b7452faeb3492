"""Avro's binary encoding (specification 1.11): the declared fields of a record, everything else skipped.

A schema text is compiled once into a plan: for each field of a record, read, enter or skip. Named types may
contain themselves; values are followed to a depth of 64. Logical types are read as what they are stored as;
an enum as its symbol, bytes and fixed as text.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from treecast.middleware.model.topic_schema import MOST_FIELDS, DeclaredField, SchemaVersion

from ..tree import Scalar
from .values import DoesNotMeet, all_fitting, text_of

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_KINDS: Final = {  # what a declared field may be stored as
    "bool": ("boolean",),
    "u": ("int", "long"),
    "i": ("int", "long"),
    "f": ("int", "long", "float", "double"),
    "s": ("string", "bytes", "fixed", "enum"),
}
_DEPTH: Final = 64
_NESTED: Final = 4  # records inside one another whose fields are declared without being named
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")


class Type:
    """A type. `parts`: of a record its fields' types, of a union its branches, of array and map the items.

    `empty`: its values take no bytes. `rest`: the types whose values are the bytes of a record; `alike`: the
    type with the same bytes, if that is one. So that each step over a value passes bytes.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.names: list[str] = []  # fields of a record, symbols of an enum
        self.parts: list[Type] = []
        self.size = 0  # of fixed, in bytes
        self.empty = False
        self.rest: list[Type] = []
        self.alike = self


def read_type(text: str) -> Type:
    """Returns the type that an Avro schema states. Raises ValueError."""
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"the Avro schema is no JSON: {error}") from error
    found = _Types().type(tree, "", 0)
    _settle(found, set())
    return found


def _settle(type: Type, begun: set[Type]) -> None:
    """Notes which types have no bytes, parts first. One that holds itself without a union has no values."""
    if type in begun:
        return
    begun.add(type)
    for part in type.parts:
        _settle(part, begun)
    if type.kind == "record":
        type.rest = [part.alike for part in type.parts if not part.empty]
        if len(type.rest) == 1:
            type.alike = type.rest[0]
    type.empty = type.kind == "null" or (type.kind == "fixed" and type.size == 0)
    type.empty |= type.kind == "record" and not type.rest


class _Types:
    """The named types of one schema text."""

    def __init__(self) -> None:
        self._named: dict[str, Type] = {}

    def type(self, tree: object, space: str, depth: int) -> Type:
        if depth > _DEPTH:
            raise ValueError(f"the Avro schema has more than {_DEPTH} types inside one another")
        if isinstance(tree, str):
            return self._by_name(tree, space)
        if isinstance(tree, list):
            found = Type("union")
            found.parts = [self.type(one, space, depth + 1) for one in tree]
            return found
        if not isinstance(tree, dict) or "type" not in tree:
            raise ValueError("a type of the Avro schema is neither a name, a list nor an object with a type")
        return self._complex(tree, space, depth)

    def _by_name(self, name: str, space: str) -> Type:
        if name in _PRIMITIVES:
            return Type(name)
        found = self._named.get(name if "." in name or not space else f"{space}.{name}")
        found = found or self._named.get(name)
        if found is None:
            raise ValueError(f"the Avro schema names the type {name!r}, which it does not define")
        return found

    def _complex(self, tree: Mapping[str, Any], space: str, depth: int) -> Type:
        kind = tree["type"]
        if not isinstance(kind, str) or kind in _PRIMITIVES or kind in self._named:
            return self.type(kind, space, depth + 1)
        if kind in ("array", "map"):
            found = Type(kind)
            found.parts = [self.type(tree.get("items" if kind == "array" else "values"), space, depth + 1)]
            return found
        if kind not in ("record", "error", "enum", "fixed"):
            return self._by_name(kind, space)
        return self._named_type(tree, kind, space, depth)

    def _named_type(self, tree: Mapping[str, Any], kind: str, space: str, depth: int) -> Type:
        found = Type("record" if kind == "error" else kind)
        name, space = str(tree.get("name", "")), str(tree.get("namespace", space))
        if "." in name:
            space, _, name = name.rpartition(".")
        self._named[f"{space}.{name}" if space else name] = found  # before its parts: they may name it
        if kind == "enum":
            found.names = [str(one) for one in tree.get("symbols", ())]
        elif kind == "fixed":
            size = tree.get("size")
            if not isinstance(size, int) or size < 0:
                raise ValueError(f"the fixed type {name!r} of the Avro schema has no size")
            found.size = size
        else:
            for one in tree.get("fields", ()):
                if not isinstance(one, dict) or "name" not in one or "type" not in one:
                    raise ValueError(f"a field of {name!r} in the Avro schema has no name or no type")
                found.names.append(str(one["name"]))
                found.parts.append(self.type(one["type"], space, depth + 1))
        return found


# --- fields


def declared(type: Type) -> list[DeclaredField]:
    """Returns the fields that a record's scalar parts, also those of records in it, can be declared as."""
    found: list[DeclaredField] = []
    _collect(type, (), False, found)
    return found


_NATURAL: Final = {
    "boolean": ("bool", 1),
    "int": ("i", 4),
    "long": ("i", 8),
    "float": ("f", 4),
    "double": ("f", 8),
    "string": ("s", 0),
    "enum": ("s", 0),
}


def _collect(type: Type, path: tuple[str, ...], optional: bool, found: list[DeclaredField]) -> None:
    if len(path) > _NESTED or len(found) > MOST_FIELDS:
        return  # a type that contains itself
    kind, missing = _only(type)
    if kind is None:
        return
    if kind.kind == "record":
        for name, part in zip(kind.names, kind.parts, strict=True):
            _collect(part, (*path, name), optional or missing, found)
    elif kind.kind in _NATURAL and path:
        written, size = _NATURAL[kind.kind]
        found.append(DeclaredField(path, written, size, optional or missing))


def _only(type: Type) -> tuple[Type | None, bool]:
    """Returns (the one type of a value, whether it may be null); None if it may be several."""
    if type.kind != "union":
        return type, False
    others = [part for part in type.parts if part.kind != "null"]
    return (others[0] if len(others) == 1 else None), len(others) < len(type.parts)


class AvroReader:
    """Reads values of one version. Raises ValueError if a declared field is not in the schema text, or is
    something else there."""

    def __init__(self, version: SchemaVersion) -> None:
        self._type = read_type(version.text)
        self._fields = version.fields
        if self._type.kind != "record":
            raise ValueError("the Avro schema is no record")
        self._wanted = _plan(self._type, [field.path for field in version.fields])
        for field in version.fields:
            _check(self._type, field)

    def read(self, value: bytes) -> list[Scalar | None]:
        """Returns the fields' values. Raises DoesNotMeet."""
        values: list[Scalar | None] = [None] * len(self._fields)
        reading = _Reading(value, values)
        try:
            reading.record(self._type, self._wanted, 0)
        except (IndexError, struct.error):
            raise DoesNotMeet("the value ends too early") from None
        if reading.position != len(value):
            raise DoesNotMeet("bytes are left behind the value")
        return all_fitting(self._fields, values)


Plan = dict[int, "int | Plan"]
"""By the place of a field of a record: where its value goes, or the plan of the record that it is."""


def _plan(type: Type, paths: Sequence[tuple[str, ...]]) -> Plan:
    found: Plan = {}
    for number, path in enumerate(paths):
        plan, at = found, type
        for depth, name in enumerate(path):
            record, _ = _only(at)
            if record is None or record.kind != "record" or name not in record.names:
                raise ValueError(f"the Avro schema has no field {'.'.join(path)}")
            place = record.names.index(name)
            at = record.parts[place]
            if depth + 1 == len(path):
                plan[place] = number
            else:
                below = plan.setdefault(place, {})
                assert isinstance(below, dict)
                plan = below
    return found


def _check(type: Type, field: DeclaredField) -> None:
    at: Type | None = type
    for name in field.path:
        record, _ = _only(at) if at is not None else (None, False)
        at = None if record is None else record.parts[record.names.index(name)]
    kinds = [] if at is None else [part.kind for part in (at.parts if at.kind == "union" else [at])]
    if not any(kind in _KINDS[field.kind] for kind in kinds):
        raise ValueError(f"{field.name} is {' or '.join(kinds)} in the Avro schema, not {field.type}")


class _Reading:
    """A pass over one value."""

    def __init__(self, data: bytes, values: list[Scalar | None]) -> None:
        self._data = data
        self._values = values
        self.position = 0

    def record(self, type: Type, plan: Plan, depth: int) -> None:
        for place, part in enumerate(type.parts):
            wanted = plan.get(place)
            if wanted is None:
                self._skip(part, depth + 1)
            elif isinstance(wanted, int):
                self._values[wanted] = self._scalar(part, depth + 1)
            else:
                inner = self._branch(part)
                if inner.kind == "record":
                    self.record(inner, wanted, depth + 1)
                else:
                    self._skip(inner, depth + 1)

    def _branch(self, type: Type) -> Type:
        while type.kind == "union":
            number = self._long()
            if not 0 <= number < len(type.parts):
                raise DoesNotMeet(f"a union has no branch {number}")
            type = type.parts[number]
        return type

    def _scalar(self, type: Type, depth: int) -> Scalar | None:
        type = self._branch(type)
        kind = type.kind
        if kind in ("int", "long"):
            return self._long()
        if kind in ("string", "bytes"):
            return text_of(self._take(self._long()))
        if kind == "double":
            return float(_DOUBLE.unpack(self._take(8))[0])
        if kind == "float":
            return float(_FLOAT.unpack(self._take(4))[0])
        if kind == "boolean":
            return self._boolean()
        if kind == "enum":
            return self._symbol(type)
        if kind == "fixed":
            return text_of(self._take(type.size))
        self._skip(type, depth)
        return None

    def _boolean(self) -> bool:
        byte = self._take(1)[0]
        if byte > 1:
            raise DoesNotMeet("a boolean is 0 or 1")
        return byte == 1

    def _symbol(self, type: Type) -> str:
        number = self._long()
        if not 0 <= number < len(type.names):
            raise DoesNotMeet(f"an enum has no symbol {number}")
        return type.names[number]

    def _take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise DoesNotMeet("the value ends too early")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def _long(self) -> int:
        """A zigzag number of at most 64 bits."""
        data, position, shift, found = self._data, self.position, 0, 0
        while True:
            byte = data[position]
            position += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise DoesNotMeet("a number is too long")
        self.position = position
        return (found >> 1) ^ -(found & 1)

    def _skip(self, type: Type, depth: int) -> None:
        if depth > _DEPTH:
            raise DoesNotMeet(f"more than {_DEPTH} values inside one another")
        if type.empty:
            return
        type = self._branch(type.alike)
        kind = type.kind
        if kind == "record":
            for part in type.rest:
                self._skip(part, depth + 1)
        elif kind in ("array", "map"):
            self._skip_blocks(type, depth)
        elif kind in ("int", "long", "enum"):
            self._long()
        elif kind in ("bytes", "string"):
            self._take(self._long())
        else:
            self._take({"null": 0, "boolean": 1, "float": 4, "double": 8}.get(kind, type.size))

    def _skip_blocks(self, type: Type, depth: int) -> None:
        while count := self._long():
            if count < 0:
                self._take(self._long())
                continue
            items = type.parts[0]
            if type.kind == "array" and items.empty:
                continue  # their number costs nothing
            for _ in range(count):
                if type.kind == "map":  # a key is a byte or more
                    self._take(self._long())
                self._skip(items, depth + 1)
