"""Assignment of arguments to parameters, and inference of type parameters. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .. import ast, ir, types
from ..source import Span
from .base import Place, Refused
from .conversions import Conversions, same
from .expressions import Expressions
from .scope import ParameterType, Scope, Typed
from .type_refs import TypeRefs

Bindings = dict[types.TypeVariable, types.Type]


class Signature:
    """A callable's parameters and result, its type parameters still variables."""

    def __init__(
        self,
        name: str,
        variables: tuple[types.TypeVariable, ...],
        parameters: tuple[ParameterType, ...],
        result: types.Type,
        scope: Scope,
    ) -> None:
        self.name = name
        self.variables = variables
        self.parameters = parameters
        self.result = result
        self.scope = scope


class Inference:
    """The part of the checker that matches arguments with parameters."""

    def __init__(
        self, at: Place, type_refs: TypeRefs, conversions: Conversions, expressions: Expressions
    ) -> None:
        self._at = at
        self._type_refs = type_refs
        self._conversions = conversions
        self._expressions = expressions

    def signature(self, prototype: ast.Prototype, scope: Scope) -> Signature:
        """Returns the types of a function, extern function or method, resolved inside `scope`."""
        with self._at.inner(scope) as own:
            variables = self._type_refs.type_variables(prototype.types, prototype.span)
            parameters = self._type_refs.parameters(prototype.parameters)
            result = types.VOID if prototype.result is None else self._type_refs.type_of(prototype.result)
            return Signature(prototype.name, variables, parameters, result, own)

    def choose(
        self, name: str, overloads: Sequence[ast.Prototype], arguments: tuple[ast.Argument, ...], span: Span
    ) -> ast.Prototype:
        """Returns the overload that takes these arguments, judged by their number and names."""
        fitting = [one for one in overloads if accepts(one.parameters, arguments)]
        if not fitting:
            if len(overloads) == 1:
                self.pair(name, overloads[0].parameters, arguments, span)
            self._at.fail(span, f"no '{name}' takes these {len(arguments)} arguments")
        if len(fitting) > 1:
            self._at.fail(span, f"several declarations of '{name}' fit these arguments")
        return fitting[0]

    def pair(
        self,
        name: str,
        parameters: Sequence[ast.Parameter],
        arguments: tuple[ast.Argument, ...],
        span: Span,
    ) -> list[ast.Argument | None]:
        """Returns one argument per parameter; None for a default."""
        if len(arguments) > len(parameters):
            count = len(parameters)
            takes = f"{count} argument{'' if count == 1 else 's'}"
            self._at.fail(span, f"'{name}' takes {takes}, not {len(arguments)}")
        found: list[ast.Argument | None] = [None] * len(parameters)
        places = {one.name: number for number, one in enumerate(parameters)}
        if any(one.name is None for one in arguments) and any(one.name for one in arguments):
            self._at.fail(span, "either all arguments have names or none")
        for number, one in enumerate(arguments):
            place = number if one.name is None else places.get(one.name, -1)
            if place < 0:
                hint = self._at.suggest(one.name or "", places)
                self._at.fail(one.span, f"'{name}' has no parameter '{one.name}'{hint}")
            if found[place] is not None:
                self._at.fail(one.span, f"argument '{one.name}' is given twice")
            found[place] = one
        for argument, parameter in zip(found, parameters, strict=True):
            if argument is None and not _may_be_left_out(parameter):
                self._at.fail(span, f"argument '{parameter.name}' of '{name}' is missing")
        return found

    def arguments(
        self,
        signature: Signature,
        call: ast.Call,
        expected: types.Type | None,
    ) -> tuple[list[ir.Argument], types.Type, tuple[types.Type, ...]]:
        """Returns the converted arguments, the result type, and the inferred type arguments."""
        declared = [one.declaration for one in signature.parameters]
        paired = self.pair(signature.name, declared, call.arguments, call.span)
        bindings = self._explicit_types(signature, call)
        typed = self._typed_arguments(signature, paired, bindings)
        if expected is not None and any(one not in bindings for one in signature.variables):
            unify(signature.result, expected, bindings)
        for variable in signature.variables:
            if variable not in bindings:
                what = f"type parameter '{variable.name}' of '{signature.name}'"
                self._at.fail(call.span, f"{what} can't be found out from the arguments; write it as <...>")
        passed = [
            self._passed(parameter, argument, one, bindings, signature, call.span)
            for parameter, argument, one in zip(signature.parameters, paired, typed, strict=True)
        ]
        bound = tuple(bindings[one] for one in signature.variables)
        return passed, substitute(signature.result, bindings), bound

    def _explicit_types(self, signature: Signature, call: ast.Call) -> Bindings:
        if not call.types:
            return {}
        if len(call.types) != len(signature.variables):
            wants = f"{len(signature.variables)} type argument{'' if len(signature.variables) == 1 else 's'}"
            self._at.fail(call.span, f"'{signature.name}' takes {wants}, not {len(call.types)}")
        bindings: Bindings = {}
        for variable, written in zip(signature.variables, call.types, strict=True):
            if not (isinstance(written, ast.PlainType) and written.kind == "_"):
                bindings[variable] = self._type_refs.element_type(written)
        return bindings

    def _typed_arguments(
        self, signature: Signature, paired: list[ast.Argument | None], bindings: Bindings
    ) -> list[Typed | None]:
        """Returns each argument's expression with its type; binds type parameters on the way."""
        found: list[Typed | None] = []
        for parameter, argument in zip(signature.parameters, paired, strict=True):
            if argument is None or isinstance(argument.value, ast.DontCare):
                found.append(None)
                continue
            wanted = substitute(parameter.type, bindings)
            typed = self._at.calls.argument_value(argument.value, wanted)
            found.append(typed)
            if isinstance(typed.type, types.Infinite) or unify(parameter.type, typed.type, bindings):
                continue
            if open_variables(wanted):
                self._mismatch(argument.value.span, wanted, typed.type)
        for parameter, one in zip(signature.parameters, found, strict=True):
            if one is not None and isinstance(one.type, types.Infinite):
                variable = parameter.type
                if isinstance(variable, types.TypeVariable) and variable in signature.variables:
                    self._bind_number(variable, bindings, one)
        return found

    def _bind_number(self, variable: types.TypeVariable, bindings: Bindings, one: Typed) -> None:
        """Refuses an `int` for a type parameter that nothing else has bound: it has no width."""
        if variable not in bindings:
            self._at.fail(
                one.span, "the width of this number isn't known here; write it as 32w... or cast it"
            )

    def argument_value(self, node: ast.Expression, wanted: types.Type) -> Typed:
        """Returns an argument as an expression."""
        return self._expressions.expression(node, None if open_variables(wanted) else wanted)

    def _mismatch(self, span: Span, wanted: types.Type, given: types.Type) -> None:
        self._at.fail(span, f"{types.describe(wanted)} is wanted here, not {types.describe(given)}")

    def _passed(
        self,
        parameter: ParameterType,
        argument: ast.Argument | None,
        typed: Typed | None,
        bindings: Bindings,
        signature: Signature,
        span: Span,
    ) -> ir.Argument:
        type_ = substitute(parameter.type, bindings)
        direction = ir.Direction(parameter.direction)
        if typed is None:
            return ir.Argument(direction, self._left_out(parameter, argument, type_, signature, span))
        if direction in (ir.Direction.OUT, ir.Direction.INOUT):
            self.check_out(typed, type_, parameter)
            return ir.Argument(direction, typed.node)
        value = self._conversions.convert(typed, type_, typed.span)
        self.check_sized(value, signature.name)
        return ir.Argument(direction, value.node)

    def check_out(self, typed: Typed, wanted: types.Type, parameter: ParameterType) -> None:
        """Checks that an argument of an out or inout parameter is assignable and has exactly its type."""
        if not typed.writable:
            why = "this is read-only" if typed.place else "this is no variable, field, element or slice"
            what = f"parameter '{parameter.name}' is {parameter.direction}"
            self._at.fail(typed.span, f"{what}, so that something assignable must stand here; {why}")
        if not same(typed.type, wanted):
            self._mismatch(typed.span, wanted, typed.type)

    def check_sized(self, typed: Typed, of: str) -> None:
        """Refuses a list whose numbers have no width."""
        if isinstance(typed.type, types.Infinite):
            return
        if _unsized(typed.type):
            self._at.fail(typed.span, f"'{of}' needs numbers with a width in this list, such as 16w1")

    def _left_out(
        self,
        parameter: ParameterType,
        argument: ast.Argument | None,
        type_: types.Type,
        signature: Signature,
        span: Span,
    ) -> ir.Expression:
        """Returns the default value, or for `_` of an out parameter a variable that nobody reads."""
        if argument is not None:
            if parameter.direction != "out":
                self._at.fail(
                    argument.span, f"'_' may stand for out arguments only; '{parameter.name}' is none"
                )
            index = self._at.new_variable("_", type_, argument.span)
            return ir.Variable(index, self._at.represent(type_, argument.span), argument.span)
        if parameter.default is None:
            raise Refused
        with self._at.inner(signature.scope):
            return self._expressions.value(parameter.default, type_).node


