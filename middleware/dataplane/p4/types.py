"""The checker's types, before their representation is chosen. Pure.

Types common to both are shared with `ir.types`: Bits, Bool, Varbit, ErrorCode, String, Void. Named types are
equal only to themselves; tuples, stacks and bits are equal if their parts are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from . import ast, ir
from .ir.annotations import Annotation
from .source import Span

if TYPE_CHECKING:
    from .check.scope import Scope


class Infinite(msgspec.Struct, frozen=True):
    """`int`: known at load, of any size."""


class MatchKindType(msgspec.Struct, frozen=True):
    """`match_kind`."""


class EnumType:
    """An enum without a representation."""

    def __init__(self, name: str, members: tuple[str, ...], annotations: tuple[Annotation, ...]) -> None:
        self.name = name
        self.annotations = annotations
        self.represented = ir.Enum(name, members)


class SerialEnum:
    """`enum bit<w> E { a = 1 }`: its values are bits, but only some have names."""

    def __init__(
        self, name: str, bits: ir.Bits, members: dict[str, int], annotations: tuple[Annotation, ...]
    ) -> None:
        self.name = name
        self.bits = bits
        self.members = members
        self.annotations = annotations


class NewType:
    """`type original name;`: the same values, but another type."""

    def __init__(
        self, name: str, original: Type, annotations: tuple[Annotation, ...], written: str | None
    ) -> None:
        self.name = name
        self.original = original
        self.annotations = annotations
        self.written = written


class FieldType(msgspec.Struct, frozen=True):
    """A field of a record."""

    name: str
    type: Type
    annotations: tuple[Annotation, ...]
    span: Span


class Record:
    """A struct, header or header union. `kind` is the keyword."""

    def __init__(
        self,
        kind: str,
        name: str,
        fields: tuple[FieldType, ...],
        annotations: tuple[Annotation, ...],
        span: Span,
        generic: object = None,
        arguments: tuple[Type, ...] = (),
    ) -> None:
        self.kind = kind
        self.name = name
        self.fields = fields
        self.annotations = annotations
        self.span = span
        self.generic = generic
        self.arguments = arguments
        self.places = {field.name: number for number, field in enumerate(fields)}
        self.represented: ir.StructType | ir.HeaderType | ir.UnionType | None = None


class Stack(msgspec.Struct, frozen=True):
    """A header stack; equal to others of the same element and size."""

    element: Record
    size: int


class Tuple(msgspec.Struct, frozen=True):
    """`tuple<...>`, and the type of a list in the text, which converts to the expected type."""

    elements: tuple[Type, ...]


class ListType(msgspec.Struct, frozen=True):
    """`list<T>`."""

    element: Type


class TypeVariable:
    """A type parameter that nothing is known of."""

    def __init__(self, name: str) -> None:
        self.name = name


class ExternType:
    """An extern object type with its arguments; () if they are still to be inferred."""

    def __init__(self, declaration: ast.Extern, arguments: tuple[Type, ...], scope: Scope) -> None:
        self.declaration = declaration
        self.arguments = arguments
        self.scope = scope
        self.name = declaration.name

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ExternType)
            and other.declaration is self.declaration
            and other.arguments == self.arguments
        )

    def __hash__(self) -> int:
        return hash(self.name)


class Applicable:
    """The type of a control or parser, as a package's or constructor's parameter has it."""

    def __init__(
        self,
        declaration: ast.Control | ast.Parser,
        arguments: tuple[Type, ...],
        scope: Scope,
        order: int = 0,
    ) -> None:
        self.order = order
        self.declaration = declaration
        self.arguments = arguments
        self.scope = scope
        self.name = declaration.name


class PackageType:
    """A package."""

    def __init__(self, declaration: ast.Package, arguments: tuple[Type, ...], scope: Scope) -> None:
        self.declaration = declaration
        self.arguments = arguments
        self.scope = scope
        self.name = declaration.name


Type = (
    ir.Bits
    | ir.Bool
    | ir.Varbit
    | ir.ErrorCode
    | ir.String
    | ir.Void
    | Infinite
    | MatchKindType
    | EnumType
    | SerialEnum
    | NewType
    | Record
    | Stack
    | Tuple
    | ListType
    | TypeVariable
    | ExternType
    | Applicable
    | PackageType
)

INT = Infinite()
BOOL = ir.Bool()
ERROR = ir.ErrorCode()
STRING = ir.String()
VOID = ir.Void()
BIT32 = ir.Bits(32)
UNSIZED = ir.Bits(-1, True)  # the type of an `int` literal until it is given a width


def describe(type_: Type) -> str:
    """Returns the type as P4 writes it, for messages and for the names of generic records."""
    match type_:
        case ir.Bits(width=width, signed=signed):
            return f"{'int' if signed else 'bit'}<{width}>"
        case ir.Varbit(width=width):
            return f"varbit<{width}>"
        case Stack(element=element, size=size):
            return f"{element.name}[{size}]"
        case Tuple(elements=elements):
            return f"tuple<{', '.join(map(describe, elements))}>"
        case ListType(element=element):
            return f"list<{describe(element)}>"
        case Record():
            return type_.name or "struct"
        case ExternType():
            inner = ", ".join(map(describe, type_.arguments))
            return f"{type_.name}<{inner}>" if inner else type_.name
        case EnumType() | SerialEnum() | NewType() | TypeVariable() | Applicable() | PackageType():
            return type_.name
    return _PLAIN[type(type_)]


_PLAIN: dict[type, str] = {
    ir.Bool: "bool",
    ir.ErrorCode: "error",
    ir.String: "string",
    ir.Void: "void",
    Infinite: "int",
    MatchKindType: "match_kind",
}


def is_header(type_: Type) -> bool:
    return isinstance(type_, Record) and type_.kind == "header"


def is_union(type_: Type) -> bool:
    return isinstance(type_, Record) and type_.kind == "header_union"


def represent(type_: Type) -> ir.Type:
    """Returns the run-time type. Raises KeyError for a type without values at run time."""
    match type_:
        case ir.Bits() | ir.Bool() | ir.Varbit() | ir.ErrorCode() | ir.String() | ir.Void():
            return type_
        case Infinite():
            return UNSIZED
        case EnumType():
            return type_.represented
        case SerialEnum():
            return type_.bits
        case NewType():
            return represent(type_.original)
        case Record():
            return _represent_record(type_)
        case Stack(element=element, size=size):
            inner = _represent_record(element)
            assert not isinstance(inner, ir.StructType)
            return ir.StackType(inner, size)
        case Tuple(elements=elements):
            return ir.TupleType(tuple(map(represent, elements)))
    raise KeyError(describe(type_))


_RECORDS: dict[str, type[ir.StructType] | type[ir.HeaderType] | type[ir.UnionType]] = {
    "struct": ir.StructType,
    "header": ir.HeaderType,
    "header_union": ir.UnionType,
}


def _represent_record(record: Record) -> ir.StructType | ir.HeaderType | ir.UnionType:
    if record.represented is None:
        fields = tuple(
            ir.Field(field.name, represent(field.type), field.annotations, named(field.type), field.span)
            for field in record.fields
        )
        name = record.name or f"struct {{{', '.join(field.name for field in record.fields)}}}"
        record.represented = _RECORDS[record.kind](name, fields, record.annotations, record.span)
    return record.represented


def named(type_: Type) -> str | None:
    """Returns the name that a control plane needs to know of: of a new type or a serializable enum."""
    return type_.name if isinstance(type_, NewType | SerialEnum) else None


def underlying(type_: Type) -> Type:
    """Returns the type behind new types and serializable enums, fully resolved."""
    while True:
        if isinstance(type_, NewType):
            type_ = type_.original
        elif isinstance(type_, SerialEnum):
            return type_.bits
        else:
            return type_
