"""`SchemaReader`: the declared fields of a record's value, by the version that the value meets.

Values of Avro and Protobuf begin with five bytes where a schema registry is used: 0, and the number of the
schema (Confluent's wire format). Protobuf's go on with the way to the message through its file: how many
steps, and each, as zigzag varints; a single 0 is the first message.

If a version names the number, that version counts; else all versions that name none are tried, newest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_schema import SchemaVersion, TopicSchema, read_schema

from ..damaged_json import DAMAGED, is_utf8
from ..tree import Scalar
from . import avro, protobuf
from .fixed import FixedReader
from .values import DoesNotMeet, fitting

_MAGIC: Final = 0
_HEAD: Final = 5  # bytes: the magic byte and the schema's number


class VersionReader(Protocol):
    def read(self, value: bytes) -> list[Scalar | None]:
        """Returns the values of the version's fields. Raises DoesNotMeet."""


class SchemaReader:
    """Reads values of a topic. `paths`: the declared fields, in the order of `read`'s values. Raises
    INVALID_CONFIG if the schema's text does not fit its fields."""

    def __init__(self, schema: TopicSchema) -> None:
        self.schema = schema
        self.paths = tuple(field.path for field in schema.fields)
        self._framed = schema.framed and schema.format in ("avro", "protobuf")
        self._versions: list[tuple[tuple[int, ...], VersionReader, list[int]]] = []
        places = {path: place for place, path in enumerate(self.paths)}
        for version in reversed(schema.versions):
            try:
                reader = _reader(schema, version)
            except ValueError as error:
                raise TreecastError(Fault.INVALID_CONFIG, f"schema: {error}") from error
            kept = [places[field.path] for field in version.fields if field.path in places]
            self._versions.append((version.ids, reader, kept))

    def read(self, value: bytes | None) -> Sequence[Scalar | None] | None:
        """Returns the declared fields' values; None if the value does not meet the schema."""
        if value is None:
            return None
        number, body = -1, value
        if self._framed or (self.schema.format == "json" and value[:1] == b"\0"):
            if len(value) < _HEAD or value[0] != _MAGIC:
                return None
            number, body = int.from_bytes(value[1:_HEAD], "big"), value[_HEAD:]
        named = any(number in ids for ids, _, _ in self._versions)
        for ids, reader, places in self._versions:
            if number in ids if named else not ids or number < 0:
                found = self._by(reader, body)
                if found is not None:
                    return self._placed(found, places)
        return None

    def _by(self, reader: VersionReader, body: bytes) -> list[Scalar | None] | None:
        try:
            if self._framed and isinstance(reader, protobuf.ProtobufReader):
                body = _behind_place(body, reader.place)
            return reader.read(body)
        except DoesNotMeet:
            return None

    def _placed(self, found: list[Scalar | None], places: list[int]) -> list[Scalar | None]:
        values: list[Scalar | None] = [None] * len(self.paths)
        for place, value in zip(places, found, strict=True):
            values[place] = value
        return values


@lru_cache(maxsize=256)
def reader_of(text: str) -> SchemaReader:
    """Returns the reader of a setting's schema. Raises INVALID_CONFIG."""
    return SchemaReader(read_schema(text))


def _reader(schema: TopicSchema, version: SchemaVersion) -> VersionReader:
    if schema.format == "json":
        return JsonReader(version)
    if schema.format == "avro":
        return avro.AvroReader(version)
    if schema.format == "protobuf":
        return protobuf.ProtobufReader(version)
    return FixedReader(version, schema.format == "fixed-le")


def _behind_place(body: bytes, place: tuple[int, ...]) -> bytes:
    """Returns the message behind the way to it. Raises DoesNotMeet if it is another message."""
    try:
        count, at = _zigzag(body, 0)
        same = place == (0,) if count == 0 else count == len(place)
        for wanted in place if count else ():
            step, at = _zigzag(body, at)
            same = same and step == wanted
    except IndexError:
        raise DoesNotMeet("the message's place ends too early") from None
    if not same:
        raise DoesNotMeet("it is another message of the file")
    return body[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    raw, at = protobuf.varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at


class JsonReader:
    """Reads JSON objects. A number without a fraction is one of a declared `f32` or `f64` too."""

    def __init__(self, version: SchemaVersion) -> None:
        self._fields = version.fields
        self._decoder = msgspec.json.Decoder(_shape([field.path for field in version.fields]))

    def read(self, value: bytes) -> list[Scalar | None]:
        """Returns the fields' values. Raises DoesNotMeet."""
        if not is_utf8(value):
            raise DoesNotMeet("text that is no UTF-8")
        try:
            found = self._decoder.decode(value)
        except DAMAGED:
            raise DoesNotMeet("no JSON object with these fields") from None
        return [fitting(field, _at(found, field.path)) for field in self._fields]


def _shape(paths: Sequence[tuple[str, ...]]) -> type[msgspec.Struct]:
    """Returns a struct with just these fields of an object; the decoder skips all others."""
    below: dict[str, list[tuple[str, ...]]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    wanted: list[tuple[str, object, object]] = []
    for number, inner in enumerate(below.values()):
        nested = [path for path in inner if path]
        type = object if () in inner or not nested else _shape(nested) | None
        wanted.append((f"f{number}", type, None))
    rename = {f"f{number}": name for number, name in enumerate(below)}
    return msgspec.defstruct("Wanted", wanted, rename=rename)


def _at(found: object, path: tuple[str, ...]) -> object:
    for name in path:
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, msgspec.Struct):
            place = _places(type(found)).get(name)
            found = None if place is None else getattr(found, place)
        else:
            return None
    return found


@lru_cache(maxsize=1024)
def _places(shape: type[msgspec.Struct]) -> dict[str, str]:
    return {field.encode_name: field.name for field in msgspec.structs.fields(shape)}
