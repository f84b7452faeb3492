"""Statements as written. Pure."""

from __future__ import annotations

import msgspec

from ..ir.annotations import Annotation
from ..source import Span
from .expressions import Argument, Call, Expression
from .types import TypeRef


class Assign(msgspec.Struct, frozen=True):
    """`target = value`, or `target += value` with operator "+"."""

    target: Expression
    operator: str
    value: Expression
    span: Span


class CallStatement(msgspec.Struct, frozen=True):
    """A call."""

    call: Call
    span: Span


class If(msgspec.Struct, frozen=True):
    """`if (condition) yes else no`."""

    condition: Expression
    yes: Statement
    no: Statement | None
    span: Span


class Block(msgspec.Struct, frozen=True):
    """`{ ... }`."""

    statements: tuple[Statement, ...]
    annotations: tuple[Annotation, ...]
    span: Span


class Empty(msgspec.Struct, frozen=True):
    """`;`."""

    span: Span


class Return(msgspec.Struct, frozen=True):
    """`return value;`."""

    value: Expression | None
    span: Span


class Exit(msgspec.Struct, frozen=True):
    """`exit;`."""

    span: Span


class Break(msgspec.Struct, frozen=True):
    """`break;`."""

    span: Span


class Continue(msgspec.Struct, frozen=True):
    """`continue;`."""

    span: Span


class SwitchCase(msgspec.Struct, frozen=True):
    """`label: body`; label DontCare for default, body None if it falls through."""

    label: Expression
    body: Block | None
    span: Span


class Switch(msgspec.Struct, frozen=True):
    """`switch (subject) { cases }`."""

    subject: Expression
    cases: tuple[SwitchCase, ...]
    span: Span


class For(msgspec.Struct, frozen=True):
    """`for (init; condition; update) body`."""

    init: tuple[Statement, ...]
    condition: Expression
    update: tuple[Statement, ...]
    body: Statement
    span: Span


class ForIn(msgspec.Struct, frozen=True):
    """`for (type name in collection) body`."""

    type: TypeRef
    name: str
    collection: Expression
    body: Statement
    span: Span


class VariableDeclaration(msgspec.Struct, frozen=True):
    """`type name = value;`."""

    type: TypeRef
    name: str
    value: Expression | None
    annotations: tuple[Annotation, ...]
    span: Span


class ConstantDeclaration(msgspec.Struct, frozen=True):
    """`const type name = value;`."""

    type: TypeRef
    name: str
    value: Expression
    annotations: tuple[Annotation, ...]
    span: Span


class Instantiation(msgspec.Struct, frozen=True):
    """`type(arguments) name;`, with `initializer` if there is a `= {...}`."""

    type: TypeRef
    arguments: tuple[Argument, ...]
    name: str
    initializer: bool
    annotations: tuple[Annotation, ...]
    span: Span


Statement = (
    Assign
    | CallStatement
    | If
    | Block
    | Empty
    | Return
    | Exit
    | Break
    | Continue
    | Switch
    | For
    | ForIn
    | VariableDeclaration
    | ConstantDeclaration
    | Instantiation
)
