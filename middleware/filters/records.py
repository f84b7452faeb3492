"""Filters over Kafka records: how the language's fields map to a record.

| field | value |
| --- | --- |
| `topic`, `partition`, `offset`, `timestamp` | of the record; timestamp in ms since the Unix epoch |
| `key`, `value` | as UTF-8 text |
| `headers.NAME` | the last header of this name, as UTF-8 text |
| `key.F`, `value.F`, `value.F.G` | a field of the JSON object in key or value |
| `F`, `F.G` | the same as `value.F`, `value.F.G` |

A field has no value if it is absent, not UTF-8, not JSON, null, an array or an object. No constraint on such
a field holds. JSON with text that is not UTF-8, in any field, is no JSON.

Where the topic declares a schema (`schemas`), fields of the value are the declared ones, and a record that
does not meet the schema passes no filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from treecast.middleware.model.records import Record

from .damaged_json import DAMAGED, is_utf8
from .evaluate import compile_filter
from .schemas.check import declared_path
from .schemas.reader import SchemaReader
from .tree import Field, Filter, Scalar, fields

_Part = Callable[[Record], Scalar | None]


class RecordFilter:
    """A stateless filter for the records of one partition. Raises StatefulFilterError if the filter
    aggregates.

    `unmet`: how many records it has read that don't meet the topic's schema.
    """

    def __init__(self, tree: Filter, topic: str, partition: int, schema: SchemaReader | None = None) -> None:
        self._test = compile_filter(tree)
        self._read = RecordReader(fields(tree), topic, partition, schema)
        self.schema = schema
        self.unmet = 0

    def matches(self, record: Record) -> bool:
        """Returns whether the record passes."""
        values = self._read(record)
        if values is None:
            self.unmet += 1
            return False
        return self._test(values)

    def select(self, records: Iterable[Record]) -> list[Record]:
        """Returns the records that pass, in order."""
        return [record for record in records if self.matches(record)]


class RecordReader:
    """A reader of fields from records of one partition: takes a record, returns the fields' values in
    order; None if the record does not meet the topic's schema.
    """

    def __init__(
        self, wanted: Sequence[Field], topic: str, partition: int, schema: SchemaReader | None = None
    ) -> None:
        self._fixed: dict[str, Scalar] = {"topic": topic, "partition": partition}
        self._schema = schema
        self._declared = [] if schema is None else _declared(wanted, schema)  # (place here, place there)
        self._parts: list[_Part | None] = []
        in_key: list[tuple[int, tuple[str, ...]]] = []
        in_value: list[tuple[int, tuple[str, ...]]] = []
        for place, field in enumerate(wanted):
            part = self._part(field.path)
            self._parts.append(part)
            if part is not None:
                continue
            if field.path[0] == "key":
                in_key.append((place, field.path[1:]))
            elif schema is None:
                in_value.append((place, field.path[1:] if field.path[0] == "value" else field.path))
        self._key = JsonFields([path for _, path in in_key])
        self._value = JsonFields([path for _, path in in_value])
        self._key_places = [place for place, _ in in_key]
        self._value_places = [place for place, _ in in_value]

    def _part(self, path: tuple[str, ...]) -> _Part | None:
        """Returns the reader of a field outside JSON objects; None for a field inside one."""
        match path:
            case ("topic",) | ("partition",):
                fixed = self._fixed[path[0]]
                return lambda record: fixed
            case ("offset",):
                return lambda record: record.offset
            case ("timestamp",):
                return lambda record: record.timestamp
            case ("key",):
                return lambda record: _text(record.key)
            case ("value",):
                return lambda record: _text(record.value)
            case ("headers", name):
                return lambda record: _header(record, name)
        return None

    def __call__(self, record: Record) -> list[Scalar | None] | None:
        values = [None if part is None else part(record) for part in self._parts]
        if self._schema is not None:
            found = self._schema.read(record.value)
            if found is None:
                return None
            for here, there in self._declared:
                values[here] = found[there]
        if self._key_places:
            _place(values, self._key_places, self._key(record.key))
        if self._value_places:
            _place(values, self._value_places, self._value(record.value))
        return values


def _declared(wanted: Sequence[Field], schema: SchemaReader) -> list[tuple[int, int]]:
    """Returns where declared fields stand among those wanted, and in the schema."""
    places = {path: place for place, path in enumerate(schema.paths)}
    return [
        (place, places[path])
        for place, field in enumerate(wanted)
        if (path := declared_path(field)) is not None and path in places
    ]


def _place(values: list[Scalar | None], places: list[int], found: Sequence[Scalar | None]) -> None:
    for place, value in zip(places, found, strict=True):
        values[place] = value


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _header(record: Record, name: str) -> str | None:
    for header, value in reversed(record.headers):
        if header == name:
            return _text(value)
    return None


# --- fields of JSON objects


_Members = dict[str, msgspec.Raw]
_members_of: Final = msgspec.json.Decoder(_Members).decode


def json_fields(data: bytes | None, paths: Sequence[tuple[str, ...]]) -> list[Scalar | None]:
    """Returns the fields' values. This is the reference: each field is decoded by itself, so that no field
    decides what another one is. One that has no value in Python, as 1e999, has none."""
    if not data or not is_utf8(data):
        return [None] * len(paths)
    objects: dict[tuple[str, ...], _Members | None] = {(): _members(data)}
    return [_scalar(_member(objects, path)) for path in paths]


def _member(objects: dict[tuple[str, ...], _Members | None], path: tuple[str, ...]) -> msgspec.Raw | None:
    """Returns what is at a path. `objects`: those that are decoded already, by their paths."""
    above = path[:-1]
    if above not in objects:
        raw = _member(objects, above)
        objects[above] = None if raw is None else _members(raw)
    members = objects[above]
    return None if members is None else members.get(path[-1])


def _members(data: bytes | msgspec.Raw) -> _Members | None:
    """Returns the members of an object; None if it is something else."""
    try:
        return _members_of(data)
    except DAMAGED:
        return None


def _scalar(raw: msgspec.Raw | None) -> Scalar | None:
    if raw is None:
        return None
    try:
        value = msgspec.json.decode(raw)
    except DAMAGED:
        return None
    return value if isinstance(value, int | float | str) else None


def _follow(tree: object, path: tuple[str, ...]) -> Scalar | None:
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree if isinstance(tree, int | float | str) else None


class JsonFields:
    """`json_fields` for fixed paths. It decodes everything at once; if all paths have one name, only the
    requested fields. What cannot be decoded so is left to `json_fields`.
    """

    def __init__(self, paths: Sequence[tuple[str, ...]]) -> None:
        self._paths = tuple(paths)
        flat = len({path[0] for path in paths if len(path) == 1}) == len(paths) > 0
        self._decoder = msgspec.json.Decoder(_shape([path[0] for path in paths])) if flat else None

    def __call__(self, data: bytes | None) -> Sequence[Scalar | None]:
        if not data or not is_utf8(data):
            return [None] * len(self._paths)
        try:
            if self._decoder is None:
                tree = msgspec.json.decode(data)
                return [_follow(tree, path) for path in self._paths]
            values = msgspec.structs.astuple(self._decoder.decode(data))
        except DAMAGED:
            return json_fields(data, self._paths)
        return [value if isinstance(value, int | float | str) else None for value in values]


def _shape(names: Sequence[str]) -> type[msgspec.Struct]:
    """Returns a struct with just these fields of an object; the decoder skips all others."""
    places = [f"f{number}" for number in range(len(names))]
    return msgspec.defstruct(
        "Wanted", [(place, object, None) for place in places], rename=dict(zip(places, names, strict=True))
    )
