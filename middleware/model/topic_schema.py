"""A topic's declared fields: what filters may name of the values of its records.

A schema is the setting `treecast.schema` of its topic, a JSON text:

    {"from": "json", "versions": [{"fields": "stock:8s,price:u32"}]}

| type | value |
| --- | --- |
| `u8` `u16` `u32` `u64` | a whole number of so many bits, 0 or more |
| `i8` `i16` `i32` `i64` | a whole number of so many bits |
| `f32` `f64` | a number |
| `8s` | a string of at most 8 bytes of UTF-8; `s` of any length |
| `bool` | true or false |

`?` behind a type makes its field optional. Versions are kept, oldest first: a record meets a schema if it
meets one of them. A later version may add fields; the declared type of a field never changes.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

import msgspec
from msgspec import Struct

from .errors import Fault, TreecastError

SCHEMA: Final = "treecast.schema"
LONGEST_SCHEMA: Final = 16_000  # characters of the setting
MOST_FIELDS: Final = 200  # as of a generated program's query fields
MOST_VERSIONS: Final = 50
FILLER: Final = "_"  # the name of bytes of a fixed layout that are no field

FORMATS: Final = ("json", "fixed", "fixed-le", "avro", "protobuf")
DESCRIBED: Final = ("avro", "protobuf")  # formats whose values only a schema text explains

_TYPE = re.compile(r"(?:([uif])(8|16|32|64)|([1-9][0-9]{0,4})?(s)|(bool))(\?)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*")
_LONGEST_STRING: Final = 65_535


class DeclaredField(Struct, frozen=True):
    """A field: `path` inside the value; `kind` is u, i, f, s or bool; `size` in bytes, 0 for any."""

    path: tuple[str, ...]
    kind: str
    size: int
    optional: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def type(self) -> str:
        """The type as it is written, without `?`."""
        if self.kind == "s":
            return f"{self.size or ''}s"
        return self.kind if self.kind == "bool" else f"{self.kind}{8 * self.size}"

    @property
    def text(self) -> str:
        return f"{self.name}:{self.type}{'?' if self.optional else ''}"


class SchemaVersion(Struct, frozen=True):
    """One version. `text`: the Avro schema or the .proto file; `message`: the message of it that values are;
    `ids`: the numbers that a schema registry gave it; empty: any."""

    fields: tuple[DeclaredField, ...]
    text: str = ""
    message: str = ""
    ids: tuple[int, ...] = ()


class TopicSchema(Struct, frozen=True):
    """A topic's schema. `framed`: Avro and Protobuf values begin with Confluent's five bytes."""

    format: str
    versions: tuple[SchemaVersion, ...]
    framed: bool = True

    @property
    def fields(self) -> tuple[DeclaredField, ...]:
        """The fields of all versions, each once, in the order of their first declaration."""
        found: dict[tuple[str, ...], DeclaredField] = {}
        for version in self.versions:
            for field in version.fields:
                if field.name != FILLER:
                    found.setdefault(field.path, field)
        return tuple(found.values())


def read_fields(text: str) -> tuple[DeclaredField, ...]:
    """Returns the fields of `NAME:TYPE,...`. Raises ValueError, which says what is wrong."""
    fields = tuple(_field(one.strip()) for one in text.split(",") if one.strip())
    if not 1 <= len(fields) <= MOST_FIELDS:
        raise ValueError(f"a schema declares 1 to {MOST_FIELDS} fields, not {len(fields)}")
    names = [field.name for field in fields if field.name != FILLER]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"field {twice[0]} is declared twice")
    return fields


def _field(text: str) -> DeclaredField:
    name, colon, type = text.partition(":")
    if not _NAME.fullmatch(name) or not colon:
        raise ValueError(f"a field is NAME:TYPE, as in price:u32, not {text[:60]!r}")
    found = _TYPE.fullmatch(type)
    if found is None or type.startswith(("f8", "f16")):
        raise ValueError(
            f"{name} has no type {type[:20]!r}: there are u8 to u64, i8 to i64, f32, f64, bool, s,"
            " and a string of N bytes as Ns"
        )
    number, bits, length, string, _, optional = found.groups()
    size = int(bits) // 8 if number else int(length or 0) if string else 1
    if size > _LONGEST_STRING:
        raise ValueError(f"{name} has at most {_LONGEST_STRING:,} bytes, not {size:,}")
    return DeclaredField(tuple(name.split(".")), number or string or "bool", size, optional is not None)


# --- the setting


class _Version(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    fields: str
    schema: str = ""
    message: str = ""
    ids: tuple[int, ...] = ()


class _Setting(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    format: str = msgspec.field(name="from")
    versions: tuple[_Version, ...] = ()
    framed: bool = True


def read_schema(text: str) -> TopicSchema:
    """Returns the schema that the setting states. Raises INVALID_CONFIG."""
    try:
        if len(text) > LONGEST_SCHEMA:
            raise ValueError(f"it has at most {LONGEST_SCHEMA:,} characters, this one {len(text):,}")
        return _checked(msgspec.json.decode(text, type=_Setting))
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise TreecastError(Fault.INVALID_CONFIG, f"{SCHEMA}: {error}") from error


def write_schema(schema: TopicSchema) -> str:
    """Returns the setting."""
    versions = tuple(
        _Version(",".join(field.text for field in one.fields), one.text, one.message, one.ids)
        for one in schema.versions
    )
    return msgspec.json.encode(_Setting(schema.format, versions, schema.framed)).decode()


def _checked(setting: _Setting) -> TopicSchema:
    if setting.format not in FORMATS:
        raise ValueError(f"records are {', '.join(FORMATS)}, not {setting.format[:20]!r}")
    if not 1 <= len(setting.versions) <= MOST_VERSIONS:
        raise ValueError(f"a schema has 1 to {MOST_VERSIONS} versions, not {len(setting.versions)}")
    versions = tuple(
        SchemaVersion(read_fields(one.fields), one.schema, one.message, one.ids) for one in setting.versions
    )
    described = setting.format in DESCRIBED
    if any(bool(one.text) is not described for one in versions):
        raise ValueError(
            f"{setting.format} needs its schema text" if described else f"{setting.format} has no schema text"
        )
    schema = TopicSchema(setting.format, versions, setting.framed)
    for older, newer in itertools.pairwise(versions):
        _check_step(schema, older, newer)
    return schema


def _check_step(schema: TopicSchema, older: SchemaVersion, newer: SchemaVersion) -> None:
    """Raises ValueError if a version is no extension of the one before."""
    types = {field.path: field.type for field in newer.fields}
    for field in older.fields:
        if field.name != FILLER and types.get(field.path) != field.type:
            now = types.get(field.path)
            change = f"would be {now} instead of {field.type}" if now else "would be gone"
            raise ValueError(f"{field.name} {change}: a new version may only add fields")
    if schema.format.startswith("fixed"):
        kept = newer.fields[: len(older.fields)]
        if kept != older.fields or len(newer.fields) == len(older.fields):
            raise ValueError("a new version of a fixed layout adds fields behind those there are")
