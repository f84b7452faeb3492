"""A whole program: declarations, then `main` and everything it uses, then the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .. import ast, ir, types
from ..ir.annotations import Annotation, Scalar
from ..ir.externs import METHODS
from ..ir.prune import prune
from ..ir.walk import bodies
from ..parser.annotations import value_of
from ..source import NOWHERE, Diagnostic, Span
from .base import Place, Refused
from .calls import Calls
from .conversions import Conversions
from .declarations import CORE_ERRORS, Declarations
from .entries import Entries
from .expressions import Expressions
from .functions import Functions
from .inference import Inference
from .instances import Constructed, Instances, is_object
from .matches import Matches
from .operators import Operators
from .parsers import Parsers
from .scope import (
    ActionEntity,
    ConstantEntity,
    ExternEntity,
    FunctionEntity,
    InstanceEntity,
    ParameterType,
    Scope,
    TypeEntity,
)
from .statements import Statements
from .tables import Tables
from .type_refs import TypeRefs
from .v1model import check_v1model

OLDEST, NEWEST = 20180101, 20200408  # V1MODEL_VERSION
Checked = tuple[ir.Program | None, list[Diagnostic], list[Diagnostic]]


def check(
    declarations: Sequence[ast.Declaration], name: str, lines: Mapping[str, tuple[str, ...]]
) -> Checked:
    """Returns the program, or None; its errors; its warnings."""
    checker = Checker()
    checker.check(declarations)
    program = checker.program(name, lines)
    return (None if checker.problems else program), checker.problems, checker.warnings


class Checker:
    """The whole checker."""

    def __init__(self) -> None:
        at = self._at = Place()
        self._type_refs = TypeRefs(at)
        self._conversions = Conversions(at)
        operators = Operators(at, self._conversions)
        self._expressions = Expressions(at, self._type_refs, self._conversions, operators)
        self._inference = Inference(at, self._type_refs, self._conversions, self._expressions)
        self._functions = Functions(at, self._type_refs, self._conversions, self._inference)
        calls = Calls(
            at,
            self._type_refs,
            self._conversions,
            operators,
            self._expressions,
            self._inference,
            self._functions,
        )
        statements = Statements(at, self._type_refs, self._conversions, operators, self._expressions, calls)
        matches = Matches(at, self._conversions, self._expressions)
        entries = Entries(at, self._conversions, self._expressions, self._inference, self._functions, matches)
        tables = Tables(at, self._type_refs, self._expressions, entries)
        parsers = Parsers(at, self._type_refs, self._expressions, statements, matches, tables)
        self._instances = Instances(
            at, self._type_refs, self._inference, self._functions, statements, tables, parsers
        )
        self._declarations = Declarations(
            at,
            self._type_refs,
            self._conversions,
            self._expressions,
            self._inference,
            statements,
            self._instances,
        )

    def check(self, declarations: Sequence[ast.Declaration]) -> None:
        """Checks all declarations, one after the other."""
        for one in declarations:
            self._declarations.declaration(one)

    @property
    def problems(self) -> list[Diagnostic]:
        return self._at.problems

    @property
    def warnings(self) -> list[Diagnostic]:
        return self._at.warnings

    def program(self, name: str, lines: Mapping[str, tuple[str, ...]]) -> ir.Program | None:
        """Instantiates and lowers `main`, and checks everything else."""
        self._at.order += 1
        pipeline: ir.Pipeline | None = None
        marks: tuple[Annotation, ...] = ()
        try:
            pipeline, marks = self._main(bool(self._at.problems))
        except Refused as refused:
            self._at.report(refused)
        used = self._lengths()
        self._check_the_rest()
        self._truncate(used)
        if pipeline is None:
            return None
        self._check_version()
        if self._at.problems:
            return None
        found = prune(self._program(name, pipeline, marks, lines))
        self._check_names(found)
        check_v1model(found, self._at.complain, self._at.warn)
        check_supported(found, self._at.complain)
        return found

    def _check_names(self, program: ir.Program) -> None:
        """Checks that each control-plane name denotes one object."""
        self._check_unique("action", [(one.name, one.hidden, one.span) for one in program.actions])
        self._check_unique("table", [(one.name, one.hidden, one.span) for one in program.tables])
        self._check_unique("value set", [(one.name, one.hidden, one.span) for one in program.value_sets])
        for kind in sorted({one.kind for one in program.externs}):
            own = [(one.name, one.hidden, one.span) for one in program.externs if one.kind == kind]
            self._check_unique(kind, own)

    def _check_unique(self, noun: str, things: list[tuple[str, bool, Span]]) -> None:
        first: dict[str, Span] = {}
        for name, hidden, span in things:
            already = first.get(name)
            first.setdefault(name, span)
            if already is not None and not hidden:
                other = f"the one at {already}"
                if already == span:
                    other = "that of another instance of what declares it: give each a @name of its own"
                self._at.complain(span, f"{noun} '{name}' has the same name for control planes as {other}")

    def _check_version(self) -> None:
        entity = self._at.top.names.get("__v1model_version")
        if isinstance(entity, ConstantEntity) and isinstance(entity.value.node, ir.Literal):
            version = entity.value.node.value
            if not OLDEST <= int(version) <= NEWEST:
                said = f"this target has v1model {OLDEST} to {NEWEST}, not {version}"
                self._at.complain(NOWHERE, f"V1MODEL_VERSION: {said}")

    # --- main

    def _main(self, excused: bool) -> tuple[ir.Pipeline | None, tuple[Annotation, ...]]:
        if not self._declarations.mains:
            if excused:
                return None, ()
            self._at.fail(NOWHERE, "the program has no 'main': V1Switch(...) main;")
        node = self._declarations.mains[0]
        if len(self._declarations.mains) > 1:
            self._at.fail(self._declarations.mains[1].span, f"'main' is declared already, at {node.span}")
        package, bindings = self._package_of(node)
        declaration = package.declaration
        if declaration.name != "V1Switch" or not declaration.span.file.startswith("<"):
            said = f"this target runs v1model's V1Switch, not package '{declaration.name}'"
            self._at.fail(node.span, said)
        scope = Scope(package.scope)
        for parameter, type_ in zip(declaration.types, package.arguments, strict=True):
            scope.names[parameter] = TypeEntity(type_, None, 0, declaration.span, 0)
        with self._at.inner(scope):
            parameters = self._type_refs.parameters(declaration.parameters)
        paired = self._inference.pair("V1Switch", declaration.parameters, node.arguments, node.span)
        made = []
        for wanted, argument in zip(parameters, paired, strict=True):
            assert argument is not None
            entity = self._part(argument.value)
            self._instances.check_applicable(wanted, entity, bindings)
            made.append(entity.index)
        return ir.Pipeline(*made), node.annotations

    def _package_of(
        self, node: ast.Instantiation
    ) -> tuple[types.PackageType, dict[types.TypeVariable, types.Type]]:
        """Returns the package with type arguments, or with variables in their places."""
        if isinstance(node.type, ast.Specialized):
            found = self._type_refs.type_of(node.type)
        else:
            assert isinstance(node.type, ast.TypeName)
            entity = self._at.lookup(node.type.name, node.type.absolute, node.type.span)
            assert isinstance(entity, TypeEntity)
            if entity.type is not None:
                found = entity.type
            else:
                assert entity.generic is not None
                blanks = tuple(types.TypeVariable("_") for _ in range(entity.parameters))
                found = entity.generic(blanks, node.span)
        assert isinstance(found, types.PackageType)
        return found, {}

    def _part(self, node: ast.Expression) -> InstanceEntity:
        """Checks an argument of main such as `MyParser()`."""
        if not isinstance(node, ast.Call) or not isinstance(node.target, ast.TypeExpression):
            self._at.fail(node.span, "a control or parser is wanted here, as Name()")
        type_ = self._type_refs.type_of(node.target.type)
        if not isinstance(type_, types.Applicable):
            self._at.fail(node.span, f"{types.describe(type_)} is no control or parser")
        return self._instances.instance(type_, node.arguments, type_.name, (), node.span)

    # --- what main does not reach

    def _check_the_rest(self) -> None:
        """Checks bodies that were never instantiated or called, and discards the result."""
        reached = {id(one) for one in self._instances.reached}
        for type_ in self._declarations.applicables:
            if id(type_.declaration) not in reached:
                self._attempt(lambda type_=type_: self._check_applicable_alone(type_))
        for entity in list(self._at.top.names.values()):
            if isinstance(entity, ActionEntity) and entity.index < 0:
                self._attempt(lambda entity=entity: self._functions.action(entity))
            elif isinstance(entity, FunctionEntity):
                for one in entity.overloads:
                    if isinstance(one, ast.Function):
                        self._attempt(lambda one=one, entity=entity: self._check_function(one, entity))

    def _attempt(self, step: object) -> None:
        try:
            step()  # type: ignore[operator]
        except Refused as refused:
            self._at.report(refused)

    def _check_function(self, node: ast.Function, entity: FunctionEntity) -> None:
        if not node.prototype.types:
            self._functions.function(node, (), entity.scope)

    def _check_applicable_alone(self, type_: types.Applicable) -> None:
        with self._at.inner(type_.scope):
            parameters = self._type_refs.parameters(type_.declaration.constructor)
        values = {one: self._placeholder(one, type_.declaration.span) for one in parameters}
        with self._at.inner(type_.scope):
            applied = self._type_refs.parameters(type_.declaration.parameters)
        objects = {one.name: self._any_object(one) for one in applied if is_object(one)}
        self._instances.lower(type_, values, type_.name, type_.declaration.span, objects)

    def _any_object(self, parameter: ParameterType) -> ExternEntity:
        assert isinstance(parameter.type, types.ExternType)
        return ExternEntity(0, parameter.type, parameter.declaration.span)

    def _placeholder(self, parameter: ParameterType, span: Span) -> Constructed:
        """Returns a value of the type of a constructor's parameter, for a body without instances."""
        if isinstance(parameter.type, types.ExternType):
            return ExternEntity(0, parameter.type, span)
        if isinstance(parameter.type, types.Applicable):
            return self._stand_in(parameter.type, span)
        if isinstance(parameter.type, ir.String):
            return self._conversions.literal("", parameter.type, span)
        if isinstance(types.underlying(parameter.type), ir.Bits | types.Infinite):
            return self._conversions.literal(1, parameter.type, span)
        return self._expressions.default(parameter.type, span)

    def _stand_in(self, type_: types.Applicable, span: Span) -> InstanceEntity:
        """Returns an instance of a control or parser type, for its parameters alone."""
        declaration = type_.declaration
        scope = Scope(type_.scope)
        for name, bound in zip(declaration.types, type_.arguments, strict=True):
            scope.names[name] = TypeEntity(bound, None, 0, span, 0)
        with self._at.inner(scope):
            parameters = self._type_refs.parameters(declaration.parameters)
        kind = "control" if isinstance(declaration, ast.Control) else "parser"
        return InstanceEntity(kind, 0, declaration, parameters, span)

    def _lengths(self) -> list[tuple[list[object], int]]:
        lists: tuple[list[object], ...] = (
            self._at.variables,  # type: ignore[assignment]
            self._at.externs,
            self._at.value_sets,
            self._at.functions,
            self._at.actions,
            self._at.tables,
            self._at.controls,
            self._at.parsers,
        )
        return [(one, len(one)) for one in lists]

    def _truncate(self, lengths: list[tuple[list[object], int]]) -> None:
        for one, length in lengths:
            del one[length:]

    # --- the result

    def _program(
        self,
        name: str,
        pipeline: ir.Pipeline,
        marks: tuple[Annotation, ...],
        lines: Mapping[str, tuple[str, ...]],
    ) -> ir.Program:
        represented = [types.represent(one) for one in self._declarations.records if _has_values(one)]
        metadata = self._at.parsers[pipeline.parser].parameters[1].type
        version = self._at.top.names.get("__v1model_version")
        number = version.value.node if isinstance(version, ConstantEntity) else None
        return ir.Program(
            name=name,
            errors=(*CORE_ERRORS, *(name for name in self._at.errors if name not in CORE_ERRORS)),
            headers=tuple(one for one in represented if isinstance(one, ir.HeaderType)),
            structs=tuple(one for one in represented if isinstance(one, ir.StructType)),
            unions=tuple(one for one in represented if isinstance(one, ir.UnionType)),
            enums=tuple(_enum_info(one) for one in self._declarations.enums),
            new_types=tuple(
                ir.NewType(one.name, types.represent(one.original), one.written, one.annotations)
                for one in self._declarations.new_types
            ),
            variables=tuple(self._at.variables),
            externs=tuple(self._at.externs),
            value_sets=tuple(self._at.value_sets),
            functions=tuple(self._at.functions),
            actions=tuple(self._at.actions),
            tables=tuple(self._at.tables),
            controls=tuple(self._at.controls),
            parsers=tuple(self._at.parsers),
            pipeline=pipeline,
            field_lists=self._field_lists(metadata),
            v1model_version=int(number.value) if isinstance(number, ir.Literal) else 0,
            annotations=marks,
            lines=dict(lines),
        )

    # --- field lists

    def _field_lists(self, metadata: ir.Type) -> dict[int, tuple[tuple[str, ...], ...]]:
        """Returns the fields under `@field_list(n)`, by n. Reports an argument that is not a number: a list
        would lack fields, and packets would silently lose values.
        """
        found: dict[int, list[tuple[str, ...]]] = {}
        self._collect_lists(metadata, (), self._declarations.known_numbers(), found)
        return {number: tuple(paths) for number, paths in found.items()}

    def _collect_lists(
        self,
        type_: ir.Type,
        path: tuple[str, ...],
        known: Mapping[str, Scalar],
        found: dict[int, list[tuple[str, ...]]],
    ) -> None:
        if not isinstance(type_, ir.StructType):
            return
        for field in type_.fields:
            here = (*path, field.name)
            for mark in field.annotations:
                if mark.name == "field_list":
                    for number in self._numbers(mark, known):
                        found.setdefault(number, []).append(here)
            self._collect_lists(field.type, here, known, found)

    def _numbers(self, mark: Annotation, known: Mapping[str, Scalar]) -> list[int]:
        found = []
        for argument in mark.arguments:
            value = value_of(argument, known) if isinstance(argument, str) else argument
            if isinstance(value, int) and not isinstance(value, bool):
                found.append(value)
            else:
                self._at.complain(mark.span, f"@field_list({argument}): a number or a constant is expected")
        if not mark.arguments:
            self._at.complain(mark.span, "@field_list needs the number of a list, as in @field_list(1)")
        return found


