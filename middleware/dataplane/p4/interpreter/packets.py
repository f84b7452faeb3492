"""The packet in a parser and a deparser: a cursor over bits, and concatenated bits."""

from __future__ import annotations

from .. import ir
from ..bits import extract, packed, to_signed
from .values import HeaderValue, Value


class Cursor:
    """packet_in: `at` is the next bit."""

    __slots__ = ("at", "bits", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.bits = len(data) * 8

    def left(self) -> int:
        """Bits that are left."""
        return self.bits - self.at

    def take(self, width: int) -> int:
        """Returns the next bits; the caller has looked that they are there."""
        value = extract(self.data, self.at, width) if width else 0
        self.at += width
        return value

    def rest(self) -> tuple[int, int]:
        """Returns the payload: bits and their number."""
        width = self.left()
        return extract(self.data, self.at, width) if width else 0, width


def read(cursor: Cursor, type_: ir.Type, varbit: int) -> Value:
    """Returns a value from the next bits; its varbit, if it has one, of `varbit` bits."""
    match type_:
        case ir.Varbit():
            return cursor.take(varbit), varbit
        case ir.Bool():
            return bool(cursor.take(1))
        case ir.HeaderType(fields=fields):
            return HeaderValue(True, [read(cursor, field.type, varbit) for field in fields])
        case ir.StructType(fields=fields):
            return [read(cursor, field.type, varbit) for field in fields]
        case ir.TupleType(elements=elements):
            return [read(cursor, element, varbit) for element in elements]
        case ir.Bits(width=width, signed=True):
            return to_signed(cursor.take(width), width)
    return cursor.take(ir.width_of(type_))


def fixed_width(type_: ir.Type) -> int:
    """Bits without a varbit."""
    match type_:
        case ir.Varbit():
            return 0
        case ir.HeaderType(fields=fields) | ir.StructType(fields=fields):
            return sum(fixed_width(field.type) for field in fields)
    return ir.width_of(type_)


def varbit_limit(type_: ir.Type) -> int:
    """Bits that the varbit in a header can hold."""
    match type_:
        case ir.Varbit(width=width):
            return width
        case ir.HeaderType(fields=fields) | ir.StructType(fields=fields):
            return sum(varbit_limit(field.type) for field in fields)
    return 0


class Bits:
    """packet_out: bits in order. An incomplete last byte is filled with zero bits."""

    __slots__ = ("value", "width")

    def __init__(self) -> None:
        self.value = 0
        self.width = 0

    def add(self, value: int, width: int) -> None:
        self.value = (self.value << width) | value
        self.width += width

    def bytes(self) -> bytes:
        return packed(self.value, self.width)
