"""Values into columns of the query's own schema: JSON objects, and layouts of fixed size.

A field of the schema is a field of the value, except those of `OF_RECORD`, which begin with `_` and are the
record's own. A value that does not fit fails the query, is dropped, or is kept with null for the unfitting
parts, as the option `mode` states with Spark's names.

For JSON objects the kept parts are those of Spark's `from_json`: an unfitting field is null and the others
are present, also within objects; one unfitting element makes its whole array or map null; a value that is not
an object is a row of nulls. A timestamp without a zone is in the session's zone.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ..errors import DecodeError, OptionError
from .columns import Columns
from .packed import Packed

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import DataType, StructType

FAIL, DROP, KEEP = "FAILFAST", "DROPMALFORMED", "PERMISSIVE"
MODES = (FAIL, DROP, KEEP)
FORMATS = ("json", "fixed")
OF_RECORD = {
    "_key": "binary",
    "_value": "binary",
    "_topic": "string",
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    "_headers": "array<struct<key:string,value:binary>>",
}

Row = dict[str, Any] | None  # None: it could not be decoded
Decode = Callable[[list[bytes | None]], list[Row]]

_SIZES = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
# struct's codes, and the types that hold them without loss
_CODES = {
    "?": ("boolean",),
    "b": ("tinyint", "smallint", "int", "bigint"),
    "B": ("smallint", "int", "bigint"),
    "h": ("smallint", "int", "bigint"),
    "H": ("int", "bigint"),
    "i": ("int", "bigint"),
    "I": ("bigint",),
    "q": ("bigint",),
    "f": ("float", "double"),
    "d": ("double",),
    "s": ("binary",),
}


def fields_of_value(schema: StructType) -> list[tuple[str, DataType]]:
    """Returns the fields that are in values. Raises OptionError if one of the record's own has a
    wrong type.
    """
    found: list[tuple[str, DataType]] = []
    for field in schema:
        wanted = OF_RECORD.get(field.name)
        if wanted is None:
            found.append((field.name, field.dataType))
        elif field.dataType.simpleString() != wanted:
            raise OptionError(f"{field.name} of the schema is {wanted}, not {field.dataType.simpleString()}")
    if not found:
        raise OptionError(
            "the schema has no field of the value; leave schema and format out to read it as it is"
        )
    return found


def decoder(
    schema: StructType,
    form: str,
    layout: str,
    *,
    zone: datetime.tzinfo | None = datetime.UTC,
    partly: bool = False,
) -> Decode:
    """Returns the decoder of values into rows. Raises OptionError if the schema does not fit the format or
    the layout.

    `zone`: of timestamps without one; None: this host's. `partly`: keep the fitting fields of an object that
    does not fit as a whole.
    """
    fields = fields_of_value(schema)
    return _json(fields, zone, partly) if form == "json" else _fixed(fields, layout)


def has_times(schema: StructType) -> bool:
    """Returns whether a zone may matter, because values contain a timestamp."""
    return any("timestamp" in kind.simpleString() for _, kind in fields_of_value(schema))


# --- JSON

Read = Callable[[Any], Any]  # a value of JSON's as it goes into Arrow. Raises ValueError if it does not fit
_WRONG = (msgspec.DecodeError, ValueError, OverflowError)


def _json(fields: Sequence[tuple[str, DataType]], zone: datetime.tzinfo | None, partly: bool) -> Decode:
    decode = msgspec.json.Decoder(_object(fields)).decode
    finish = _finish_object(fields, zone)
    kept = _part_of_object(fields, zone) if partly else None

    def row(value: bytes) -> Row:
        try:
            found: dict[str, Any] = decode(value)
            return found if finish is None else finish(found)
        except _WRONG:
            return None if kept is None else part(kept, value)

    def part(kept: Callable[[bytes], Row], value: bytes) -> Row:
        try:
            return kept(value)
        except _WRONG:
            return None

    def rows(values: list[bytes | None]) -> list[Row]:
        return [None if value is None else row(value) for value in values]

    return rows


def _finish(kind: DataType, zone: datetime.tzinfo | None) -> Read | None:
    """Returns the conversion of a value that msgspec has read; None: none needed."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return _finish_object([(field.name, field.dataType) for field in kind], zone)
    if isinstance(kind, t.ArrayType):
        each = _finish(kind.elementType, zone)
        return each and (lambda values: [None if value is None else each(value) for value in values])
    if isinstance(kind, t.MapType):
        of = _finish(kind.valueType, zone)
        return of and (
            lambda values: {name: None if value is None else of(value) for name, value in values.items()}
        )
    if isinstance(kind, t.TimestampType):
        return lambda value: value if value.tzinfo is not None else _placed(value, zone)
    if isinstance(kind, t.DecimalType):
        return _decimal(kind.precision, kind.scale)
    return None


