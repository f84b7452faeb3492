"""Expressions, typed. Pure.

Every expression has the type of its value, implicit casts are `Cast`s, and constants known at load are
`Literal`s. Operands are evaluated left to right; `&&`, `||` and `Conditional` evaluate only what they need.

L-values, which may be assigned to, are Variable, and over an l-value Member, Element, Next, Last, Slice,
TupleElement. Reading a field of an invalid header, or an element outside its stack, gives an undefined value
(ours: see docs/p4.md); writing to one does nothing. In a parser the latter two are error.StackOutOfBounds.
"""

from __future__ import annotations

import enum

import msgspec

from ..source import Span
from .types import Type


class Operator(enum.Enum):
    """Binary operators; the value is P4's spelling.

    Both operands have the same type (Bits of one width and sign, unless stated otherwise), and so has the
    result: modulo 2**width, for the saturating operators limited to the type's range.
    """

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"  # unsigned; by 0 is the target's affair
    MOD = "%"  # unsigned
    ADD_SAT = "|+|"
    SUB_SAT = "|-|"
    AND = "&"
    OR = "|"
    XOR = "^"
    SHL = "<<"  # right operand: unsigned Bits of any width; result: as the left one
    SHR = ">>"  # arithmetic if the left operand is signed
    CONCAT = "++"  # the left operand's bits are the higher ones; result: Bits, sign of the left operand
    # The result of those below is Bool.
    EQ = "=="  # any type: structs and tuples field by field; headers: both invalid, or both valid and equal
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    LOGICAL_AND = "&&"  # operands Bool; the right one is evaluated only if it decides
    LOGICAL_OR = "||"


class UnaryOperator(enum.Enum):
    """Unary operators. The result has the operand's type."""

    NEGATE = "-"
    COMPLEMENT = "~"
    NOT = "!"  # Bool


class Direction(enum.Enum):
    """How an argument is passed: copied in at the call, out at the return, both; NONE: known at load, or as
    IN."""

    NONE = ""
    IN = "in"
    OUT = "out"
    INOUT = "inout"


class Literal(msgspec.Struct, frozen=True):
    """A value known at load. `types` defines the form of `value` for each type."""

    value: int | bool | str
    type: Type
    span: Span


class Variable(msgspec.Struct, frozen=True):
    """A variable or parameter: index into `Program.variables`. L-value."""

    index: int
    type: Type
    span: Span


class Member(msgspec.Struct, frozen=True):
    """Field `index` of a struct, header or header union; `name` is `base.type.fields[index].name`."""

    base: Expression
    index: int
    name: str
    type: Type
    span: Span


class Element(msgspec.Struct, frozen=True):
    """`stack[index]`; `index` is any Bits. A Literal index is inside the stack, others may not be."""

    base: Expression
    index: Expression
    type: Type
    span: Span


class TupleElement(msgspec.Struct, frozen=True):
    """Element `index` of a tuple, from 0."""

    base: Expression
    index: int
    type: Type
    span: Span


class Next(msgspec.Struct, frozen=True):
    """`stack.next`, in parsers: the element at nextIndex, error.StackOutOfBounds when the stack is full.

    As the target of Extract it makes nextIndex one larger, after the extraction.
    """

    base: Expression
    type: Type
    span: Span


class Last(msgspec.Struct, frozen=True):
    """`stack.last`, in parsers: the element before nextIndex, error.StackOutOfBounds when nextIndex is 0."""

    base: Expression
    type: Type
    span: Span


class LastIndex(msgspec.Struct, frozen=True):
    """`stack.lastIndex`: nextIndex - 1 as 32 bits (all ones if 0)."""

    base: Expression
    type: Type
    span: Span


class Slice(msgspec.Struct, frozen=True):
    """`base[high:low]`, both inclusive, 0 is the lowest bit; unsigned Bits of high - low + 1. L-value if
    base is."""

    base: Expression
    high: int
    low: int
    type: Type
    span: Span