def accepts(parameters: Sequence[ast.Parameter], arguments: tuple[ast.Argument, ...]) -> bool:
    """Returns whether the number and names of the arguments fit."""
    if len(arguments) > len(parameters):
        return False
    names = {one.name for one in arguments if one.name is not None}
    if names:
        known = {one.name for one in parameters}
        missing = [one for one in parameters if one.name not in names]
        return names <= known and all(_may_be_left_out(one) for one in missing)
    return all(_may_be_left_out(one) for one in parameters[len(arguments) :])


def _may_be_left_out(parameter: ast.Parameter) -> bool:
    return parameter.default is not None or any(mark.name == "optional" for mark in parameter.annotations)


def substitute(type_: types.Type, bindings: Mapping[types.TypeVariable, types.Type]) -> types.Type:
    """Returns the type with its variables replaced."""
    if isinstance(type_, types.TypeVariable):
        return bindings.get(type_, type_)
    if isinstance(type_, types.Tuple):
        return types.Tuple(tuple(substitute(one, bindings) for one in type_.elements))
    if isinstance(type_, types.ListType):
        return types.ListType(substitute(type_.element, bindings))
    if isinstance(type_, types.ExternType) and type_.arguments:
        arguments = tuple(substitute(one, bindings) for one in type_.arguments)
        return types.ExternType(type_.declaration, arguments, type_.scope)
    if isinstance(type_, types.Applicable) and type_.arguments:
        arguments = tuple(substitute(one, bindings) for one in type_.arguments)
        return types.Applicable(type_.declaration, arguments, type_.scope)
    if isinstance(type_, types.Record) and callable(type_.generic):
        found = type_.generic(tuple(substitute(one, bindings) for one in type_.arguments), type_.span)
        assert isinstance(found, types.Record)
        return found
    return type_