def _finish_object(
    fields: Sequence[tuple[str, DataType]], zone: datetime.tzinfo | None
) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    found = [(name, read) for name, kind in fields if (read := _finish(kind, zone)) is not None]
    if not found:
        return None

    def finish(values: dict[str, Any]) -> dict[str, Any]:
        for name, read in found:
            value = values.get(name)
            if value is not None:
                values[name] = read(value)
        return values

    return finish


def _placed(value: datetime.datetime, zone: datetime.tzinfo | None) -> datetime.datetime:
    """Returns the time in UTC. Java's rules equal Python's without `fold`: of a repeated hour the first one
    counts; a skipped hour is taken as if the clock had not been put forward yet.
    """
    local = value.astimezone() if zone is None else value.replace(tzinfo=zone)
    return local.astimezone(datetime.UTC)


def _decimal(precision: int, scale: int) -> Read:
    """Returns a reader that rounds to the scale, as Spark does. It raises ValueError for too many digits."""
    unit = decimal.Decimal(1).scaleb(-scale)
    most = decimal.Context(prec=precision, rounding=decimal.ROUND_HALF_UP, traps=[])

    def read(value: decimal.Decimal) -> decimal.Decimal:
        found = value.quantize(unit, context=most)
        if not found.is_finite():
            raise ValueError("it has too many digits")
        return found

    return read


def _part(kind: DataType, zone: datetime.tzinfo | None) -> Read:
    """Reads as much of a raw value as fits."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return _part_of_object([(field.name, field.dataType) for field in kind], zone)
    if isinstance(kind, t.ArrayType):
        items = msgspec.json.Decoder(list[msgspec.Raw] | None).decode
        each = _part(kind.elementType, zone)
        return lambda raw: None if (found := items(raw)) is None else [each(item) for item in found]
    if isinstance(kind, t.MapType):
        pairs = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
        of = _part(kind.valueType, zone)
        return lambda raw: (
            None if (found := pairs(raw)) is None else {name: of(value) for name, value in found.items()}
        )
    whole = msgspec.json.Decoder(_kind("", kind) | None).decode
    finish = _finish(kind, zone)
    if finish is None:
        return whole
    return lambda raw: None if (found := whole(raw)) is None else finish(found)


def _part_of_object(
    fields: Sequence[tuple[str, DataType]], zone: datetime.tzinfo | None
) -> Callable[[bytes | msgspec.Raw], Row]:
    members = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
    readers = [(name, _part(kind, zone)) for name, kind in fields]

    def read(raw: bytes | msgspec.Raw) -> dict[str, Any] | None:
        given = members(raw)
        if given is None:
            return None
        found: dict[str, Any] = {}
        for name, one in readers:
            if name in given:
                try:
                    found[name] = one(given[name])
                except _WRONG:
                    found[name] = None
        return found

    return read


def _object(fields: Sequence[tuple[str, DataType]]) -> Any:
    """Returns a dict of those of the fields that are there; others in the value are skipped."""
    from typing import TypedDict

    kinds = {name: _kind(name, kind) | None for name, kind in fields}
    return TypedDict("Fields", kinds, total=False)  # type: ignore[operator]


def _kind(name: str, kind: DataType) -> Any:
    """Returns the Python type that msgspec reads for one of Spark's. Raises OptionError if JSON has none."""
    from pyspark.sql import types as t

    text = kind.simpleString()
    if text in _SIZES:
        bound = 1 << (_SIZES[text] - 1)
        return Annotated[int, msgspec.Meta(ge=-bound, le=bound - 1)]
    if isinstance(kind, t.StructType):
        return _object([(field.name, field.dataType) for field in kind])
    if isinstance(kind, t.ArrayType):
        return list[_kind(name, kind.elementType) | None]  # type: ignore[misc]
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        return dict[str, _kind(name, kind.valueType) | None]  # type: ignore[misc]
    if isinstance(kind, t.DecimalType):
        return decimal.Decimal
    plain = {
        "string": str,
        "binary": bytes,
        "float": float,
        "double": float,
        "boolean": bool,
        "timestamp": datetime.datetime,
        "timestamp_ntz": Annotated[datetime.datetime, msgspec.Meta(tz=False)],
        "date": datetime.date,
    }
    if text not in plain:
        raise OptionError(f"JSON has nothing for {name} {text} of the schema")
    return plain[text]


