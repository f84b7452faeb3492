"""The entities that names denote, and scopes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from .. import ast, ir
from ..source import Span
from ..types import ExternType, Type


class Typed(msgspec.Struct, frozen=True):
    """A checked expression. `writable`: an l-value that may be assigned to; `place`: an l-value at all."""

    type: Type
    node: ir.Expression
    place: bool = False
    writable: bool = False

    @property
    def span(self) -> Span:
        return self.node.span


class TypeEntity(msgspec.Struct, frozen=True):
    """A type, or with `generic` one that needs arguments: called with them and a place for errors."""

    type: Type | None
    generic: Callable[[tuple[Type, ...], Span], Type] | None
    parameters: int
    span: Span
    order: int


class ConstantEntity(msgspec.Struct, frozen=True):
    """A constant, or a constructor's parameter."""

    value: Typed
    span: Span
    order: int


class VariableEntity(msgspec.Struct, frozen=True):
    """A variable or parameter."""

    index: int
    type: Type
    writable: bool
    span: Span
    order: int = 0


class ParameterType(msgspec.Struct, frozen=True):
    """A parameter of something callable; `default` is resolved in `scope`."""

    name: str
    direction: str
    type: Type
    default: ast.Expression | None
    declaration: ast.Parameter
    optional: bool = False


class ActionEntity(msgspec.Struct):
    """An action; `index` into the program's when it has been lowered."""

    declaration: ast.Action
    scope: Scope
    prefix: str
    span: Span
    order: int
    index: int = -1
    parameters: tuple[ParameterType, ...] = ()


class TableEntity(msgspec.Struct, frozen=True):
    """A table. `actions` are the entities of its actions, in the table's order."""

    index: int
    actions: tuple[ActionEntity, ...]
    names: tuple[str, ...]
    span: Span
    order: int = 0


class InstanceEntity(msgspec.Struct, frozen=True):
    """An instance of a control or parser; with `waiting` it is lowered when it is applied."""

    kind: str
    index: int
    declaration: ast.Control | ast.Parser
    parameters: tuple[ParameterType, ...]
    span: Span
    order: int = 0
    waiting: Callable[[Mapping[str, ExternEntity]], InstanceEntity] | None = None


class ExternEntity(msgspec.Struct, frozen=True):
    """An extern object, or packet_in and packet_out, which have no index."""

    index: int | None
    type: ExternType
    span: Span
    order: int = 0


class FunctionEntity(msgspec.Struct):
    """A function or extern function, with all its overloads."""

    name: str
    overloads: list[ast.Function | ast.ExternFunction]
    scope: Scope
    span: Span
    order: int


class ValueSetEntity(msgspec.Struct, frozen=True):
    """A value set."""

    index: int
    type: Type
    span: Span
    order: int = 0


class PoisonEntity(msgspec.Struct, frozen=True):
    """A name whose declaration was refused."""

    span: Span
    order: int = 0


Entity = (
    TypeEntity
    | ConstantEntity
    | VariableEntity
    | ActionEntity
    | TableEntity
    | InstanceEntity
    | ExternEntity
    | FunctionEntity
    | ValueSetEntity
    | PoisonEntity
)


class Scope:
    """The names of one block, and the enclosing block. `limit`: at the top level, only earlier declarations
    are visible.
    """

    __slots__ = ("limit", "names", "parent")

    def __init__(self, parent: Scope | None, limit: int | None = None) -> None:
        self.parent = parent
        self.names: dict[str, Entity] = {}
        self.limit: int | None = limit if limit is not None or parent is None else parent.limit

    def top(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def find(self, name: str) -> Entity | None:
        scope: Scope | None = self
        limit = self.limit
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                if scope.parent is None and limit is not None and found.order >= limit:
                    return None
                return found
            scope = scope.parent
        return None

    def visible(self) -> list[str]:
        """Returns all names, for suggestions."""
        names: list[str] = []
        scope: Scope | None = self
        while scope is not None:
            names += scope.names
            scope = scope.parent
        return names