def _has_values(record: types.Record) -> bool:
    try:
        types.represent(record)
    except KeyError:
        return False
    return True


def _enum_info(type_: types.EnumType | types.SerialEnum) -> ir.EnumInfo:
    if isinstance(type_, types.SerialEnum):
        members, values = tuple(type_.members), tuple(type_.members.values())
        return ir.EnumInfo(type_.name, members, values, type_.bits, type_.annotations)
    members = type_.represented.members
    return ir.EnumInfo(type_.name, members, tuple(range(len(members))), None, type_.annotations)


# --- what the target cannot run: looked at when everything is lowered, so that what loads also runs

Complain = Callable[[Span, str], None]
FIELD_LISTS = {"clone3": "clone", "resubmit": "resubmit", "recirculate": "recirculate"}


def check_supported(program: ir.Program, complain: Complain) -> None:
    """Reports program elements that the target does not support."""
    for node in bodies(program):
        if isinstance(node, ir.ExternCall):
            _call(node, complain)
    for instance in program.externs:
        _instance(instance, complain)
    for table in program.tables:
        for key in table.keys:
            if key.match_kind is ir.MatchKind.RANGE and isinstance(key.type, ir.Bits) and key.type.signed:
                complain(key.span, "a range key is unsigned")


def _call(call: ir.ExternCall, complain: Complain) -> None:
    if call.name not in METHODS:
        complain(call.span, f"extern {call.name} is not supported by this target")
    elif call.name in FIELD_LISTS and any(ir.width_of(one) for one in call.type_arguments):
        better = f"{FIELD_LISTS[call.name]}_preserving_field_list"
        complain(call.span, f"{call.name} cannot preserve fields: use {better} and @field_list")


def _instance(one: ir.ExternInstance, complain: Complain) -> None:
    if one.kind == "register" and not isinstance(one.type_arguments[0], ir.Bits | ir.Bool):
        complain(one.span, f"register {one.name} has cells that are neither bits nor bool")
