"""Expressions as written. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..source import Span

if TYPE_CHECKING:
    from .types import TypeRef


class IntegerLiteral(msgspec.Struct, frozen=True):
    """`10`, `8w0xFF`, `4s1`; width None: of any size. `base`: 2, 8, 10 or 16, as it was written."""

    value: int
    width: int | None
    signed: bool
    span: Span
    base: int = 10


class StringLiteral(msgspec.Struct, frozen=True):
    """`"text"`, its escapes resolved."""

    value: str
    span: Span


class BoolLiteral(msgspec.Struct, frozen=True):
    """`true`, `false`."""

    value: bool
    span: Span


class Name(msgspec.Struct, frozen=True):
    """A name of something that isn't a type; `absolute` with a leading dot."""

    name: str
    absolute: bool
    span: Span


class TypeExpression(msgspec.Struct, frozen=True):
    """A type in place of an expression, as in `E.member`, `error.E`, `C.apply()`, `C(args)`."""

    type: TypeRef
    span: Span


class This(msgspec.Struct, frozen=True):
    """`this`."""

    span: Span


class Dots(msgspec.Struct, frozen=True):
    """`...`: the default value."""

    span: Span


class Invalid(msgspec.Struct, frozen=True):
    """`{#}`: an invalid header or header union."""

    span: Span


class DontCare(msgspec.Struct, frozen=True):
    """`_` or `default` in a key set, `_` as an argument."""

    span: Span


class Member(msgspec.Struct, frozen=True):
    """`base.name`; `name_span` is the name's place."""

    base: Expression
    name: str
    name_span: Span
    span: Span


class Index(msgspec.Struct, frozen=True):
    """`base[index]`."""

    base: Expression
    index: Expression
    span: Span


class Slice(msgspec.Struct, frozen=True):
    """`base[high:low]`."""

    base: Expression
    high: Expression
    low: Expression
    span: Span


class PlusSlice(msgspec.Struct, frozen=True):
    """`base[low+:width]`."""

    base: Expression
    low: Expression
    width: Expression
    span: Span


class NamedElement(msgspec.Struct, frozen=True):
    """`name = value` in a struct-valued expression."""

    name: str
    value: Expression
    span: Span


class ListValue(msgspec.Struct, frozen=True):
    """`{a, b}`. A trailing `...` is a Dots element."""

    elements: tuple[Expression, ...]
    span: Span


class StructValue(msgspec.Struct, frozen=True):
    """`{a = 1, b = 2}`; `rest` with a trailing `...`."""

    elements: tuple[NamedElement, ...]
    rest: bool
    span: Span


class Unary(msgspec.Struct, frozen=True):
    """`operator operand`."""

    operator: str
    operand: Expression
    span: Span


class Binary(msgspec.Struct, frozen=True):
    """`left operator right`; `place` is the operator's."""

    operator: str
    left: Expression
    right: Expression
    place: Span
    span: Span


class Conditional(msgspec.Struct, frozen=True):
    """`condition ? yes : no`."""

    condition: Expression
    yes: Expression
    no: Expression
    span: Span


class Cast(msgspec.Struct, frozen=True):
    """`(type) operand`."""

    type: TypeRef
    operand: Expression
    span: Span


class Argument(msgspec.Struct, frozen=True):
    """`value` or `name = value`; value DontCare for `_`."""

    name: str | None
    value: Expression
    span: Span


class Call(msgspec.Struct, frozen=True):
    """`target<types>(arguments)`: a call, or the construction of an object if the target is a type."""

    target: Expression
    types: tuple[TypeRef, ...]
    arguments: tuple[Argument, ...]
    span: Span


class Mask(msgspec.Struct, frozen=True):
    """`value &&& mask`, in key sets."""

    value: Expression
    mask: Expression
    span: Span


class Range(msgspec.Struct, frozen=True):
    """`low .. high`, in key sets and loops."""

    low: Expression
    high: Expression
    span: Span


class KeySet(msgspec.Struct, frozen=True):
    """`(a, b, c)` in a select or an entry."""

    elements: tuple[Expression, ...]
    span: Span


Expression = (
    IntegerLiteral
    | StringLiteral
    | BoolLiteral
    | Name
    | TypeExpression
    | This
    | Dots
    | Invalid
    | DontCare
    | Member
    | Index
    | Slice
    | PlusSlice
    | ListValue
    | StructValue
    | Unary
    | Binary
    | Conditional
    | Cast
    | Call
    | Mask
    | Range
    | KeySet
)