def open_variables(type_: types.Type) -> bool:
    """Returns whether the type holds variables."""
    match type_:
        case types.TypeVariable():
            return True
        case types.Tuple(elements=elements):
            return any(map(open_variables, elements))
        case types.ListType(element=element):
            return open_variables(element)
        case types.ExternType() | types.Record() | types.Applicable():
            return any(map(open_variables, type_.arguments))
        case types.Stack(element=element):
            return open_variables(element)
    return False


def unify(wanted: types.Type, given: types.Type, bindings: Bindings) -> bool:
    """Binds the variables in `wanted` so that it becomes `given`; False if that can't be."""
    if isinstance(wanted, types.TypeVariable):
        if wanted in bindings:
            return same(bindings[wanted], given)
        if wanted is not given:
            bindings[wanted] = given
        return True
    if isinstance(wanted, types.Tuple) and isinstance(given, types.Tuple):
        return len(wanted.elements) == len(given.elements) and all(
            unify(one, other, bindings) for one, other in zip(wanted.elements, given.elements, strict=True)
        )
    if isinstance(wanted, types.ListType) and isinstance(given, types.ListType):
        return unify(wanted.element, given.element, bindings)
    if isinstance(wanted, types.Stack) and isinstance(given, types.Stack):
        return wanted.size == given.size and unify(wanted.element, given.element, bindings)
    if isinstance(wanted, types.ExternType) and isinstance(given, types.ExternType):
        return wanted.declaration is given.declaration and _unify_all(
            wanted.arguments, given.arguments, bindings
        )
    if isinstance(wanted, types.Record) and isinstance(given, types.Record) and wanted.generic is not None:
        return wanted.generic is given.generic and _unify_all(wanted.arguments, given.arguments, bindings)
    return same(wanted, given)


def _unify_all(wanted: tuple[types.Type, ...], given: tuple[types.Type, ...], bindings: Bindings) -> bool:
    return len(wanted) == len(given) and all(
        unify(one, other, bindings) for one, other in zip(wanted, given, strict=True)
    )


def _unsized(type_: types.Type) -> bool:
    """Returns whether numbers without a width are in a list."""
    if isinstance(type_, types.Tuple):
        return any(isinstance(one, types.Infinite) or _unsized(one) for one in type_.elements)
    if isinstance(type_, types.Record) and not type_.name:
        return any(isinstance(one.type, types.Infinite) or _unsized(one.type) for one in type_.fields)
    return False
