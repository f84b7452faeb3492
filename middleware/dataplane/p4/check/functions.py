"""Functions and actions: their calls, and their bodies, each lowered once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from .. import ast, ir, types
from ..source import Span
from .base import Frame, Place, qualified
from .conversions import Conversions
from .externs import PACKETS, has_function
from .inference import Inference, Signature
from .scope import (
    ActionEntity,
    ExternEntity,
    FunctionEntity,
    ParameterType,
    Scope,
    Typed,
    TypeEntity,
    VariableEntity,
)
from .type_refs import TypeRefs

NO_OBJECTS: Mapping[str, ExternEntity] = {}


class Functions:
    """The part of the checker that calls and lowers functions and actions."""

    def __init__(
        self, at: Place, type_refs: TypeRefs, conversions: Conversions, inference: Inference
    ) -> None:
        self._at = at
        self._type_refs = type_refs
        self._conversions = conversions
        self._inference = inference
        self.active: list[object] = []
        self._lowered: dict[tuple[int, tuple[types.Type, ...]], int] = {}

    def nothing(self, span: Span) -> Typed:
        """Returns the value of a call that gives none."""
        return Typed(types.VOID, ir.Default(types.VOID, span))

    # --- functions

    def function_call(self, node: ast.Call, entity: FunctionEntity, expected: types.Type | None) -> Typed:
        by_prototype = {id(_prototype(one)): one for one in entity.overloads}
        prototypes = [_prototype(one) for one in entity.overloads]
        chosen = self._inference.choose(entity.name, prototypes, node.arguments, node.span)
        declaration = by_prototype[id(chosen)]
        signature = self._inference.signature(chosen, entity.scope)
        if isinstance(declaration, ast.ExternFunction):
            return self._extern_function(node, declaration, signature, expected)
        arguments, result, bound = self._inference.arguments(signature, node, expected)
        if self._at.frame.kind == "parser" and entity.name == "verify":
            self._at.fail(node.span, "'verify' is the core library's")
        index = self.function(declaration, bound, entity.scope)
        passed = without_packets(arguments, signature.parameters)
        represented = self._at.represent(result, node.span)
        return Typed(result, ir.Call(index, passed, represented, node.span))

    def function(self, declaration: ast.Function, bound: tuple[types.Type, ...], scope: Scope) -> int:
        """Returns the lowered function for this binding of its type parameters."""
        key = (id(declaration), bound)
        if key in self._lowered:
            return self._lowered[key]
        if declaration in self.active:
            self._at.fail(declaration.span, f"function '{declaration.name}' calls itself")
        prototype = declaration.prototype
        outer = Scope(scope, self._at.function_orders[id(declaration)] + 1)
        for name, type_ in zip(prototype.types, bound, strict=True):
            outer.names[name] = TypeEntity(type_, None, 0, declaration.span, 0)
        frame = Frame("function", declaration.name, "")
        with self.within(declaration), self._at.body(frame, outer):
            frame.result = (
                types.VOID if prototype.result is None else self._type_refs.type_of(prototype.result)
            )
            result = self._at.represent(frame.result, declaration.span)
            parameters = self.bind(self._type_refs.parameters(prototype.parameters))
            problems = len(self._at.problems)
            body = self._at.statements.statements(declaration.body)
            sound = len(self._at.problems) == problems
            if sound and not isinstance(result, ir.Void) and not always_returns(body):
                self._at.complain(declaration.span, f"function '{declaration.name}' may end without a value")
        self._at.functions.append(ir.Function(declaration.name, parameters, result, body, declaration.span))
        self._lowered[key] = len(self._at.functions) - 1
        return self._lowered[key]

    def bind(
        self, parameters: tuple[ParameterType, ...], objects: Mapping[str, ExternEntity] = NO_OBJECTS
    ) -> tuple[ir.Parameter, ...]:
        """Declares parameters as variables of the present scope, except extern objects, which are known."""
        found = []
        for one in parameters:
            span = one.declaration.span
            if isinstance(one.type, types.ExternType):
                if one.type.name not in PACKETS and one.name not in objects:
                    why = "extern objects can be passed to controls and parsers only"
                    self._at.fail(span, f"parameter '{one.name}' is a {one.type.name}: {why}")
                entity = objects.get(one.name) or ExternEntity(None, one.type, span)
                self._at.declare(one.name, entity, span)
                continue
            index = self._at.new_variable(one.name, one.type, span)
            writable = one.direction in ("out", "inout")
            self._at.declare(one.name, VariableEntity(index, one.type, writable, span), span)
            represented = self._at.represent(one.type, span)
            found.append(
                ir.Parameter(
                    one.name,
                    ir.Direction(one.direction),
                    index,
                    represented,
                    one.declaration.annotations,
                    types.named(one.type),
                )
            )
        return tuple(found)

    def _extern_function(
        self,
        node: ast.Call,
        declaration: ast.ExternFunction,
        signature: Signature,
        expected: types.Type | None,
    ) -> Typed:
        name = declaration.name
        arguments, result, bound = self._inference.arguments(signature, node, expected)
        if not has_function(declaration):
            self._at.fail(node.span, f"this target has no extern function '{name}'")
        if name == "verify":
            if self._at.frame.kind != "parser":
                self._at.fail(node.span, "'verify' can be called in parsers only")
            self._at.emit(ir.Verify(arguments[0].value, arguments[1].value, node.span))
            return self.nothing(node.span)
        if name == "static_assert":
            return self._static_assert(node, arguments)
        return self.extern_call(node, name, None, arguments, result, bound)

    def _static_assert(self, node: ast.Call, arguments: list[ir.Argument]) -> Typed:
        condition = arguments[0].value
        if not isinstance(condition, ir.Literal):
            self._at.fail(node.span, "what static_assert checks must be known when the program is loaded")
        if not condition.value:
            said = arguments[1].value if len(arguments) > 1 else None
            text = f": {said.value}" if isinstance(said, ir.Literal) else ""
            self._at.fail(node.span, f"static_assert failed{text}")
        return self._conversions.literal(True, types.BOOL, node.span)

    def extern_call(
        self,
        node: ast.Call,
        name: str,
        instance: int | None,
        arguments: list[ir.Argument],
        result: types.Type,
        bound: tuple[types.Type, ...],
    ) -> Typed:
        for one in arguments:
            if one.direction is ir.Direction.NONE and not isinstance(one.value, ir.Literal):
                self._at.fail(
                    one.value.span, f"this argument of '{name}' must be known when the program is loaded"
                )
        represented = tuple(self._at.represent(one, node.span) for one in bound)
        result_type = self._at.represent(result, node.span)
        call = ir.ExternCall(name, instance, represented, tuple(arguments), result_type, node.span)
        return Typed(result, call)

    @contextmanager
    def within(self, declaration: object) -> Iterator[None]:
        """Marks the declaration as being lowered, to detect references to itself meanwhile."""
        order = self._at.order
        self.active.append(declaration)
        try:
            yield
        finally:
            self._at.order = order
            self.active.pop()

    # --- actions

    def action_call(self, node: ast.Call, entity: ActionEntity) -> Typed:
        if self._at.frame.kind not in ("control", "action"):
            self._at.fail(node.span, f"an action can't be called in a {self._at.frame.kind}")
        index = self.action(entity)
        signature = Signature(entity.declaration.name, (), entity.parameters, types.VOID, entity.scope)
        arguments, _, _ = self._inference.arguments(signature, node, None)
        passed = without_packets(arguments, entity.parameters)
        self._at.emit(ir.CallAction(index, passed, node.span))
        return self.nothing(node.span)

    def action(self, entity: ActionEntity) -> int:
        """Returns the lowered action."""
        if entity.index >= 0:
            return entity.index
        declaration = entity.declaration
        if declaration in self.active:
            self._at.fail(declaration.span, f"action '{declaration.name}' calls itself")
        name = qualified(entity.prefix, entity.declaration.name, entity.declaration.annotations)
        frame = Frame("action", name, entity.prefix)
        with self.within(declaration), self._at.body(frame, entity.scope):
            entity.parameters = self._type_refs.parameters(declaration.parameters)
            self._check_action_parameters(entity.parameters)
            parameters = self.bind(entity.parameters)
            body = self._at.statements.statements(declaration.body)
        marks = declaration.annotations
        hidden = any(mark.name == "hidden" for mark in marks)
        self._at.actions.append(ir.Action(name, parameters, body, marks, hidden, declaration.span))
        entity.index = len(self._at.actions) - 1
        return entity.index

    def _check_action_parameters(self, parameters: tuple[ParameterType, ...]) -> None:
        data = False
        for one in parameters:
            data = data or not one.direction
            if one.direction and data:
                said = "parameters with a direction come before those that the control plane gives"
                self._at.fail(one.declaration.span, said)
            if not one.direction and not isinstance(
                types.underlying(one.type), ir.Bits | ir.Bool | types.EnumType | ir.ErrorCode
            ):
                of = types.describe(one.type)
                self._at.fail(one.declaration.span, f"a control plane can't give a value of type {of}")

    # --- further up


def _prototype(declaration: ast.Function | ast.ExternFunction) -> ast.Prototype:
    return declaration.prototype


def without_packets(
    arguments: list[ir.Argument], parameters: tuple[ParameterType, ...]
) -> tuple[ir.Argument, ...]:
    """Returns the arguments without packet_in and packet_out."""
    return tuple(
        one
        for one, parameter in zip(arguments, parameters, strict=True)
        if not isinstance(parameter.type, types.ExternType)
    )


def always_returns(body: tuple[ir.Statement, ...]) -> bool:
    """Returns whether every way through the statements ends in a return or exit."""
    for one in body:
        match one:
            case ir.Return() | ir.Exit():
                return True
            case ir.If(yes=yes, no=no) if always_returns(yes) and always_returns(no):
                return True
            case ir.Switch(cases=cases, default=default) | ir.SwitchAction(cases=cases, default=default):
                if all(always_returns(case.body) for case in cases) and always_returns(default):
                    return True
    return False
