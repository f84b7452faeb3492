"""Controls, parsers and extern objects, instantiated when the program is loaded. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import ast, ir, types
from ..ir.annotations import Annotation, Scalar
from ..source import Span
from .base import Frame, Place, Refused, is_hidden
from .externs import PACKETS, SIZES, has_object
from .functions import NO_OBJECTS, Functions
from .inference import Inference, accepts, substitute, unify
from .parsers import Parsers
from .scope import (
    ActionEntity,
    ConstantEntity,
    Entity,
    ExternEntity,
    InstanceEntity,
    ParameterType,
    Scope,
    Typed,
    TypeEntity,
)
from .statements import Statements
from .tables import Tables
from .type_refs import TypeRefs

_MOST_INSTANCES = 4096

Constructed = Typed | ExternEntity | InstanceEntity


class Waiting:
    """An instance that is lowered when it is applied, since it is given extern objects then."""

    def __init__(
        self,
        checker: Instances,
        type_: types.Applicable,
        constructor: dict[ParameterType, Constructed],
        name: str,
        span: Span,
    ) -> None:
        self._checker = checker
        self._given = (type_, constructor, name, span)
        self._made: dict[tuple[int | None, ...], InstanceEntity] = {}

    def __call__(self, objects: Mapping[str, ExternEntity]) -> InstanceEntity:
        """Returns the instance with these objects, lowered once."""
        key = tuple(one.index for one in objects.values())
        if key not in self._made:
            self._made[key] = self._checker.lower(*self._given, objects)
        return self._made[key]


class Instances:
    """The part of the checker that makes instances."""

    def __init__(
        self,
        at: Place,
        type_refs: TypeRefs,
        inference: Inference,
        functions: Functions,
        statements: Statements,
        tables: Tables,
        parsers: Parsers,
    ) -> None:
        self._at = at
        self._type_refs = type_refs
        self._inference = inference
        self._functions = functions
        self._statements = statements
        self._tables = tables
        self._parsers = parsers
        at.instances = self
        self._locals: dict[type, Callable[[Any], None]] = {
            ast.ConstantDeclaration: self._statements.constant,
            ast.VariableDeclaration: self._statements.variable,
            ast.Instantiation: self.instantiation,
            ast.Action: self._local_action,
            ast.Table: self._tables.table,
            ast.ValueSet: self._parsers.value_set,
            ast.Function: self._local_function,
        }
        self.reached: list[object] = []

    def instantiation(self, node: ast.Instantiation) -> None:
        """Checks `type(arguments) name;` in a control, a parser, or at the top level."""
        type_ = self._type_refs.type_of(node.type)
        if node.initializer:
            self._at.fail(node.span, "objects with methods of their own are not supported by this target")
        entity: Entity
        if isinstance(type_, types.ExternType):
            entity = self.extern(type_, node.arguments, node.name, node.annotations, node.span)
        elif isinstance(type_, types.Applicable):
            if self._at.frame.kind == "top":
                self._at.fail(node.span, "a control or parser can't be instantiated at the top level")
            entity = self.instance(type_, node.arguments, node.name, node.annotations, node.span)
        else:
            self._at.fail(node.span, f"{types.describe(type_)} can't be instantiated")
        self._at.declare(node.name, entity, node.span)

    # --- constructor arguments

    def _constructed(
        self,
        name: str,
        parameters: tuple[ParameterType, ...],
        arguments: tuple[ast.Argument, ...],
        span: Span,
    ) -> list[Constructed]:
        """Returns constructor arguments: constants, extern objects, and instances of controls and parsers."""
        paired = self._inference.pair(name, [one.declaration for one in parameters], arguments, span)
        found: list[Constructed] = []
        for parameter, argument in zip(parameters, paired, strict=True):
            node = argument.value if argument is not None else parameter.default
            if node is None:
                self._at.fail(span, f"argument '{parameter.name}' of '{name}' is missing")
            if isinstance(parameter.type, types.ExternType):
                found.append(self._object_argument(node, parameter.type))
            elif isinstance(parameter.type, types.Applicable):
                found.append(self._instance_argument(node, parameter))
            else:
                found.append(self._statements.constant_value(node, parameter.type))
        return found

    def _instance_argument(self, node: ast.Expression, parameter: ParameterType) -> InstanceEntity:
        entity: Entity | None = None
        if isinstance(node, ast.Name):
            entity = self._at.lookup(node.name, node.absolute, node.span)
        elif isinstance(node, ast.Call) and isinstance(node.target, ast.TypeExpression):
            type_ = self._type_refs.type_of(node.target.type)
            if isinstance(type_, types.Applicable):
                entity = self.instance(type_, node.arguments, parameter.name, (), node.span)
        if not isinstance(entity, InstanceEntity):
            self._at.fail(node.span, f"an instance of {types.describe(parameter.type)} is wanted here")
        self.check_applicable(parameter, entity, {})
        return entity

    def _object_argument(self, node: ast.Expression, wanted: types.ExternType) -> ExternEntity:
        if isinstance(node, ast.Name):
            entity = self._at.lookup(node.name, node.absolute, node.span)
            if isinstance(entity, ExternEntity) and unify(wanted, entity.type, {}):
                return entity
        elif isinstance(node, ast.Call) and isinstance(node.target, ast.TypeExpression):
            type_ = self._type_refs.type_of(node.target.type)
            if isinstance(type_, types.ExternType) and type_.declaration is wanted.declaration:
                return self.extern(wanted, node.arguments, type_.name, (), node.span)
        self._at.fail(node.span, f"an extern object of type {types.describe(wanted)} is wanted here")

    # --- extern objects

    def extern(
        self,
        type_: types.ExternType,
        arguments: tuple[ast.Argument, ...],
        name: str,
        annotations: tuple[Annotation, ...],
        span: Span,
    ) -> ExternEntity:
        """Makes an extern object."""
        declaration = type_.declaration
        if not has_object(declaration):
            self._at.fail(span, f"this target has no extern '{declaration.name}'")
        constructors = [one for one in declaration.methods if one.result is None]
        fitting = [one for one in constructors if accepts(one.parameters, arguments)]
        if not constructors:
            self._at.fail(span, f"objects of type {declaration.name} can't be made by programs")
        chosen = fitting[0] if fitting else constructors[0]
        if len(type_.arguments) != len(declaration.types):
            self._at.fail(span, f"'{declaration.name}' needs {len(declaration.types)} type arguments")
        scope = Scope(type_.scope)
        for parameter, bound in zip(declaration.types, type_.arguments, strict=True):
            scope.names[parameter] = TypeEntity(bound, None, 0, span, 0)
        with self._at.inner(scope):
            parameters = self._type_refs.parameters(chosen.parameters)
        values = self._constructed(declaration.name, parameters, arguments, span)
        named = tuple(
            (one.name, self._scalar(one, value))
            for one, value in zip(parameters, values, strict=True)
            if isinstance(value, Typed)
        )
        represented = tuple(self._at.represent(one, span) for one in type_.arguments)
        kind = declaration.name
        first = types.named(type_.arguments[0]) if type_.arguments else None
        full = self._at.plane_name(name, annotations)
        hidden = is_hidden(annotations)
        self._at.externs.append(
            ir.ExternInstance(full, kind, represented, named, annotations, hidden, span, first)
        )
        return ExternEntity(len(self._at.externs) - 1, type_, span, self._at.order)

    def _scalar(self, parameter: ParameterType, value: Typed) -> Scalar:
        literal = value.node
        if not isinstance(literal, ir.Literal):
            self._at.fail(value.span, "a constructor's argument must be known when the program is loaded")
        if isinstance(value.type, types.EnumType):
            assert isinstance(literal.value, int)
            return value.type.represented.members[literal.value]
        if parameter.name in SIZES and isinstance(literal.value, int):
            least, most = SIZES[parameter.name]
            if not least <= literal.value <= most:
                self._at.fail(
                    value.span, f"'{parameter.name}' is between {least} and {most}, not {literal.value}"
                )
        return literal.value

    # --- controls and parsers

    def instance(
        self,
        type_: types.Applicable,
        arguments: tuple[ast.Argument, ...],
        name: str,
        annotations: tuple[Annotation, ...],
        span: Span,
    ) -> InstanceEntity:
        """Makes an instance of a control or parser, and lowers its body."""
        declaration = type_.declaration
        kind = "control" if isinstance(declaration, ast.Control) else "parser"
        if not is_complete(declaration):
            self._at.fail(span, f"'{declaration.name}' is only a type; it has no body to be instantiated")
        if self._at.frame.kind not in ("top", kind):
            self._at.fail(span, f"a {kind} can't be instantiated in a {self._at.frame.kind}")
        if declaration in self._functions.active:
            self._at.fail(span, f"{kind} '{declaration.name}' contains itself")
        if len(self._at.controls) + len(self._at.parsers) >= _MOST_INSTANCES:
            self._at.fail(span, f"there are more than {_MOST_INSTANCES} instances of controls and parsers")
        with self._at.inner(type_.scope):
            parameters = self._type_refs.parameters(declaration.constructor)
        values = self._constructed(declaration.name, parameters, arguments, span)
        full = self._at.plane_name(name, annotations)
        return self.lower(type_, dict(zip(parameters, values, strict=True)), full, span)

    def lower(
        self,
        type_: types.Applicable,
        constructor: dict[ParameterType, Constructed],
        name: str,
        span: Span,
        objects: Mapping[str, ExternEntity] = NO_OBJECTS,
    ) -> InstanceEntity:
        """Returns the instance with these constructor arguments and this control-plane name.

        If it takes extern objects when it is applied, it is lowered then, with them as `objects`.
        """
        declaration = type_.declaration
        kind = "control" if isinstance(declaration, ast.Control) else "parser"
        self.reached.append(declaration)
        scope = Scope(type_.scope, type_.order)
        with self._functions.within(declaration), self._at.body(Frame(kind, name, name), scope):
            self._at.order = type_.order
            index, waiting = -1, None
            for parameter, value in constructor.items():
                entity: Entity = ConstantEntity(value, span, 0) if isinstance(value, Typed) else value
                self._at.declare(parameter.name, entity, parameter.declaration.span)
            parameters = self._type_refs.parameters(declaration.parameters)
            if all(one.name in objects for one in parameters if is_object(one)):
                bound = self._functions.bind(parameters, objects)
                with self._at.inner():
                    index = self._body(declaration, name, bound)
            else:
                waiting = Waiting(self, type_, constructor, name, span)
        return InstanceEntity(kind, index, declaration, parameters, span, self._at.order, waiting)

    def _body(
        self, declaration: ast.Control | ast.Parser, name: str, parameters: tuple[ir.Parameter, ...]
    ) -> int:
        for one in declaration.locals:
            self.local(one)
        setup = self._at.frame.output
        if isinstance(declaration, ast.Control):
            assert declaration.body is not None
            body = (*setup, *self._statements.statements(declaration.body))
            self._at.controls.append(
                ir.Control(
                    name, declaration.name, parameters, body, declaration.annotations, declaration.span
                )
            )
            return len(self._at.controls) - 1
        states = self._parsers.states(declaration.states or (), declaration)
        start = next((number for number, one in enumerate(states) if one.name == "start"), 0)
        marks = declaration.annotations
        self._at.parsers.append(
            ir.Parser(
                name, declaration.name, parameters, tuple(setup), states, start, marks, declaration.span
            )
        )
        return len(self._at.parsers) - 1

    def local(self, node: ast.Local) -> None:
        """Checks a declaration in a control or parser; records its error and continues."""
        try:
            self._locals[type(node)](node)
        except Refused as refused:
            self._at.report(refused)
            self._at.poison(node.name, node.span)

    def _local_action(self, node: ast.Action) -> None:
        entity = ActionEntity(node, self._at.scope, self._at.frame.prefix, node.span, self._at.order)
        self._functions.action(entity)
        self._at.declare(node.name, entity, node.span)

    def _local_function(self, node: ast.Function) -> None:
        self._at.fail(node.span, "functions are declared at the top level")

    # --- packages

    def check_applicable(
        self, parameter: ParameterType, entity: InstanceEntity, bindings: dict[types.TypeVariable, types.Type]
    ) -> None:
        """Checks that an instance fits a package's parameter, and binds its type parameters."""
        wanted = parameter.type
        assert isinstance(wanted, types.Applicable)
        declaration = wanted.declaration
        scope = Scope(wanted.scope)
        for name, type_ in zip(declaration.types, wanted.arguments, strict=True):
            scope.names[name] = TypeEntity(type_, None, 0, declaration.span, 0)
        with self._at.inner(scope):
            parameters = self._type_refs.parameters(declaration.parameters)
        given = entity.declaration
        if isinstance(declaration, ast.Control) != isinstance(given, ast.Control):
            self._at.fail(entity.span, f"'{given.name}' is a {entity.kind}, which '{parameter.name}' is not")
        if len(parameters) != len(entity.parameters):
            counts = f"{len(parameters)} parameters, not {len(entity.parameters)}"
            self._at.fail(entity.span, f"'{wanted.name}' has {counts} as '{given.name}'")
        for want, have in zip(parameters, entity.parameters, strict=True):
            if want.direction != have.direction:
                of = f"parameter '{have.name}' of '{given.name}'"
                said = f"{of} is '{have.direction or 'without direction'}'"
                self._at.fail(
                    have.declaration.span, f"{said}; {wanted.name} wants '{want.direction or 'none'}'"
                )
            if not unify(want.type, have.type, bindings):
                bound = types.describe(substitute(want.type, bindings))
                of = f"parameter '{have.name}' of '{given.name}' is {types.describe(have.type)}"
                self._at.fail(have.declaration.span, f"{of}; {wanted.name} wants {bound}")


def is_object(parameter: ParameterType) -> bool:
    """Returns whether a parameter is an extern object other than packet_in and packet_out."""
    return isinstance(parameter.type, types.ExternType) and parameter.type.name not in PACKETS


def is_complete(declaration: ast.Control | ast.Parser) -> bool:
    if isinstance(declaration, ast.Control):
        return declaration.body is not None
    return declaration.states is not None
