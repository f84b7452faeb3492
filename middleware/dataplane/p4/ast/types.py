"""Types as written. Pure."""

from __future__ import annotations

import msgspec

from ..source import Span
from .expressions import Expression


class TypeName(msgspec.Struct, frozen=True):
    """A name; `absolute` with a leading dot."""

    name: str
    absolute: bool
    span: Span


class Specialized(msgspec.Struct, frozen=True):
    """`base<arguments>`."""

    base: TypeName
    arguments: tuple[TypeRef, ...]
    span: Span


class SizedType(msgspec.Struct, frozen=True):
    """`bit<w>`, `int<w>`, `varbit<w>`; `bit` is `bit<1>`."""

    kind: str
    width: Expression
    span: Span


class PlainType(msgspec.Struct, frozen=True):
    """`bool`, `int`, `string`, `error`, `void`, `match_kind`, or `_`."""

    kind: str
    span: Span


class TupleRef(msgspec.Struct, frozen=True):
    """`tuple<...>`."""

    elements: tuple[TypeRef, ...]
    span: Span


class ListRef(msgspec.Struct, frozen=True):
    """`list<T>`."""

    element: TypeRef
    span: Span


class ArrayRef(msgspec.Struct, frozen=True):
    """`T[size]`."""

    element: TypeRef
    size: Expression
    span: Span


TypeRef = TypeName | Specialized | SizedType | PlainType | TupleRef | ListRef | ArrayRef
