"""Values during the processing of a packet.

Bits: int (signed for int<W>). Bool: bool. Error and enum: int. Varbit: (value, bits). Struct and tuple: list
of values. Headers, stacks and unions: the classes below. Places own their values: copy when storing.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from .. import ir
from ..bits import to_signed

Value: TypeAlias = Any  # a tagged union by ir.Type, which always accompanies it


class HeaderValue:
    """A header. Fields of an invalid header keep their stored values; setValid makes them 0."""

    __slots__ = ("fields", "valid")

    def __init__(self, valid: bool, fields: list[Value]) -> None:
        self.valid = valid
        self.fields = fields


class StackValue:
    """A header stack and its nextIndex."""

    __slots__ = ("items", "next")

    def __init__(self, items: list[Value], next_index: int = 0) -> None:
        self.items = items
        self.next = next_index


class UnionValue:
    """A header union: at most one of the headers is valid."""

    __slots__ = ("items",)

    def __init__(self, items: list[HeaderValue]) -> None:
        self.items = items

    def only(self, chosen: HeaderValue) -> None:
        """Makes the others invalid."""
        for item in self.items:
            if item is not chosen:
                item.valid = False


def default(type_: ir.Type) -> Value:
    """Returns the value of an uninitialised variable."""
    match type_:
        case ir.Bool():
            return False
        case ir.Varbit():
            return (0, 0)
        case ir.StructType(fields=fields):
            return [default(field.type) for field in fields]
        case ir.TupleType(elements=elements):
            return [default(element) for element in elements]
        case ir.HeaderType(fields=fields):
            return HeaderValue(False, [default(field.type) for field in fields])
        case ir.UnionType(fields=fields):
            return UnionValue([default(field.type) for field in fields])
        case ir.StackType(element=element, size=size):
            return StackValue([default(element) for _ in range(size)])
    return 0


def copy(value: Value) -> Value:
    """Returns a value of its own."""
    if isinstance(value, list):
        return [copy(one) for one in value]
    if isinstance(value, HeaderValue):
        return HeaderValue(value.valid, [copy(one) for one in value.fields])
    if isinstance(value, StackValue):
        return StackValue([copy(one) for one in value.items], value.next)
    if isinstance(value, UnionValue):
        return UnionValue([copy(one) for one in value.items])
    return value


def equal(left: Value, right: Value) -> bool:
    """Implements `==`: invalid headers are equal whatever they hold."""
    if isinstance(left, list):
        return all(equal(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, HeaderValue):
        if not left.valid or not right.valid:
            return bool(left.valid == right.valid)
        return all(equal(a, b) for a, b in zip(left.fields, right.fields, strict=True))
    if isinstance(left, StackValue | UnionValue):
        return all(equal(a, b) for a, b in zip(left.items, right.items, strict=True))
    return bool(left == right)


def fit(value: int, type_: ir.Type) -> int:
    """Returns a number modulo the width of its type."""
    if not isinstance(type_, ir.Bits):
        return value
    if type_.signed:
        return to_signed(value, type_.width) if type_.width else 0
    return value & ((1 << type_.width) - 1)


def raw(value: Value, type_: ir.Type) -> tuple[int, int]:
    """Returns the bits of a value and their number, for hashing, packets and matching."""
    match type_:
        case ir.Varbit():
            return value[0], value[1]
        case ir.StructType(fields=fields):
            return _side_by_side(value, [field.type for field in fields])
        case ir.HeaderType(fields=fields):
            return _side_by_side(value.fields, [field.type for field in fields])
        case ir.TupleType(elements=elements):
            return _side_by_side(value, list(elements))
        case ir.Enum() | ir.ErrorCode():
            return value, 32
    width = ir.width_of(type_)
    return int(value) & ((1 << width) - 1), width


def _side_by_side(values: list[Value], types: list[ir.Type]) -> tuple[int, int]:
    total = width = 0
    for value, type_ in zip(values, types, strict=True):
        bits, size = raw(value, type_)
        total = (total << size) | bits
        width += size
    return total, width


def leaves(value: Value, type_: ir.Type) -> list[int]:
    """Returns the numbers in a value, depth first, as raw bits: the content of a digest."""
    match type_:
        case ir.StructType(fields=fields):
            return [n for one, f in zip(value, fields, strict=True) for n in leaves(one, f.type)]
        case ir.HeaderType(fields=fields):
            return [n for one, f in zip(value.fields, fields, strict=True) for n in leaves(one, f.type)]
        case ir.TupleType(elements=elements):
            return [n for one, element in zip(value, elements, strict=True) for n in leaves(one, element)]
    return [raw(value, type_)[0]]


def header_bits(value: HeaderValue, type_: ir.HeaderType) -> int:
    """Returns how many bits a header takes, its varbit as long as it is."""
    return raw(value, type_)[1]
