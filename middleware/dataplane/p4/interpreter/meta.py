"""The positions of standard metadata fields and of preserved user metadata."""

from __future__ import annotations

from .. import ir
from .values import Value, copy


class Standard:
    """Index of each field of standard_metadata_t, by name."""

    def __init__(self, program: ir.Program) -> None:
        type_ = program.controls[program.pipeline.ingress].parameters[2].type
        assert isinstance(type_, ir.StructType)
        self.type = type_
        self._index = {field.name: number for number, field in enumerate(type_.fields)}

    def get(self, meta: list[Value], name: str) -> int:
        return int(meta[self._index[name]])

    def put(self, meta: list[Value], name: str, value: int) -> None:
        """Stores the low bits; ignores a field that this v1model does not have."""
        number = self._index.get(name)
        if number is not None:
            meta[number] = value & ((1 << ir.width_of(self.type.fields[number].type)) - 1)

    def put_whole(self, meta: list[Value], name: str, value: int) -> None:
        """Stores a value that is not bits (parser_error)."""
        number = self._index.get(name)
        if number is not None:
            meta[number] = value


def preserve(program: ir.Program, field_list: int, old: list[Value], new: list[Value]) -> None:
    """Copies the fields of a field list from one user metadata to another."""
    type_ = program.controls[program.pipeline.ingress].parameters[1].type
    for path in program.field_lists.get(field_list, ()):
        source, target = old, new
        numbers = indices(type_, path)
        for number in numbers[:-1]:
            source, target = source[number], target[number]
        target[numbers[-1]] = copy(source[numbers[-1]])


def indices(type_: ir.Type, path: tuple[str, ...]) -> list[int]:
    """Returns a path of field names as field numbers."""
    numbers = []
    for name in path:
        assert isinstance(type_, ir.StructType | ir.HeaderType)
        number = next(n for n, field in enumerate(type_.fields) if field.name == name)
        numbers.append(number)
        type_ = type_.fields[number].type
    return numbers
