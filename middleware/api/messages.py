"""Conversion of values to messages, and of messages to plain dictionaries.

`Form` is the one codec between a Struct and its message: fields of the same name hold the same value. So a
value is defined by its Struct and its message in `proto/` alone:

| in the Struct                   | in the message                |
| ------------------------------- | ----------------------------- |
| number, text, bytes, truth      | the same                      |
| an IntEnum                      | an enumeration of its numbers |
| an Enum of texts                | text                          |
| a UUID                          | 16 bytes                      |
| a Struct, or None               | a message, or none            |
| a number, text, bytes, or None  | `optional`                    |
| a tuple of any of these         | `repeated`                    |
| a mapping of texts              | `map`                         |
"""

from __future__ import annotations

import enum
import operator
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from msgspec import Struct

S = TypeVar("S", bound=Struct)
M = TypeVar("M", bound=Message)

Way = Callable[[Any], Any]
_forms: dict[tuple[type, type], Form[Any, Any]] = {}


class Form(Generic[S, M]):
    """The codec between values of one type and messages of one type."""

    def __init__(self, of: type[S], message: type[M]) -> None:
        hints, names = typing.get_type_hints(of), of.__struct_fields__
        self._of = of
        self._message = message
        self._names = names
        self._all = operator.attrgetter(*names)
        self._puts: list[tuple[str, Way]] = []  # for fields that differ between both sides
        self._takes: list[tuple[int, Way]] = []
        self._optional: list[tuple[int, str]] = []
        for place, name in enumerate(names):
            field = message.DESCRIPTOR.fields_by_name[name]
            put, take = _ways(hints[name], field)
            if put is not _same:
                self._puts.append((name, put))
            if take is not _same:
                self._takes.append((place, take))
            if field.has_presence:
                self._optional.append((place, name))

    def write(self, value: S) -> M:
        """Returns the message. Fields that are None are left out."""
        fields = dict(zip(self._names, self._all(value), strict=True))
        for _, name in self._optional:
            if fields[name] is None:
                del fields[name]
        for name, put in self._puts:
            if name in fields:
                fields[name] = put(fields[name])
        return self._message(**fields)

    def read(self, message: M) -> S:
        """Returns the value. Raises ValueError for an unknown number, name or id."""
        values = list(self._all(message))
        for place, name in self._optional:
            if not message.HasField(name):
                values[place] = None
        for place, take in self._takes:
            if values[place] is not None:
                values[place] = take(values[place])
        return self._of(*values)


def form(of: type[S], message: type[M]) -> Form[S, M]:
    """Returns the form of the two types, created once."""
    found = _forms.get((of, message))
    if found is None:
        found = _forms[of, message] = Form(of, message)
    return found


def _same(value: Any) -> Any:
    return value


def _ways(hint: Any, field: FieldDescriptor) -> tuple[Way, Way]:
    """Returns the writer and the reader of a field of this type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        (hint,) = (one for one in arguments if one is not type(None))
        return _ways(hint, field)
    if origin is tuple:
        put, take = _ways(arguments[0], field)
        return (lambda values: [put(one) for one in values]), (lambda values: tuple(map(take, values)))
    if origin is not None and issubclass(origin, Mapping):
        return dict, dict
    if issubclass(hint, Struct):
        inner: Form[Any, Any] = form(hint, field.message_type._concrete_class)
        return inner.write, inner.read
    if issubclass(hint, enum.IntEnum):
        return _same, hint
    if issubclass(hint, enum.Enum):
        return (lambda value: value.value), hint
    if hint is uuid.UUID:
        return (lambda value: value.bytes), (lambda value: uuid.UUID(bytes=value))
    return _same, _same


def as_dict(message: Message) -> dict[str, Any]:
    """Returns all fields by their proto names, absent messages as None, with numbers as numbers.

    Unlike in protobuf's JSON mapping, 64-bit integers are not strings.
    """
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, getattr(message, field.name))


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        return dict(value)
    if field.is_repeated:
        return [as_dict(item) for item in value]
    return as_dict(value)