# --- fixed layouts


def _fixed(fields: Sequence[tuple[str, DataType]], layout: str) -> Decode:
    codes = _codes(layout)
    if len(codes) != len(fields):
        raise OptionError(
            f"the layout {layout!r} has {len(codes)} fields, the schema has {len(fields)}: "
            f"{', '.join(name for name, _ in fields)}"
        )
    for code, (name, kind) in zip(codes, fields, strict=True):
        allowed = _CODES[code[-1]]
        if kind.simpleString() not in allowed:
            raise OptionError(
                f"{name} is {kind.simpleString()} in the schema, but {code} in the layout, which is "
                f"{' or '.join(allowed)}"
            )
    unpack = struct.Struct(layout)
    names = [name for name, _ in fields]

    def rows(values: list[bytes | None]) -> list[Row]:
        return [
            None
            if value is None or len(value) != unpack.size
            else dict(zip(names, unpack.unpack(value), strict=True))
            for value in values
        ]

    return rows


def _codes(layout: str) -> list[str]:
    """Parses `<i10sd` into ["i", "10s", "d"]; repeat counts are expanded."""
    form = "layout is a byte order (< or >) and fields such as <iqd10s, of " + " ".join(_CODES)
    if not layout or layout[0] not in "<>":
        raise OptionError(f"{form}, not {layout!r}")
    found: list[str] = []
    count = ""
    for letter in layout[1:]:
        if letter.isdecimal():
            count += letter
            continue
        if letter not in _CODES or (count and int(count) == 0):
            raise OptionError(f"{form}; in {layout!r} there is {count}{letter}")
        found += [count + letter] if letter == "s" else [letter] * int(count or 1)
        count = ""
    if count or not found:
        raise OptionError(f"{form}, not {layout!r}")
    return found


# --- into Arrow


class DecodingMaker:
    """Makes record batches of `schema` out of the values of one partition."""

    def __init__(self, schema: StructType, decode: Decode, mode: str, topic: str, partition: int) -> None:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        self._pa = pa
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._decode = decode
        self._mode = mode
        self._topic = topic
        self._partition = partition

    def make(self, columns: Columns | Packed) -> pyarrow.RecordBatch:
        """Raises DecodeError for a value that cannot be decoded, if that fails the query."""
        assert isinstance(columns, Columns), "values that are decoded come in lists"
        rows = self._decode(columns.values)
        places: Sequence[int] = range(len(rows))
        if self._mode != KEEP and None in rows:
            if self._mode == FAIL:
                self._fail(columns, rows.index(None))
            places = [place for place in places if rows[place] is not None]
        arrays = [self._array(field, columns, rows, places) for field in self._schema]
        return self._pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(
        self, field: pyarrow.Field, columns: Columns, rows: list[Row], places: Sequence[int]
    ) -> pyarrow.Array:
        pa, name = self._pa, field.name
        if name == "_timestamp":
            times = pa.array([columns.timestamps[place] for place in places], pa.timestamp("ms", "UTC"))
            return times.cast(field.type)
        if name in OF_RECORD:
            return pa.array([self._of_record(name, columns, place) for place in places], field.type)
        return pa.array(
            [None if (row := rows[place]) is None else row.get(name) for place in places], field.type
        )

    def _of_record(self, name: str, columns: Columns, place: int) -> Any:
        match name:
            case "_key":
                return columns.keys[place]
            case "_value":
                return columns.values[place]
            case "_topic":
                return self._topic
            case "_partition":
                return self._partition
            case "_offset":
                return columns.offsets[place]
        headers = columns.headers[place]
        return None if headers is None else [{"key": key, "value": value} for key, value in headers]

    def _fail(self, columns: Columns, place: int) -> None:
        value = columns.values[place]
        shown = "null" if value is None else repr(value[:80])
        raise DecodeError(
            f"{self._topic}-{self._partition}: the value at offset {columns.offsets[place]} does not fit the "
            f"schema: {shown}. Set mode to {DROP} to leave such records out, or to {KEEP} to have null for "
            "what does not fit"
        )
