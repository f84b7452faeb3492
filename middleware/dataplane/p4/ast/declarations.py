"""Declarations as written. Pure."""

from __future__ import annotations

import msgspec

from ..ir.annotations import Annotation
from ..source import Span
from .expressions import Argument, Expression, Name
from .statements import Block, ConstantDeclaration, Instantiation, Statement, VariableDeclaration
from .types import TypeRef


class Parameter(msgspec.Struct, frozen=True):
    """A parameter `direction type name = default`; direction is "" if there is none."""

    direction: str
    type: TypeRef
    name: str
    default: Expression | None
    annotations: tuple[Annotation, ...]
    span: Span


class Prototype(msgspec.Struct, frozen=True):
    """A prototype `result name<types>(parameters)`. The result of a constructor is None."""

    result: TypeRef | None
    name: str
    types: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    annotations: tuple[Annotation, ...]
    abstract: bool
    span: Span


class Extern(msgspec.Struct, frozen=True):
    """`extern name<types> { methods }`."""

    name: str
    types: tuple[str, ...]
    methods: tuple[Prototype, ...]
    annotations: tuple[Annotation, ...]
    span: Span


class ExternFunction(msgspec.Struct, frozen=True):
    """`extern prototype;`."""

    prototype: Prototype
    span: Span

    @property
    def name(self) -> str:
        return self.prototype.name


class Function(msgspec.Struct, frozen=True):
    """`prototype { body }`."""

    prototype: Prototype
    body: Block
    span: Span

    @property
    def name(self) -> str:
        return self.prototype.name


class Action(msgspec.Struct, frozen=True):
    """`action name(parameters) { body }`."""

    name: str
    parameters: tuple[Parameter, ...]
    body: Block
    annotations: tuple[Annotation, ...]
    span: Span


class Field(msgspec.Struct, frozen=True):
    """A field of a struct, header or header union."""

    type: TypeRef
    name: str
    annotations: tuple[Annotation, ...]
    span: Span


class Record(msgspec.Struct, frozen=True):
    """`kind name<types> { fields }`; kind is "struct", "header" or "header_union"."""

    kind: str
    name: str
    types: tuple[str, ...]
    fields: tuple[Field, ...]
    annotations: tuple[Annotation, ...]
    span: Span


class EnumMember(msgspec.Struct, frozen=True):
    """A member of an enum, with a value if it has a representation."""

    name: str
    value: Expression | None
    span: Span


class Enum(msgspec.Struct, frozen=True):
    """`enum representation name { members }`."""

    name: str
    representation: TypeRef | None
    members: tuple[EnumMember, ...]
    annotations: tuple[Annotation, ...]
    span: Span


class Identifiers(msgspec.Struct, frozen=True):
    """`error { names }` or `match_kind { names }`."""

    kind: str
    names: tuple[Name, ...]
    span: Span


class Typedef(msgspec.Struct, frozen=True):
    """`typedef type name;`, or with `new` `type type name;`. The type may be declared in place."""

    name: str
    type: TypeRef | Record | Enum
    new: bool
    annotations: tuple[Annotation, ...]
    span: Span


class ValueSet(msgspec.Struct, frozen=True):
    """`value_set<type>(size) name;`."""

    name: str
    type: TypeRef
    size: Expression
    annotations: tuple[Annotation, ...]
    span: Span


class SelectCase(msgspec.Struct, frozen=True):
    """`keys: state;`."""

    keys: Expression
    state: Name
    span: Span


class Select(msgspec.Struct, frozen=True):
    """`select (keys) { cases }`."""

    keys: tuple[Expression, ...]
    cases: tuple[SelectCase, ...]
    span: Span


class State(msgspec.Struct, frozen=True):
    """`state name { statements transition }`."""

    name: str
    statements: tuple[Statement, ...]
    transition: Name | Select | None
    annotations: tuple[Annotation, ...]
    span: Span


class Key(msgspec.Struct, frozen=True):
    """`expression : match_kind;`; `text` is the expression as written."""

    expression: Expression
    match_kind: Name
    annotations: tuple[Annotation, ...]
    span: Span


class ActionRef(msgspec.Struct, frozen=True):
    """`name(arguments)`; arguments None without brackets."""

    name: Name
    arguments: tuple[Argument, ...] | None
    annotations: tuple[Annotation, ...]
    span: Span


class Entry(msgspec.Struct, frozen=True):
    """`const priority = p : keys : action;`."""

    constant: bool
    priority: Expression | None
    keys: Expression
    action: ActionRef
    annotations: tuple[Annotation, ...]
    span: Span


class Property(msgspec.Struct, frozen=True):
    """A table property other than key, actions and entries."""

    name: str
    value: Expression
    constant: bool
    annotations: tuple[Annotation, ...]
    span: Span


class Entries(msgspec.Struct, frozen=True):
    """`entries = { ... }`."""

    entries: tuple[Entry, ...]
    constant: bool
    span: Span


class Table(msgspec.Struct, frozen=True):
    """A table; None for absent properties."""

    name: str
    keys: tuple[Key, ...] | None
    actions: tuple[ActionRef, ...] | None
    entries: Entries | None
    properties: tuple[Property, ...]
    annotations: tuple[Annotation, ...]
    span: Span


class Control(msgspec.Struct, frozen=True):
    """`control name<types>(parameters)(constructor) { locals apply body }`; body None: only a type."""

    name: str
    types: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    constructor: tuple[Parameter, ...]
    locals: tuple[Local, ...]
    body: Block | None
    annotations: tuple[Annotation, ...]
    span: Span


class Parser(msgspec.Struct, frozen=True):
    """`parser name<types>(parameters)(constructor) { locals states }`; states None: only a type."""

    name: str
    types: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    constructor: tuple[Parameter, ...]
    locals: tuple[Local, ...]
    states: tuple[State, ...] | None
    annotations: tuple[Annotation, ...]
    span: Span


class Package(msgspec.Struct, frozen=True):
    """`package name<types>(parameters);`."""

    name: str
    types: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    annotations: tuple[Annotation, ...]
    span: Span


Local = ConstantDeclaration | VariableDeclaration | Instantiation | Action | Table | ValueSet | Function
Declaration = (
    ConstantDeclaration
    | Instantiation
    | Extern
    | ExternFunction
    | Function
    | Action
    | Record
    | Enum
    | Identifiers
    | Typedef
    | Control
    | Parser
    | Package
    | ValueSet
    | Table
)
