"""Protobuf's wire format: the declared fields of a message, everything else skipped.

The last value of a field counts, and messages that come twice are merged, as the specification wants it. A
scalar of proto3 without presence has its default where it is absent. Enums are read as their symbols, numbers
without one and repeated fields have no value.
"""

from __future__ import annotations

import struct
from typing import Final

from treecast.middleware.model.topic_schema import MOST_FIELDS, DeclaredField, SchemaVersion

from ..tree import Scalar
from .protobuf_text import Enum, File, Message, ProtoField, read_file
from .values import DoesNotMeet, all_fitting, text_of

_VARINT, _EIGHT, _BYTES, _BEGIN, _END, _FOUR = range(6)
_DEPTH: Final = 64

# type -> (wire type, kind of a declared field, its size)
_TYPES: Final = {
    "int32": (_VARINT, "i", 4),
    "int64": (_VARINT, "i", 8),
    "uint32": (_VARINT, "u", 4),
    "uint64": (_VARINT, "u", 8),
    "sint32": (_VARINT, "i", 4),
    "sint64": (_VARINT, "i", 8),
    "bool": (_VARINT, "bool", 1),
    "fixed32": (_FOUR, "u", 4),
    "fixed64": (_EIGHT, "u", 8),
    "sfixed32": (_FOUR, "i", 4),
    "sfixed64": (_EIGHT, "i", 8),
    "float": (_FOUR, "f", 4),
    "double": (_EIGHT, "f", 8),
    "string": (_BYTES, "s", 0),
    "bytes": (_BYTES, "s", 0),
}
_FIXED: Final = {
    "fixed32": "<I",
    "fixed64": "<Q",
    "sfixed32": "<i",
    "sfixed64": "<q",
    "float": "<f",
    "double": "<d",
}
_DEFAULTS: Final[dict[str, Scalar]] = {"u": 0, "i": 0, "f": 0.0, "s": "", "bool": False}
_FITS: Final = {"u": ("u", "i"), "i": ("u", "i"), "f": ("u", "i", "f"), "s": ("s",), "bool": ("bool",)}


def message_of(file: File, name: str) -> Message:
    """Returns the message that values are; without a name the file's first. Raises ValueError."""
    found = file.messages.get(name.removeprefix(f"{file.package}.")) if name else None
    if not name:
        found = next(iter(file.messages.values()), None)
    if found is None:
        known = ", ".join(file.messages) or "none"
        raise ValueError(f"the .proto file has no message {name}; it has {known}")
    return found


def declared(file: File, message: Message) -> list[DeclaredField]:
    """Returns the fields that a message's scalars, also those of messages in it, can be declared as."""
    found: list[DeclaredField] = []
    _collect(file, message, (), False, found)
    return found


def _collect(
    file: File, message: Message, path: tuple[str, ...], optional: bool, found: list[DeclaredField]
) -> None:
    for field in message.fields.values():
        here = (*path, field.name)
        if field.repeated or len(here) > 4 or len(found) > MOST_FIELDS:
            continue
        inner = file.resolved(field.type, message.name)
        if isinstance(inner, Message):
            _collect(file, inner, here, True, found)
            continue
        kind = _kind(field, inner)
        if kind is not None:
            found.append(DeclaredField(here, kind[0], kind[1], optional or field.present))


def _kind(field: ProtoField, inner: Message | Enum | None) -> tuple[str, int] | None:
    """Returns kind and size of a scalar field."""
    if isinstance(inner, Enum):
        return "s", 0
    known = _TYPES.get(field.type)
    return None if known is None else (known[1], known[2])


class _Leaf:
    """The place that a scalar's value goes to, and the way it is read."""

    def __init__(self, place: int, type: str, symbols: Enum | None) -> None:
        self.place = place
        self.type = type
        self.symbols = symbols
        self.wire = _VARINT if symbols is not None else _TYPES[type][0]


class _Plan:
    """The wanted fields of one message, by number. `defaults`: places that begin with a default."""

    def __init__(self) -> None:
        self.leaves: dict[int, _Leaf] = {}
        self.inner: dict[int, _Plan] = {}
        self.defaults: list[tuple[int, Scalar]] = []


