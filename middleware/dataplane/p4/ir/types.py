"""The types of values at run time: what is left of P4's types when names are resolved. Pure.

A `type` (new type), a `typedef` and a serializable enum are represented by what they stand for; the
names that control planes need are kept in `Field.named`, `Key.named` and `Parameter.named`.

The value of each type, as `Literal.value` has it:

| type         | value                                                                              |
| ------------ | ---------------------------------------------------------------------------------- |
| Bits         | int; 0 .. 2**width - 1, or with `signed` -2**(width - 1) .. 2**(width - 1) - 1      |
| Bool         | bool                                                                               |
| ErrorCode    | int, index into `Program.errors`; `error.NoError` is 0                             |
| Enum         | int, index into `Enum.members`                                                     |
| String       | str; only as an argument of log_msg and in annotations                             |
| the others   | no literals; their values are built by `StructValue`, `HeaderValue` and so on      |

What isn't initialised by the program starts as 0, False, error.NoError, the first member, an empty
varbit; headers start invalid, stacks with nextIndex 0. `ir.statements.Declare` says when.
"""

from __future__ import annotations

import msgspec

from ..source import NOWHERE, Span
from .annotations import Annotation


class Bits(msgspec.Struct, frozen=True):
    """`bit<width>`, or `int<width>` with `signed` (two's complement). Width 0 is allowed."""

    width: int
    signed: bool = False


class Bool(msgspec.Struct, frozen=True):
    """`bool`; one bit in a header."""


class Varbit(msgspec.Struct, frozen=True):
    """`varbit<width>`: a bit string of at most `width` bits, with a length of its own."""

    width: int


class ErrorCode(msgspec.Struct, frozen=True):
    """`error`."""


class Enum(msgspec.Struct, frozen=True):
    """An enum without a representation. Those with one (`enum bit<8> E`) have become their Bits."""

    name: str
    members: tuple[str, ...]


class String(msgspec.Struct, frozen=True):
    """`string`: known when the program is loaded."""


class Void(msgspec.Struct, frozen=True):
    """The result type of a function without a result."""


class Field(msgspec.Struct, frozen=True):
    """A field of a struct, header or header union. `named`: the new type or serializable enum it was
    declared with."""

    name: str
    type: Type
    annotations: tuple[Annotation, ...] = ()
    named: str | None = None
    span: Span = NOWHERE


class StructType(msgspec.Struct, frozen=True):
    """`struct`. Compared by name: names are unique, those of generic structs carry their arguments."""

    name: str
    fields: tuple[Field, ...]
    annotations: tuple[Annotation, ...] = ()
    span: Span = NOWHERE


class HeaderType(msgspec.Struct, frozen=True):
    """`header`: fields of type Bits, Bool, Varbit (at most one), and structs of such. First field leftmost
    on the wire."""

    name: str
    fields: tuple[Field, ...]
    annotations: tuple[Annotation, ...] = ()
    span: Span = NOWHERE


class UnionType(msgspec.Struct, frozen=True):
    """`header_union`: at most one of its headers is valid; making one valid makes the others invalid."""

    name: str
    fields: tuple[Field, ...]
    annotations: tuple[Annotation, ...] = ()
    span: Span = NOWHERE


class StackType(msgspec.Struct, frozen=True):
    """`H[size]`: headers or header unions, and a `nextIndex` that extraction to `next` moves."""

    element: HeaderType | UnionType
    size: int


class TupleType(msgspec.Struct, frozen=True):
    """`tuple<...>`, and the type of `{a, b}` without another expected type."""

    elements: tuple[Type, ...]


Type = (
    Bits
    | Bool
    | Varbit
    | ErrorCode
    | Enum
    | String
    | Void
    | StructType
    | HeaderType
    | UnionType
    | StackType
    | TupleType
)


def width_of(type_: Type) -> int:
    """Returns the maximum number of bits of a value on the wire: for a union its widest header, 0 for a type
    without bits.
    """
    match type_:
        case Bits(width=width) | Varbit(width=width):
            return width
        case Bool():
            return 1
        case StructType(fields=fields) | HeaderType(fields=fields):
            return sum(width_of(field.type) for field in fields)
        case UnionType(fields=fields):
            return max((width_of(field.type) for field in fields), default=0)
        case StackType(element=element, size=size):
            return width_of(element) * size
        case TupleType(elements=elements):
            return sum(width_of(element) for element in elements)
    return 0