class Unary(msgspec.Struct, frozen=True):
    """`operator operand`."""

    operator: UnaryOperator
    operand: Expression
    type: Type
    span: Span


class Binary(msgspec.Struct, frozen=True):
    """`left operator right`."""

    operator: Operator
    left: Expression
    right: Expression
    type: Type
    span: Span


class Conditional(msgspec.Struct, frozen=True):
    """`condition ? yes : no`; both have the type of the whole."""

    condition: Expression
    yes: Expression
    no: Expression
    type: Type
    span: Span


class Cast(msgspec.Struct, frozen=True):
    """Changes between Bits types (truncates, extends by the operand's sign, reinterprets), Bits(1) and Bool.

    Also from a tuple or struct to a struct, header or tuple of as many elements, each of the same type.
    """

    operand: Expression
    type: Type
    span: Span


class StructValue(msgspec.Struct, frozen=True):
    """A struct or tuple from the values of all its fields in their order; each has its field's type."""

    elements: tuple[Expression, ...]
    type: Type
    span: Span


class HeaderValue(msgspec.Struct, frozen=True):
    """A valid header from the values of all its fields in their order."""

    elements: tuple[Expression, ...]
    type: Type
    span: Span


class StackValue(msgspec.Struct, frozen=True):
    """A stack from its elements; nextIndex 0."""

    elements: tuple[Expression, ...]
    type: Type
    span: Span


class Default(msgspec.Struct, frozen=True):
    """The value that something uninitialised of this type has: zeros, invalid headers. Also `{#}`, `...`."""

    type: Type
    span: Span


class IsValid(msgspec.Struct, frozen=True):
    """`header.isValid()`; of a header union whether one of its headers is valid. Bool."""

    base: Expression
    type: Type
    span: Span


class TableApply(msgspec.Struct, frozen=True):
    """Applies the table (index into `Program.tables`); the value is whether an entry was hit. Bool.

    `t.apply().miss` is NOT of it.
    """

    table: int
    type: Type
    span: Span


class Argument(msgspec.Struct, frozen=True):
    """An argument. With direction OUT or INOUT `value` is an l-value of the parameter's type.

    All arguments are evaluated from left to right before the call, the indices in l-values too and only
    then; results are copied out from left to right after it. `_` for an OUT parameter has become a
    variable that nobody reads.
    """

    direction: Direction
    value: Expression


class Call(msgspec.Struct, frozen=True):
    """Calls a function (index into `Program.functions`); the value is its result."""

    function: int
    arguments: tuple[Argument, ...]
    type: Type
    span: Span


class ExternCall(msgspec.Struct, frozen=True):
    """Calls an extern function or a method of an extern object of v1model.

    `name` is "hash", "mark_to_drop", or "register.read": object type and method. `instance`: index into
    `Program.externs`, for methods only. `type_arguments`: the arguments of the function's or method's (not
    the object's) type parameters, in the order of the declaration in include/v1model.p4. The number of
    arguments distinguishes overloads. `type` is Void without a result.

    packet_in, packet_out and verify have statements and expressions of their own.
    """

    name: str
    instance: int | None
    type_arguments: tuple[Type, ...]
    arguments: tuple[Argument, ...]
    type: Type
    span: Span


class Lookahead(msgspec.Struct, frozen=True):
    """`packet.lookahead<T>()`: T from the next bits, which stay. error.PacketTooShort. A header is valid."""

    type: Type
    span: Span


class PacketLength(msgspec.Struct, frozen=True):
    """`packet.length()`: of the whole packet, in bytes, 32 bits."""

    type: Type
    span: Span


Expression = (
    Literal
    | Variable
    | Member
    | Element
    | TupleElement
    | Next
    | Last
    | LastIndex
    | Slice
    | Unary
    | Binary
    | Conditional
    | Cast
    | StructValue
    | HeaderValue
    | StackValue
    | Default
    | IsValid
    | TableApply
    | Call
    | ExternCall
    | Lookahead
    | PacketLength
)
