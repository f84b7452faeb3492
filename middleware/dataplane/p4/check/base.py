"""Shared by all parts of the checker: the growing program, the present place, errors, names. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn, Protocol

import msgspec

from .. import ast, ir, types
from ..ir.annotations import Annotation, find
from ..source import Diagnostic, Span
from .scope import Entity, ExternEntity, InstanceEntity, PoisonEntity, Scope, Typed


class Refused(Exception):
    """The checked element is wrong; without a diagnostic, it was reported before."""

    def __init__(self, diagnostic: Diagnostic | None = None) -> None:
        super().__init__(diagnostic.message if diagnostic else "")
        self.diagnostic = diagnostic


class Frame(msgspec.Struct):
    """The checker's place: the body that it is in, and the control-plane prefix.

    `kind`: "top", "control", "parser", "action", "function", "table". `result`: the type that `return` must
    give, None if nothing. `loops`: number of enclosing loops. `output`: the destination of statements.
    """

    kind: str
    owner: str
    prefix: str
    result: types.Type | None = None
    loops: int = 0
    output: list[ir.Statement] = []


class ExpressionChecker(Protocol):
    def expression(self, node: ast.Expression, expected: types.Type | None = None) -> Typed: ...


class CallChecker(Protocol):
    def call(self, node: ast.Call, expected: types.Type | None) -> Typed: ...

    def table_result(self, node: ast.Member, call: ast.Call) -> Typed: ...

    def argument_value(self, node: ast.Expression, wanted: types.Type) -> Typed: ...


class StatementChecker(Protocol):
    def statements(self, block: ast.Block) -> tuple[ir.Statement, ...]: ...


class InstanceChecker(Protocol):
    def instance(
        self,
        type_: types.Applicable,
        arguments: tuple[ast.Argument, ...],
        name: str,
        annotations: tuple[Annotation, ...],
        span: Span,
    ) -> InstanceEntity: ...

    def extern(
        self,
        type_: types.ExternType,
        arguments: tuple[ast.Argument, ...],
        name: str,
        annotations: tuple[Annotation, ...],
        span: Span,
    ) -> ExternEntity: ...


class Place:
    """The program that grows, and the checker's place in it.

    P4 is recursive: an operand may be a call, whose body has statements. The four Protocols are the parts
    that parts further down need; these parts set themselves.
    """

    expressions: ExpressionChecker
    calls: CallChecker
    statements: StatementChecker
    instances: InstanceChecker

    def __init__(self) -> None:
        self.problems: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self._said: set[tuple[Span, str]] = set()
        self.top = Scope(None)
        self.scope = self.top
        self.order = 0
        self.frame = Frame("top", "", "")
        self.errors: dict[str, int] = {}
        self.match_kinds: dict[str, Span] = {}
        self.variables: list[ir.VariableInfo] = []
        self.externs: list[ir.ExternInstance] = []
        self.value_sets: list[ir.ValueSet] = []
        self.functions: list[ir.Function] = []
        self.actions: list[ir.Action] = []
        self.tables: list[ir.Table] = []
        self.controls: list[ir.Control] = []
        self.parsers: list[ir.Parser] = []
        self.function_orders: dict[int, int] = {}

    # --- errors

    def fail(self, span: Span, message: str) -> NoReturn:
        """Abandons the element being checked."""
        raise Refused(Diagnostic(span, message))

    def report(self, refused: Refused) -> None:
        """Keeps an error, once."""
        one = refused.diagnostic
        if one is not None and (one.span, one.message) not in self._said:
            self._said.add((one.span, one.message))
            self.problems.append(one)

    def complain(self, span: Span, message: str) -> None:
        """Reports an error after which checking continues normally."""
        self.report(Refused(Diagnostic(span, message)))

    def warn(self, span: Span, message: str) -> None:
        one = Diagnostic(span, message, "warning")
        if (span, message) not in self._said:
            self._said.add((span, message))
            self.warnings.append(one)

    # --- scopes

    @contextmanager
    def inner(self, scope: Scope | None = None) -> Iterator[Scope]:
        """Opens a scope inside the present one, or inside `scope`."""
        before = self.scope
        self.scope = Scope(scope or before)
        try:
            yield self.scope
        finally:
            self.scope = before

    @contextmanager
    def body(self, frame: Frame, scope: Scope) -> Iterator[Frame]:
        """Opens a separate body: another frame, and a scope inside `scope`."""
        frame_before, scope_before = self.frame, self.scope
        self.frame, self.scope = frame, Scope(scope)
        try:
            yield frame
        finally:
            self.frame, self.scope = frame_before, scope_before

    @contextmanager
    def collecting(self) -> Iterator[list[ir.Statement]]:
        """Statements go into a list of their own."""
        before, self.frame.output = self.frame.output, []
        try:
            yield self.frame.output
        finally:
            self.frame.output = before

    def emit(self, statement: ir.Statement) -> None:
        self.frame.output.append(statement)

    def declare(self, name: str, entity: Entity, span: Span) -> None:
        """Gives a name a meaning in the present scope; an error if it has one there."""
        already = self.scope.names.get(name)
        if already is not None and not isinstance(already, PoisonEntity):
            self.complain(span, f"'{name}' is declared already, at {already.span}")
            return
        self.scope.names[name] = entity

    def poison(self, name: str, span: Span) -> None:
        """Declares the name as refused."""
        self.scope.names.setdefault(name, PoisonEntity(span))

    def lookup(self, name: str, absolute: bool, span: Span) -> Entity:
        """Returns the entity of a name."""
        scope = self.scope
        if absolute:
            top = self.scope.top()
            scope = Scope(top, self.scope.limit)
        found = scope.find(name)
        if found is None:
            later = scope.top().names.get(name)
            if later is not None:
                self.fail(span, f"'{name}' is used before it is declared, at {later.span}")
            self.fail(span, f"'{name}' is not declared{self.suggest(name, scope.visible())}")
        if isinstance(found, PoisonEntity):
            raise Refused
        return found

    def suggest(self, name: str, known: Iterable[str]) -> str:
        """Returns `; did you mean 'x'?`, or an empty string."""
        close = difflib.get_close_matches(name, list(known), 1)
        return f"; did you mean '{close[0]}'?" if close else ""

    # --- names of control planes

    def plane_name(self, name: str, annotations: tuple[Annotation, ...]) -> str:
        """Returns the control plane's name of a declaration at this place."""
        return qualified(self.frame.prefix, name, annotations)

    # --- variables

    def new_variable(self, name: str, type_: types.Type, span: Span) -> int:
        """Returns a place for a value."""
        self.variables.append(ir.VariableInfo(name, self.represent(type_, span), self.frame.owner, span))
        return len(self.variables) - 1

    def represent(self, type_: types.Type, span: Span) -> ir.Type:
        """Returns the type at run time."""
        try:
            return types.represent(type_)
        except KeyError:
            self.fail(
                span, f"there are no values of type {types.describe(type_)} while packets are worked on"
            )

    # --- constants

    def integer(self, node: ast.Expression, what: str) -> int:
        """Returns a number that is known at load."""
        found = self.expressions.expression(node)
        literal = found.node
        if not isinstance(literal, ir.Literal) or isinstance(literal.value, bool | str):
            self.fail(node.span, f"{what} must be a number that is known when the program is loaded")
        return literal.value


def qualified(prefix: str, name: str, annotations: tuple[Annotation, ...]) -> str:
    """Returns `prefix.name`; `@name("x")` replaces the name, `@name(".x")` all of it."""
    mark = find(annotations, "name")
    if mark is not None and mark.arguments:
        name = str(mark.arguments[0])
    if name.startswith("."):
        return name[1:]
    return f"{prefix}.{name}" if prefix else name


def is_hidden(annotations: tuple[Annotation, ...]) -> bool:
    return find(annotations, "hidden") is not None
