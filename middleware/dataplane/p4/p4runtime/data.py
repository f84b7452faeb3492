"""P4Data: values of registers and digests, by their types in P4Info.

The switch represents a value as its numbers in depth-first order; a `bool` is 0 or 1, an enum the index of
its member.
"""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4d, p4t

from .bytestrings import decode, encode
from .errors import Code, P4RuntimeError, invalid


def to_data(spec: p4t.P4DataTypeSpec, types: p4t.P4TypeInfo, numbers: Iterator[int]) -> p4d.P4Data:
    """Returns one value, from as many numbers as it has fields."""
    kind = spec.WhichOneof("type_spec")
    if kind == "bitstring":
        return p4d.P4Data(bitstring=encode(next(numbers)))
    if kind == "bool":
        return p4d.P4Data(bool=bool(next(numbers)))
    if kind == "struct":
        members = [member.type_spec for member in types.structs[spec.struct.name].members]
        return p4d.P4Data(struct=p4d.P4StructLike(members=[to_data(m, types, numbers) for m in members]))
    if kind == "tuple":
        return p4d.P4Data(
            tuple=p4d.P4StructLike(members=[to_data(m, types, numbers) for m in spec.tuple.members])
        )
    if kind == "header":
        fields = types.headers[spec.header.name].members
        strings = [encode(next(numbers)) for _ in fields]
        return p4d.P4Data(header=p4d.P4Header(is_valid=True, bitstrings=strings))
    if kind == "enum":
        return p4d.P4Data(enum=types.enums[spec.enum.name].members[next(numbers)].name)
    if kind == "serializable_enum":
        return p4d.P4Data(enum_value=encode(next(numbers)))
    if kind == "error":
        return p4d.P4Data(error=types.error.members[next(numbers)])
    if kind == "new_type":
        return to_data(_original(spec, types), types, numbers)
    raise P4RuntimeError(Code.UNIMPLEMENTED, f"values of type {kind} are not carried")


def number_of(spec: p4t.P4DataTypeSpec, types: p4t.P4TypeInfo, data: p4d.P4Data, what: str) -> int:
    """Returns the number of a value that is a single one, as a register's cell is."""
    kind = spec.WhichOneof("type_spec")
    if kind == "new_type":
        return number_of(_original(spec, types), types, data, what)
    if kind == "bool" and data.WhichOneof("data") == "bool":
        return int(data.bool)
    if kind == "bitstring" and data.WhichOneof("data") == "bitstring":
        return decode(data.bitstring, width_of(spec), what)
    if kind == "serializable_enum" and data.WhichOneof("data") == "enum_value":
        width = types.serializable_enums[spec.serializable_enum.name].underlying_type.bitwidth
        return decode(data.enum_value, width, what)
    if kind in ("bool", "bitstring", "serializable_enum"):
        raise invalid(f"{what}: the value is a {data.WhichOneof('data')}, not a {kind}")
    raise P4RuntimeError(Code.UNIMPLEMENTED, f"{what}: values of type {kind} cannot be written")


def width_of(spec: p4t.P4DataTypeSpec) -> int:
    """Bits of a `bit<>`, an `int<>` or, at most, a `varbit<>`."""
    bits = spec.bitstring
    return bits.bit.bitwidth or bits.int.bitwidth or bits.varbit.max_bitwidth


def _original(spec: p4t.P4DataTypeSpec, types: p4t.P4TypeInfo) -> p4t.P4DataTypeSpec:
    """Returns the type behind a `type`. Translated ones are numbers of the controller's width."""
    found = types.new_types[spec.new_type.name]
    if found.HasField("original_type"):
        return found.original_type
    if found.translated_type.HasField("sdn_string"):
        raise P4RuntimeError(Code.UNIMPLEMENTED, f"{spec.new_type.name}: strings are not translated")
    width = p4t.P4BitTypeSpec(bitwidth=found.translated_type.sdn_bitwidth)
    return p4t.P4DataTypeSpec(bitstring=p4t.P4BitstringLikeTypeSpec(bit=width))
