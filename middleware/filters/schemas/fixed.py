"""Fixed layouts: fields of declared widths, one behind the other.

Whole numbers and IEEE 754 numbers are big-endian (`fixed`) or little-endian (`fixed-le`); a bool is a byte, 0
or 1; a string is filled with NUL or space at its end. A value has exactly the bytes of its version.
"""

from __future__ import annotations

import struct
from typing import Final

from treecast.middleware.model.topic_schema import FILLER, DeclaredField, SchemaVersion

from ..tree import Scalar
from .values import DoesNotMeet, fitting, text_of

_CODES: Final = {
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "f32": "f",
    "f64": "d",
    "bool": "B",
}


class FixedReader:
    """Reads values of one version. Raises ValueError if a field has no width, or is optional."""

    def __init__(self, version: SchemaVersion, little: bool) -> None:
        for field in version.fields:
            if field.kind == "s" and not field.size:
                raise ValueError(f"{field.name} needs a width in a fixed layout, as in {field.name}:8s")
            if field.optional:
                raise ValueError(f"{field.name} cannot be optional in a fixed layout")
        codes = (f"{field.size}s" if field.kind == "s" else _CODES[field.type] for field in version.fields)
        self._layout = struct.Struct(("<" if little else ">") + "".join(codes))
        self._fields = [(place, field) for place, field in enumerate(version.fields) if field.name != FILLER]

    def read(self, value: bytes) -> list[Scalar | None]:
        """Returns the fields' values. Raises DoesNotMeet."""
        if len(value) != self._layout.size:
            raise DoesNotMeet(f"{len(value)} bytes instead of {self._layout.size}")
        found = self._layout.unpack(value)
        return [_value(field, found[place]) for place, field in self._fields]


def _value(field: DeclaredField, raw: object) -> Scalar | None:
    if isinstance(raw, bytes):
        return text_of(raw.rstrip(b"\0 "))
    if field.kind == "bool":
        if raw not in (0, 1):
            raise DoesNotMeet(f"{field.name} is {raw}, not 0 or 1")
        return raw == 1
    return fitting(field, raw)
