"""The wire layout of headers between controller and switch, which P4Info does not describe.

P4Info leaves out fields with `@hidden`, and gives translated ones the width that controllers see.
"""

from __future__ import annotations

from msgspec import Struct

from .. import ir
from .ids import number_fields
from .preambles import id_of
from .types import flattened


class Part(Struct, frozen=True):
    """A field's bits, and its number in P4Info; 0: controllers don't see it."""

    width: int
    number: int


def layouts(program: ir.Program) -> dict[str, tuple[Part, ...]]:
    """Returns layouts by the name in `@controller_header`."""
    found = {}
    for header in program.headers:
        mark = ir.find(header.annotations, "controller_header")
        if mark is not None:
            found[str(mark.arguments[0]) if mark.arguments else header.name] = _parts(header)
    return found


def _parts(header: ir.HeaderType) -> tuple[Part, ...]:
    fields = [field for _, field in flattened(header.fields)]
    numbers = number_fields([id_of(field.annotations) for field in fields])
    return tuple(
        Part(ir.width_of(field.type), 0 if ir.find(field.annotations, "hidden") else number)
        for number, field in zip(numbers, fields, strict=True)
    )
