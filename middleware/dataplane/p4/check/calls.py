"""Calls: of functions, actions, tables, controls, parsers, extern objects and methods of headers. Pure."""

from __future__ import annotations

from .. import ast, ir, types
from ..source import Span
from .base import Place
from .conversions import Conversions
from .expressions import Expressions
from .externs import PACKETS, has_object, header_like
from .functions import Functions, without_packets
from .inference import Inference, Signature
from .operators import Operators
from .scope import (
    ActionEntity,
    ExternEntity,
    FunctionEntity,
    InstanceEntity,
    PoisonEntity,
    Scope,
    TableEntity,
    Typed,
    TypeEntity,
    ValueSetEntity,
)
from .type_refs import TypeRefs

_SIZES = frozenset({"minSizeInBits", "minSizeInBytes", "maxSizeInBits", "maxSizeInBytes"})


class Calls:
    """The part of the checker for calls."""

    def __init__(
        self,
        at: Place,
        type_refs: TypeRefs,
        conversions: Conversions,
        operators: Operators,
        expressions: Expressions,
        inference: Inference,
        functions: Functions,
    ) -> None:
        self._at = at
        self._type_refs = type_refs
        self._conversions = conversions
        self._operators = operators
        self._expressions = expressions
        self._inference = inference
        self._functions = functions
        at.calls = self

    def call(self, node: ast.Call, expected: types.Type | None) -> Typed:
        """Checks any call. One with an effect but no value is emitted as a statement."""
        target = node.target
        if isinstance(target, ast.Member):
            return self._method(node, target, expected)
        if isinstance(target, ast.TypeExpression):
            self._at.fail(node.span, "an object can be made only in a declaration of its own, not here")
        if not isinstance(target, ast.Name):
            self._at.fail(node.span, "this can't be called")
        entity = self._at.lookup(target.name, target.absolute, target.span)
        if isinstance(entity, FunctionEntity):
            return self._functions.function_call(node, entity, expected)
        if isinstance(entity, ActionEntity):
            return self._functions.action_call(node, entity)
        self._at.fail(target.span, f"'{target.name}' can't be called")

    # --- methods

    def _method(self, node: ast.Call, target: ast.Member, expected: types.Type | None) -> Typed:
        base = target.base
        if isinstance(base, ast.TypeExpression):
            return self._direct_application(node, target, base)
        if isinstance(base, ast.Name):
            entity = self._at.lookup(base.name, base.absolute, base.span)
            if isinstance(entity, TableEntity):
                self._need_apply(target)
                return self.apply_table(node, entity)
            if isinstance(entity, InstanceEntity):
                self._need_apply(target)
                return self._apply_instance(node, entity)
            if isinstance(entity, ExternEntity):
                return self._extern_method(node, target, entity, expected)
            if isinstance(entity, ActionEntity | FunctionEntity | ValueSetEntity | PoisonEntity):
                self._at.fail(target.name_span, f"'{base.name}' has no method '{target.name}'")
        if isinstance(base, ast.This):
            self._expressions.expression(base)
        return self._value_method(node, target)

    def _need_apply(self, target: ast.Member) -> None:
        if target.name != "apply":
            self._at.fail(target.name_span, f"there is no method '{target.name}' here, only 'apply'")

    def _value_method(self, node: ast.Call, target: ast.Member) -> Typed:
        base = self._expressions.expression(target.base)
        name = target.name
        if name in _SIZES and not node.arguments:
            return self._size(base.type, name, node.span)
        if types.is_header(base.type) and name in ("isValid", "setValid", "setInvalid"):
            self._no_arguments(node, name)
            return self._validity(base, name, node.span)
        if types.is_union(base.type) and name == "isValid":
            self._no_arguments(node, name)
            return Typed(types.BOOL, ir.IsValid(base.node, types.BOOL, node.span))
        if isinstance(base.type, types.Stack) and name in ("push_front", "pop_front"):
            return self._shift_stack(base, name, node)
        self._at.fail(target.name_span, f"{types.describe(base.type)} has no method '{name}'")

    def _no_arguments(self, node: ast.Call, name: str) -> None:
        if node.arguments:
            self._at.fail(node.arguments[0].span, f"'{name}' takes no arguments")

    def _validity(self, base: Typed, name: str, span: Span) -> Typed:
        if name == "isValid":
            return Typed(types.BOOL, ir.IsValid(base.node, types.BOOL, span))
        if not base.writable:
            self._at.fail(span, f"'{name}' changes the header, and this one is read-only")
        make = ir.SetValid if name == "setValid" else ir.SetInvalid
        self._at.emit(make(base.node, span))
        return self._functions.nothing(span)

    def _shift_stack(self, base: Typed, name: str, node: ast.Call) -> Typed:
        if len(node.arguments) != 1:
            self._at.fail(node.span, f"'{name}' takes 1 argument, not {len(node.arguments)}")
        if not base.writable:
            self._at.fail(node.span, f"'{name}' changes the stack, and this one is read-only")
        count = self._at.integer(node.arguments[0].value, f"the argument of '{name}'")
        if count < 0:
            self._at.fail(node.arguments[0].span, f"'{name}' by a negative number is not possible")
        make = ir.PushFront if name == "push_front" else ir.PopFront
        self._at.emit(make(base.node, count, node.span))
        return self._functions.nothing(node.span)

    def _size(self, type_: types.Type, name: str, span: Span) -> Typed:
        least, most = sizes(self._at.represent(type_, span))
        bits = least if name.startswith("min") else most
        value = bits if name.endswith("Bits") else (bits + 7) // 8
        return self._conversions.literal(value, types.INT, span)

    def _direct_application(self, node: ast.Call, target: ast.Member, base: ast.TypeExpression) -> Typed:
        """Checks `C.apply(...)`: an anonymous instance, named like its type."""
        type_ = self._type_refs.type_of(base.type)
        if not isinstance(type_, types.Applicable):
            self._at.fail(target.name_span, f"{types.describe(type_)} has no method '{target.name}'")
        self._need_apply(target)
        entity = self._at.instances.instance(type_, (), type_.name, (), node.span)
        return self._apply_instance(node, entity)

    def _apply_instance(self, node: ast.Call, entity: InstanceEntity) -> Typed:
        if self._at.frame.kind != entity.kind:
            self._at.fail(node.span, f"a {entity.kind} can't be applied in a {self._at.frame.kind}")
        signature = Signature(entity.declaration.name, (), entity.parameters, types.VOID, self._at.top)
        arguments, _, _ = self._inference.arguments(signature, node, None)
        passed = without_packets(arguments, entity.parameters)
        if entity.waiting is not None:
            entity = entity.waiting(self._objects(node, entity))
        if entity.kind == "control":
            self._at.emit(ir.ApplyControl(entity.index, passed, node.span))
        else:
            self._at.emit(ir.ApplyParser(entity.index, passed, node.span))
        return self._functions.nothing(node.span)

    def _objects(self, node: ast.Call, entity: InstanceEntity) -> dict[str, ExternEntity]:
        """Returns the extern objects among the arguments, by parameter."""
        found = {}
        declared = [one.declaration for one in entity.parameters]
        paired = self._inference.pair(entity.declaration.name, declared, node.arguments, node.span)
        for parameter, argument in zip(entity.parameters, paired, strict=True):
            if argument is not None and isinstance(argument.value, ast.Name):
                name = argument.value
                given = self._at.lookup(name.name, name.absolute, name.span)
                if isinstance(given, ExternEntity) and given.type.name not in PACKETS:
                    found[parameter.name] = given
        return found

    # --- tables

    def apply_table(self, node: ast.Call, entity: TableEntity) -> Typed:
        """Checks `t.apply()`."""
        if self._at.frame.kind != "control":
            self._at.fail(node.span, f"a table can't be applied in {_article(self._at.frame.kind)}")
        self._no_arguments(node, "apply")
        return Typed(types.VOID, ir.TableApply(entity.index, types.BOOL, node.span))

    def table_result(self, node: ast.Member, call: ast.Call) -> Typed:
        """Checks `t.apply().hit` and `t.apply().miss`."""
        applied = self.call(call, None)
        if not isinstance(applied.node, ir.TableApply):
            self._at.fail(node.name_span, f"'{node.name}' is a result of applying tables only")
        if node.name == "action_run":
            self._at.fail(node.span, "'action_run' can be used only as what a switch statement is about")
        hit = Typed(types.BOOL, applied.node)
        return hit if node.name == "hit" else self._operators.negated(hit, node.span)

    # --- extern objects

    def _extern_method(
        self, node: ast.Call, target: ast.Member, entity: ExternEntity, expected: types.Type | None
    ) -> Typed:
        declaration = entity.type.declaration
        if not has_object(declaration):
            self._at.fail(node.span, f"this target has no extern '{declaration.name}'")
        overloads = [one for one in declaration.methods if one.name == target.name and one.result is not None]
        if not overloads:
            hint = self._at.suggest(target.name, [one.name for one in declaration.methods])
            self._at.fail(target.name_span, f"{declaration.name} has no method '{target.name}'{hint}")
        chosen = self._inference.choose(target.name, overloads, node.arguments, node.span)
        scope = Scope(entity.type.scope)
        for name, type_ in zip(declaration.types, entity.type.arguments, strict=True):
            scope.names[name] = TypeEntity(type_, None, 0, declaration.span, 0)
        signature = self._inference.signature(chosen, scope)
        if declaration.name == "packet_in":
            return self._packet_in(node, target.name, signature, expected)
        arguments, result, bound = self._inference.arguments(signature, node, expected)
        if declaration.name == "packet_out":
            return self._emit(node, arguments[0].value, bound[0])
        name = f"{declaration.name}.{target.name}"
        return self._functions.extern_call(node, name, entity.index, arguments, result, bound)

    def _packet_in(
        self, node: ast.Call, name: str, signature: Signature, expected: types.Type | None
    ) -> Typed:
        if self._at.frame.kind not in ("parser", "function"):
            self._at.fail(node.span, "packets are read in parsers only")
        skipped = name == "extract" and isinstance(node.arguments[0].value, ast.DontCare)
        arguments, result, bound = self._inference.arguments(signature, node, expected)
        span = node.span
        if name == "length":
            return Typed(result, ir.PacketLength(types.BIT32, span))
        if name == "advance":
            self._at.emit(ir.Skip(arguments[0].value, span))
            return self._functions.nothing(span)
        represented = self._at.represent(bound[0], span)
        least, most = sizes(represented)
        if name == "lookahead":
            if least != most or isinstance(types.underlying(bound[0]), types.Stack):
                self._at.fail(span, f"lookahead needs a type of fixed size, not {types.describe(bound[0])}")
            return Typed(result, ir.Lookahead(represented, span))
        return self._extract(node, bound[0], arguments, skipped, least != most)

    def _extract(
        self, node: ast.Call, type_: types.Type, arguments: list[ir.Argument], skipped: bool, varying: bool
    ) -> Typed:
        span = node.span
        if not types.is_header(type_):
            self._at.fail(node.arguments[0].span, f"extract needs a header, not {types.describe(type_)}")
        if varying != (len(arguments) == 2):
            of = types.describe(type_)
            has = "has a varbit field, whose size must be given" if varying else "has no varbit field"
            self._at.fail(span, f"header '{of}' {has}")
        if not skipped:
            size = arguments[1].value if len(arguments) == 2 else None
            self._at.emit(ir.Extract(arguments[0].value, size, span))
            return self._functions.nothing(span)
        if varying:
            self._at.fail(span, "a header with a varbit field can't be skipped")
        width = ir.width_of(self._at.represent(type_, span))
        self._at.emit(ir.Skip(ir.Literal(width, types.BIT32, span), span))
        return self._functions.nothing(span)

    def _emit(self, node: ast.Call, value: ir.Expression, type_: types.Type) -> Typed:
        if self._at.frame.kind != "control":
            self._at.fail(node.span, "packets are written in controls only")
        if not header_like(self._at.represent(type_, node.span)):
            self._at.fail(node.arguments[0].span, f"emit needs headers, not {types.describe(type_)}")
        self._at.emit(ir.Emit(value, node.span))
        return self._functions.nothing(node.span)

    def argument_value(self, node: ast.Expression, wanted: types.Type) -> Typed:
        """Returns an argument; extern objects are passed by name."""
        if isinstance(wanted, types.ExternType):
            entity = (
                self._at.lookup(node.name, node.absolute, node.span) if isinstance(node, ast.Name) else None
            )
            if not isinstance(entity, ExternEntity) or entity.type != wanted:
                self._at.fail(node.span, f"an extern object of type {types.describe(wanted)} is wanted here")
            return Typed(wanted, ir.Default(types.VOID, node.span))
        return self._inference.argument_value(node, wanted)

    # --- further up


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def sizes(type_: ir.Type) -> tuple[int, int]:
    """Returns the fewest and the most bits of a value on the wire."""
    match type_:
        case ir.Varbit(width=width):
            return 0, width
        case ir.StructType(fields=fields) | ir.HeaderType(fields=fields):
            both = [sizes(field.type) for field in fields]
            return sum(one[0] for one in both), sum(one[1] for one in both)
        case ir.UnionType(fields=fields):
            both = [sizes(field.type) for field in fields]
            return min((one[0] for one in both), default=0), max((one[1] for one in both), default=0)
        case ir.StackType(element=element, size=size):
            return sizes(element)[0] * size, sizes(element)[1] * size
    width = ir.width_of(type_)
    return width, width
