"""Parser states and value sets. Pure."""

from __future__ import annotations

from .. import ast, ir, types
from ..ir.annotations import find
from .base import Place, Refused, is_hidden
from .expressions import Expressions
from .matches import Matches
from .scope import ValueSetEntity
from .statements import Statements
from .tables import Tables
from .type_refs import TypeRefs

_END = {"accept": ir.ACCEPT, "reject": ir.REJECT}


class Parsers:
    """The part of the checker that lowers the states of parsers."""

    def __init__(
        self,
        at: Place,
        type_refs: TypeRefs,
        expressions: Expressions,
        statements: Statements,
        matches: Matches,
        tables: Tables,
    ) -> None:
        self._at = at
        self._type_refs = type_refs
        self._expressions = expressions
        self._statements = statements
        self._matches = matches
        self._tables = tables

    def states(self, states: tuple[ast.State, ...], declaration: ast.Parser) -> tuple[ir.State, ...]:
        """Returns all states of the parser that is being lowered."""
        places: dict[str, int] = dict(_END)
        for number, one in enumerate(states):
            if one.name in places:
                said = "is built in" if one.name in _END else "is there twice"
                self._at.complain(one.span, f"state '{one.name}' {said}")
            places.setdefault(one.name, number)
        if "start" not in places:
            self._at.complain(declaration.span, f"parser '{declaration.name}' has no state 'start'")
        return tuple(self._state(one, places) for one in states)

    def _state(self, node: ast.State, places: dict[str, int]) -> ir.State:
        transition: ir.Goto | ir.Select = ir.Goto(ir.REJECT, node.span)
        with self._at.collecting() as output, self._at.inner():
            for one in node.statements:
                self._statements.statement(one)
            try:
                transition = self._transition(node, places)
            except Refused as refused:
                self._at.report(refused)
        return ir.State(node.name, tuple(output), transition, node.annotations, node.span)

    def _transition(self, node: ast.State, places: dict[str, int]) -> ir.Goto | ir.Select:
        if node.transition is None:
            return ir.Goto(ir.REJECT, node.span)
        if isinstance(node.transition, ast.Name):
            return ir.Goto(self._target(node.transition, places), node.transition.span)
        return self._select(node.transition, places)

    def _target(self, node: ast.Name, places: dict[str, int]) -> int:
        if node.name not in places:
            self._at.fail(node.span, f"there is no state '{node.name}'{self._at.suggest(node.name, places)}")
        return places[node.name]

    def _select(self, node: ast.Select, places: dict[str, int]) -> ir.Select:
        keys = [self._expressions.expression(one) for one in node.keys]
        for one in keys:
            base = types.underlying(one.type)
            if not isinstance(base, ir.Bits | ir.Bool | types.EnumType | ir.ErrorCode):
                self._at.fail(one.span, f"a select can't be about {types.describe(one.type)}")
        key_types = tuple(one.type for one in keys)
        cases = []
        for case in node.cases:
            try:
                matches = self._case_matches(case, key_types)
                cases.append(ir.Case(matches, self._target(case.state, places), case.span))
            except Refused as refused:
                self._at.report(refused)
        return ir.Select(tuple(one.node for one in keys), tuple(cases), node.span)

    def _case_matches(self, node: ast.SelectCase, key_types: tuple[types.Type, ...]) -> tuple[ir.Match, ...]:
        keys = node.keys
        if isinstance(keys, ast.KeySet) and len(keys.elements) == 1:
            keys = keys.elements[0]
        if isinstance(keys, ast.Name):
            entity = self._at.lookup(keys.name, keys.absolute, keys.span)
            if isinstance(entity, ValueSetEntity):
                return self._in_value_set(keys, entity, key_types)
        elements = self._matches.key_elements(keys, len(key_types), node.span)
        return tuple(self._matches.match(one, type_) for one, type_ in zip(elements, key_types, strict=True))

    def _in_value_set(
        self, node: ast.Name, entity: ValueSetEntity, key_types: tuple[types.Type, ...]
    ) -> tuple[ir.Match, ...]:
        fields = [one.type for one in self._at.value_sets[entity.index].fields]
        if fields != [self._at.represent(one, node.span) for one in key_types]:
            of = types.describe(entity.type)
            self._at.fail(
                node.span, f"the members of value set '{node.name}' are {of}, which the keys are not"
            )
        return (ir.MatchSet(entity.index),)

    def value_set(self, node: ast.ValueSet) -> None:
        """Checks `value_set<T>(size) name;`."""
        type_ = self._type_refs.type_of(node.type)
        size = self._at.integer(node.size, "the size of a value set")
        mark = find(node.annotations, "size")
        if mark is not None and mark.arguments and isinstance(mark.arguments[0], int):
            size = mark.arguments[0]
        if size < 0:
            self._at.fail(node.size.span, "the size of a value set can't be negative")
        fields = tuple(self._set_fields(type_, node))
        name = self._at.plane_name(node.name, node.annotations)
        hidden = is_hidden(node.annotations)
        self._at.value_sets.append(ir.ValueSet(name, size, fields, node.annotations, hidden, node.span))
        entity = ValueSetEntity(len(self._at.value_sets) - 1, type_, node.span)
        self._at.declare(node.name, entity, node.span)

    def _set_fields(self, type_: types.Type, node: ast.ValueSet) -> list[ir.ValueSetField]:
        if isinstance(type_, types.Record) and type_.kind == "struct":
            return self._struct_fields(type_, "", node)
        if isinstance(type_, types.Tuple):
            return [self._set_field("", one, (), node) for one in type_.elements]
        return [self._set_field("", type_, node.annotations, node)]

    def _struct_fields(self, type_: types.Record, path: str, node: ast.ValueSet) -> list[ir.ValueSetField]:
        """Returns the fields of a struct, and those of structs inside it as `outer.inner`."""
        found: list[ir.ValueSetField] = []
        for one in type_.fields:
            if isinstance(one.type, types.Record) and one.type.kind == "struct":
                found += self._struct_fields(one.type, f"{path}{one.name}.", node)
            else:
                found.append(self._set_field(path + one.name, one.type, one.annotations, node))
        return found

    def _set_field(
        self, name: str, type_: types.Type, annotations: tuple[ir.Annotation, ...], node: ast.ValueSet
    ) -> ir.ValueSetField:
        base = types.underlying(type_)
        if not isinstance(base, ir.Bits | ir.Bool | types.EnumType | ir.ErrorCode):
            self._at.fail(node.span, f"a value set can't hold {types.describe(type_)}")
        mark = find(annotations, "match")
        kind = ir.MatchKind.EXACT
        if mark is not None and mark.arguments:
            kind = self._tables.match_kind(ast.Name(str(mark.arguments[0]), False, node.span))
        represented = self._at.represent(type_, node.span)
        return ir.ValueSetField(name, represented, kind, annotations, types.named(type_))