class ProtobufReader:
    """Reads values of one version. Raises ValueError if a declared field is not in the message, or is
    something else there. `place`: the message's way through the file."""

    def __init__(self, version: SchemaVersion) -> None:
        self._file = read_file(version.text)
        message = message_of(self._file, version.message)
        self.place = message.place
        self._fields = version.fields
        self._plan = _Plan()
        for number, field in enumerate(version.fields):
            self._add(message, field, number)

    def _add(self, message: Message, declared: DeclaredField, place: int) -> None:
        plan = self._plan
        for depth, name in enumerate(declared.path):
            field = message.fields.get(name)
            if field is None or field.repeated:
                what = "is repeated" if field is not None else "is not"
                raise ValueError(f"{declared.name} {what} in message {message.name} of the .proto file")
            inner = self._file.resolved(field.type, message.name)
            last = depth + 1 == len(declared.path)
            if last is isinstance(inner, Message):
                raise ValueError(f"{declared.name} is {'a' if last else 'no'} message in the .proto file")
            if isinstance(inner, Message):
                plan = plan.inner.setdefault(field.number, _Plan())
                message = inner
            else:
                self._leaf(plan, field, inner, declared, place)

    def _leaf(
        self, plan: _Plan, field: ProtoField, inner: Enum | None, declared: DeclaredField, place: int
    ) -> None:
        kind = _kind(field, inner)
        if kind is None or kind[0] not in _FITS[declared.kind]:
            raise ValueError(f"{declared.name} is {field.type} in the .proto file, not {declared.type}")
        plan.leaves[field.number] = _Leaf(place, field.type, inner)
        if not field.present:
            default = inner.symbols.get(0, "") if inner is not None else _DEFAULTS[kind[0]]
            plan.defaults.append((place, default))

    def read(self, value: bytes) -> list[Scalar | None]:
        """Returns the fields' values. Raises DoesNotMeet."""
        values: list[Scalar | None] = [None] * len(self._fields)
        try:
            _message(value, 0, len(value), self._plan, values, 0, set())
        except (IndexError, struct.error):
            raise DoesNotMeet("the message ends too early") from None
        return all_fitting(self._fields, values)


def _message(
    data: bytes,
    at: int,
    end: int,
    plan: _Plan,
    values: list[Scalar | None],
    depth: int,
    begun: set[_Plan],
) -> None:
    if depth > _DEPTH:
        raise DoesNotMeet(f"more than {_DEPTH} messages inside one another")
    if plan not in begun:  # once: a message may come many times, in two bytes each
        begun.add(plan)
        for place, default in plan.defaults:
            values[place] = default
    while at < end:
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        stop = _behind(data, at, end, wire, number, depth)
        leaf = plan.leaves.get(number)
        if leaf is not None and leaf.wire == wire:
            values[leaf.place] = _scalar(data, at, stop, leaf)
        elif wire == _BYTES and number in plan.inner:
            _, first = varint(data, at)
            _message(data, first, stop, plan.inner[number], values, depth + 1, begun)
        at = stop


def _behind(data: bytes, at: int, end: int, wire: int, number: int, depth: int) -> int:
    """Returns where a field ends. Raises DoesNotMeet if it is none, or too long."""
    if number == 0:
        raise DoesNotMeet("a field has the number 0")
    if wire == _VARINT:
        _, stop = varint(data, at)
    elif wire == _BYTES:
        size, first = varint(data, at)
        stop = first + size
    elif wire == _BEGIN:
        stop = _group(data, at, end, number, depth + 1)
    else:
        if wire not in (_EIGHT, _FOUR):
            raise DoesNotMeet(f"there is no wire type {wire}")
        stop = at + (8 if wire == _EIGHT else 4)
    if stop > end:
        raise DoesNotMeet("the message ends too early")
    return stop


def _group(data: bytes, at: int, end: int, number: int, depth: int) -> int:
    if depth > _DEPTH:
        raise DoesNotMeet(f"more than {_DEPTH} messages inside one another")
    while at < end:
        tag, at = varint(data, at)
        if tag == number << 3 | _END:
            return at
        at = _behind(data, at, end, tag & 7, tag >> 3, depth)
    raise DoesNotMeet("the message ends too early")


def _scalar(data: bytes, at: int, stop: int, leaf: _Leaf) -> Scalar | None:
    if leaf.symbols is not None:
        number = _signed(varint(data, at)[0], 32)
        return leaf.symbols.symbols.get(number)
    if leaf.wire == _BYTES:
        _, first = varint(data, at)
        return text_of(data[first:stop])
    if leaf.wire != _VARINT:
        found = struct.unpack_from(_FIXED[leaf.type], data, at)[0]
        assert isinstance(found, int | float)
        return found
    raw, _ = varint(data, at)
    return _whole(raw, leaf.type)


def _whole(raw: int, type: str) -> Scalar:
    """Returns a varint's value, cut to its type's bits as parsers do."""
    if type == "bool":
        return raw != 0
    if type in ("sint32", "sint64"):
        raw &= 0xFFFFFFFF if type == "sint32" else 0xFFFFFFFFFFFFFFFF
        return (raw >> 1) ^ -(raw & 1)
    bits = 32 if type.endswith("32") else 64
    return raw & ((1 << bits) - 1) if type[0] == "u" else _signed(raw, bits)


def _signed(raw: int, bits: int) -> int:
    raw &= (1 << bits) - 1
    return raw - (1 << bits) if raw >> (bits - 1) else raw


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns (the number at `at`, where it ends). Raises DoesNotMeet, or IndexError at the data's end."""
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise DoesNotMeet("a number is too long")
