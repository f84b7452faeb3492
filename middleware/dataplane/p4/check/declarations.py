"""Declarations at the top level: types, constants, functions, actions. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from .. import ast, ir, types
from ..ir.annotations import Annotation, Scalar
from ..parser.annotations import value_of
from ..source import Span
from .base import Place, Refused
from .conversions import Conversions
from .expressions import Expressions
from .inference import Inference
from .instances import Instances
from .scope import ActionEntity, ConstantEntity, FunctionEntity, Scope, TypeEntity
from .statements import Statements
from .type_refs import TypeRefs

# In the order of core.p4, which numbers them.
CORE_ERRORS: Final = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)


class Declarations:
    """The part of the checker that reads declarations at the top level."""

    def __init__(
        self,
        at: Place,
        type_refs: TypeRefs,
        conversions: Conversions,
        expressions: Expressions,
        inference: Inference,
        statements: Statements,
        instances: Instances,
    ) -> None:
        self._at = at
        self._type_refs = type_refs
        self._conversions = conversions
        self._expressions = expressions
        self._inference = inference
        self._statements = statements
        self._instances = instances
        self._handlers: dict[type, Callable[[Any], object]] = {
            ast.ConstantDeclaration: self._statements.constant,
            ast.Instantiation: self._instantiation,
            ast.Extern: self._extern,
            ast.ExternFunction: self._function,
            ast.Function: self._function,
            ast.Action: self._action,
            ast.Record: self._record,
            ast.Enum: self._enum,
            ast.Identifiers: self._identifiers,
            ast.Typedef: self._typedef,
            ast.Control: self._applicable,
            ast.Parser: self._applicable,
            ast.Package: self._package,
        }
        self.records: list[types.Record] = []
        self.enums: list[types.EnumType | types.SerialEnum] = []
        self.new_types: list[types.NewType] = []
        self.applicables: list[types.Applicable] = []
        self.mains: list[ast.Instantiation] = []

    def declaration(self, node: ast.Declaration) -> None:
        """Checks one declaration; records its error and continues."""
        self._at.order += 1
        self._at.scope.limit = None
        try:
            self._handlers[type(node)](node)
        except Refused as refused:
            self._at.report(refused)
            if not isinstance(node, ast.Identifiers):
                self._at.poison(node.name, node.span)

    def declare_type(self, name: str, type_: types.Type, span: Span) -> None:
        self._at.declare(name, TypeEntity(type_, None, 0, span, self._at.order), span)

    def declare_generic(
        self, node: ast.Record | ast.Extern | ast.Control | ast.Parser | ast.Package, make: Any
    ) -> None:
        """Declares a type with type parameters; equal arguments give the same type."""
        made: dict[tuple[types.Type, ...], types.Type] = {}

        def specialize(arguments: tuple[types.Type, ...], span: Span) -> types.Type:
            if arguments not in made:
                made[arguments] = make(arguments, specialize)
            return made[arguments]

        entity = TypeEntity(None, specialize, len(node.types), node.span, self._at.order)
        self._at.declare(node.name, entity, node.span)

    # --- types

    def _record(self, node: ast.Record) -> types.Record | None:
        if node.types:
            scope = self._at.scope

            def make(arguments: tuple[types.Type, ...], generic: object) -> types.Type:
                return self._specialized_record(node, arguments, generic, scope)

            self.declare_generic(node, make)
            with self._at.inner():
                variables = self._type_refs.type_variables(node.types, node.span)
                self._fields(node)
            del variables
            return None
        record = types.Record(node.kind, node.name, self._fields(node), node.annotations, node.span)
        self.records.append(record)
        self.declare_type(node.name, record, node.span)
        return record

    def _specialized_record(
        self, node: ast.Record, arguments: tuple[types.Type, ...], generic: object, scope: Scope
    ) -> types.Record:
        with self._at.inner(scope):
            for name, type_ in zip(node.types, arguments, strict=True):
                self._at.declare(name, TypeEntity(type_, None, 0, node.span, 0), node.span)
            fields = self._fields(node)
        name = f"{node.name}<{', '.join(map(types.describe, arguments))}>"
        return types.Record(node.kind, name, fields, node.annotations, node.span, generic, arguments)

    def _fields(self, node: ast.Record) -> tuple[types.FieldType, ...]:
        fields: list[types.FieldType] = []
        names: set[str] = set()
        varbits = 0
        for one in node.fields:
            if one.name in names:
                self._at.fail(one.span, f"there are two fields '{one.name}' in {node.kind} '{node.name}'")
            names.add(one.name)
            type_ = self._type_refs.element_type(one.type)
            self._check_field(node, one, type_)
            varbits += isinstance(types.underlying(type_), ir.Varbit)
            if node.kind == "header" and varbits > 1:
                self._at.fail(one.span, f"header '{node.name}' has more than one varbit field")
            fields.append(types.FieldType(one.name, type_, one.annotations, one.span))
        return tuple(fields)

    def _check_field(self, node: ast.Record, field: ast.Field, type_: types.Type) -> None:
        if isinstance(type_, types.TypeVariable):
            return
        if node.kind == "header":
            fits = header_field(type_)
        elif node.kind == "header_union":
            fits = types.is_header(type_)
        else:
            fits = not isinstance(type_, types.Infinite | ir.String | types.ListType | types.MatchKindType)
        if not fits:
            kind = node.kind.replace("_", " ")
            of = types.describe(type_)
            self._at.fail(field.span, f"field '{field.name}' of a {kind} can't be of type {of}")

    def _enum(self, node: ast.Enum) -> types.EnumType | types.SerialEnum:
        names: set[str] = set()
        for one in node.members:
            if one.name in names:
                self._at.fail(one.span, f"there are two members '{one.name}' in enum '{node.name}'")
            names.add(one.name)
        found: types.EnumType | types.SerialEnum
        if node.representation is None:
            for one in node.members:
                if one.value is not None:
                    said = f"enum '{node.name}' has no representation, so its members have no values"
                    self._at.fail(one.span, said)
            members = tuple(one.name for one in node.members)
            found = types.EnumType(node.name, members, node.annotations)
        else:
            found = self._serial_enum(node, node.representation)
        self.enums.append(found)
        self.declare_type(node.name, found, node.span)
        return found

    def _serial_enum(self, node: ast.Enum, representation: ast.TypeRef) -> types.SerialEnum:
        bits = types.underlying(self._type_refs.type_of(representation))
        if not isinstance(bits, ir.Bits):
            of = types.describe(bits)
            self._at.fail(representation.span, f"an enum is represented by bit<w> or int<w>, not {of}")
        members: dict[str, int] = {}
        for one in node.members:
            if one.value is None:
                self._at.fail(one.span, f"member '{one.name}' of enum '{node.name}' needs a value")
            typed = self._expressions.expression(one.value, bits)
            literal = self._conversions.cast(typed, bits, one.value.span).node
            if not isinstance(literal, ir.Literal):
                self._at.fail(
                    one.value.span, "the value of a member must be known when the program is loaded"
                )
            members[one.name] = int(literal.value)
        return types.SerialEnum(node.name, bits, members, node.annotations)

    def _typedef(self, node: ast.Typedef) -> None:
        type_: types.Type | None
        if isinstance(node.type, ast.Record):
            type_ = self._record(node.type)
        elif isinstance(node.type, ast.Enum):
            type_ = self._enum(node.type)
        else:
            type_ = self._type_refs.type_of(node.type)
        if type_ is None:
            self._at.fail(node.span, "a generic type can't be renamed")
        if node.new:
            if not isinstance(types.underlying(type_), ir.Bits | ir.Bool):
                of = types.describe(type_)
                self._at.fail(node.span, f"a new type is made from bit<w>, int<w> or bool, not from {of}")
            written = node.type.name if isinstance(node.type, ast.TypeName) else None
            type_ = types.NewType(node.name, type_, self._translated(node.annotations), written)
            self.new_types.append(type_)
        self.declare_type(node.name, type_, node.span)

    def _translated(self, marks: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
        """Returns the annotations, with the W of `@p4runtime_translation(uri, bit<W>)` evaluated."""
        return tuple(
            msgspec.structs.replace(mark, arguments=(mark.arguments[0], self._width(mark)))
            if mark.name == "p4runtime_translation" and len(mark.arguments) == 2
            else mark
            for mark in marks
        )

    def _width(self, mark: Annotation) -> Scalar:
        given = mark.arguments[1]
        if given == "string":
            return given
        if isinstance(given, str):
            text = given.replace(" ", "")
            inner = text[4:-1] if text.startswith("bit<") and text.endswith(">") else given
            known = value_of(inner, self.known_numbers())
        else:
            known = given
        if isinstance(known, int) and not isinstance(known, bool) and known > 0:
            return known
        return self._at.fail(
            mark.span, f"@p4runtime_translation: {given} is no width; bit<W>, W or string is"
        )

    def known_numbers(self) -> dict[str, Scalar]:
        """Constants of the whole program so far, and members of enums that are numbers, as `E.A`."""
        known: dict[str, Scalar] = {}
        for name, entity in self._at.top.names.items():
            if isinstance(entity, ConstantEntity) and isinstance(entity.value.node, ir.Literal):
                known[name] = entity.value.node.value
        for enum in self.enums:
            if isinstance(enum, types.SerialEnum):
                known |= {f"{enum.name}.{member}": value for member, value in enum.members.items()}
        return known

    def _identifiers(self, node: ast.Identifiers) -> None:
        for one in node.names:
            known = one.name in (self._at.errors if node.kind == "error" else self._at.match_kinds)
            if known:
                self._at.complain(one.span, f"{node.kind} '{one.name}' is declared already")
            elif node.kind == "error":
                self._at.errors[one.name] = self._error_number(one.name)
            else:
                self._at.match_kinds[one.name] = one.span

    def _error_number(self, name: str) -> int:
        """Returns the number of an error. Those of core.p4 come first, wherever it is included, because
        NoError must be 0.
        """
        if name in CORE_ERRORS:
            return CORE_ERRORS.index(name)
        return len(CORE_ERRORS) + sum(1 for known in self._at.errors if known not in CORE_ERRORS)

    # --- what is called or instantiated

    def _extern(self, node: ast.Extern) -> None:
        scope = self._at.scope

        def make(arguments: tuple[types.Type, ...], generic: object) -> types.Type:
            return types.ExternType(node, arguments, scope)

        if node.types:
            self.declare_generic(node, make)
        else:
            self.declare_type(node.name, types.ExternType(node, (), scope), node.span)
        with self._at.inner():
            self._type_refs.type_variables(node.types, node.span)
            for method in node.methods:
                if method.result is None and method.name != node.name:
                    self._at.fail(method.span, f"a constructor of '{node.name}' has its name")
                self._inference.signature(method, self._at.scope)

    def _applicable(self, node: ast.Control | ast.Parser) -> None:
        scope, order = self._at.scope, self._at.order

        def make(arguments: tuple[types.Type, ...], generic: object) -> types.Type:
            return types.Applicable(node, arguments, scope, order)

        complete = node.body is not None if isinstance(node, ast.Control) else node.states is not None
        if node.types:
            if complete:
                self._at.fail(node.span, f"'{node.name}' has a body, so that it can't have type parameters")
            self.declare_generic(node, make)
        else:
            type_ = types.Applicable(node, (), scope, order)
            self.declare_type(node.name, type_, node.span)
            if complete:
                self.applicables.append(type_)
        with self._at.inner():
            self._type_refs.type_variables(node.types, node.span)
            self._type_refs.parameters(node.parameters)
            self._type_refs.parameters(node.constructor)
            self.check_constructor(node.constructor)

    def _package(self, node: ast.Package) -> None:
        scope = self._at.scope

        def make(arguments: tuple[types.Type, ...], generic: object) -> types.Type:
            return types.PackageType(node, arguments, scope)

        if node.types:
            self.declare_generic(node, make)
        else:
            self.declare_type(node.name, types.PackageType(node, (), scope), node.span)
        with self._at.inner():
            self._type_refs.type_variables(node.types, node.span)
            self._type_refs.parameters(node.parameters)
            self.check_constructor(node.parameters)

    def check_constructor(self, parameters: tuple[ast.Parameter, ...]) -> None:
        """Refuses directions of constructor parameters, whose arguments are known at load time."""
        for one in parameters:
            if one.direction:
                self._at.complain(one.span, f"constructor parameter '{one.name}' can't have a direction")

    def _function(self, node: ast.Function | ast.ExternFunction) -> None:
        self._inference.signature(node.prototype, self._at.scope)
        self._at.function_orders[id(node)] = self._at.order
        already = self._at.scope.names.get(node.name)
        if isinstance(already, FunctionEntity):
            for one in already.overloads:
                if _same_shape(one.prototype, node.prototype):
                    self._at.complain(node.span, f"'{node.name}' is declared already, at {one.span}")
                    return
            already.overloads.append(node)
            return
        self._at.declare(
            node.name, FunctionEntity(node.name, [node], self._at.scope, node.span, self._at.order), node.span
        )

    def _action(self, node: ast.Action) -> None:
        scope = Scope(self._at.scope, self._at.order)
        self._at.declare(node.name, ActionEntity(node, scope, "", node.span, self._at.order), node.span)

    def _instantiation(self, node: ast.Instantiation) -> None:
        generic = node.type.base if isinstance(node.type, ast.Specialized) else node.type
        if isinstance(generic, ast.TypeName):
            entity = self._at.lookup(generic.name, generic.absolute, generic.span)
            if isinstance(entity, TypeEntity) and self.is_package(entity):
                if node.name == "main":
                    self.mains.append(node)
                else:
                    self._at.fail(node.span, "only one package is run, and its name is 'main'")
                return
        self._instances.instantiation(node)

    def is_package(self, entity: TypeEntity) -> bool:
        """Returns whether a type is a package, with its arguments or without."""
        if entity.type is not None:
            return isinstance(entity.type, types.PackageType)
        assert entity.generic is not None
        blanks = tuple(types.TypeVariable("_") for _ in range(entity.parameters))
        return isinstance(entity.generic(blanks, entity.span), types.PackageType)


def header_field(type_: types.Type) -> bool:
    """Returns whether the type may be a field of a header: bits, and structs of bits."""
    base = types.underlying(type_)
    if isinstance(base, types.Record):
        return base.kind == "struct" and all(header_field(one.type) for one in base.fields)
    return isinstance(base, ir.Bits | ir.Bool | ir.Varbit | types.TypeVariable)


def _same_shape(one: ast.Prototype, other: ast.Prototype) -> bool:
    return [p.name for p in one.parameters] == [p.name for p in other.parameters]
