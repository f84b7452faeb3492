"""Tables. Pure."""

from __future__ import annotations

from .. import ast, ir, types
from ..ir.annotations import find
from ..source import Span
from .base import Place, Refused, is_hidden
from .entries import Actions, Entries
from .expressions import Expressions
from .scope import ExternEntity, TableEntity
from .type_refs import TypeRefs

_KNOWN = frozenset(
    {
        "default_action",
        "size",
        "implementation",
        "counters",
        "meters",
        "support_timeout",
        "largest_priority_wins",
        "priority_delta",
    }
)
_IMPLEMENTATIONS = {
    "implementation": ("action_profile", "action_selector"),
    "counters": ("direct_counter",),
    "meters": ("direct_meter",),
}


class Tables:
    """The part of the checker that lowers tables."""

    def __init__(self, at: Place, type_refs: TypeRefs, expressions: Expressions, entries: Entries) -> None:
        self._at = at
        self._type_refs = type_refs
        self._expressions = expressions
        self._entries = entries

    def table(self, node: ast.Table) -> None:
        """Checks a table of the control being lowered."""
        key_types: list[types.Type] = []
        keys = tuple(self._key(one, key_types) for one in node.keys or ())
        if node.actions is None:
            self._at.fail(node.span, f"table '{node.name}' has no actions")
        actions = Actions()
        for reference in node.actions:
            try:
                self._entries.reference(reference, actions)
            except Refused as refused:
                self._at.report(refused)
        properties = self._properties(node)
        default, constant = self._entries.default(properties.get("default_action"), actions, node.span)
        entries = self._entries.entries(node, keys, key_types, actions, properties)
        name = self._at.plane_name(node.name, node.annotations)
        table = ir.Table(
            name=name,
            keys=keys,
            actions=tuple(actions.references),
            default=default,
            default_constant=constant,
            entries=entries,
            constant_entries=node.entries is not None and node.entries.constant,
            size=self._entries.number(properties.get("size")),
            implementation=self._object(properties.get("implementation"), name),
            counters=self._object(properties.get("counters"), name),
            meters=self._object(properties.get("meters"), name),
            support_timeout=self._entries.flag(properties.get("support_timeout"), False),
            annotations=node.annotations,
            hidden=is_hidden(node.annotations),
            span=node.span,
        )
        self._check_selector(table, node.span)
        self._at.tables.append(table)
        entity = TableEntity(
            len(self._at.tables) - 1, tuple(actions.entities), tuple(actions.names), node.span, self._at.order
        )
        self._at.declare(node.name, entity, node.span)

    # --- keys

    def _key(self, node: ast.Key, key_types: list[types.Type]) -> ir.Key:
        typed = self._expressions.expression(node.expression)
        base = types.underlying(typed.type)
        if isinstance(base, types.Infinite):
            self._at.fail(node.span, "a key needs a width")
        if not isinstance(base, ir.Bits | ir.Bool | types.EnumType | ir.ErrorCode):
            self._at.fail(node.span, f"a key can't be of type {types.describe(typed.type)}")
        kind = self.match_kind(node.match_kind)
        if not isinstance(base, ir.Bits) and kind in (ir.MatchKind.LPM, ir.MatchKind.RANGE):
            of = types.describe(typed.type)
            self._at.fail(node.match_kind.span, f"a key of type {of} can't be matched by {kind.value}")
        mark = find(node.annotations, "name")
        name = (
            str(mark.arguments[0]) if mark is not None and mark.arguments else self._key_name(node.expression)
        )
        if name is None:
            self._at.fail(node.span, 'this key needs a name for the control plane: @name("...")')
        named = types.named(typed.type)
        key_types.append(typed.type)
        return ir.Key(name, typed.node, kind, node.annotations, node.span, named)

    def _key_name(self, node: ast.Expression) -> str | None:
        """Returns the control plane's name of a key, as p4c derives it; None if it wants an annotation."""
        match node:
            case ast.Name(name=name, absolute=absolute):
                return f".{name}" if absolute else name
            case ast.Member():
                return self._member_name(node)
            case ast.Call(target=ast.Member(base=base, name="isValid"), arguments=()):
                inner = self._key_name(base)
                return None if inner is None else f"{inner}.$valid$"
            case ast.IntegerLiteral(value=value, base=base):
                return {2: bin, 8: oct, 16: hex}.get(base, str)(value)
            case ast.Index(base=base, index=index):
                parts = self._key_names(base, index)
                return None if parts is None else f"{parts[0]}[{parts[1]}]"
            case ast.Slice(base=base, high=high, low=low):
                parts = self._key_names(base, high, low)
                return None if parts is None else f"{parts[0]}[{parts[1]}:{parts[2]}]"
            case ast.Binary(operator="&", left=left, right=right):
                parts = self._key_names(left, right)
                return None if parts is None else f"{parts[0]} & {parts[1]}"
        return None

    def _key_names(self, *nodes: ast.Expression) -> list[str] | None:
        found = [self._key_name(one) for one in nodes]
        named = [one for one in found if one is not None]
        return named if len(named) == len(found) else None

    def _member_name(self, node: ast.Member) -> str | None:
        """Returns the name of `base.field`. `@name` on the field counts, and with a leading dot replaces all
        of it.
        """
        base = (
            self._expressions.expression(node.base) if not isinstance(node.base, ast.TypeExpression) else None
        )
        name = node.name
        if base is not None and isinstance(base.type, types.Record) and name in base.type.places:
            mark = find(base.type.fields[base.type.places[name]].annotations, "name")
            if mark is not None and mark.arguments:
                name = str(mark.arguments[0])
        if name.startswith("."):
            return name[1:]
        inner = self._key_name(node.base)
        return None if inner is None else f"{inner}.{name}"

    def match_kind(self, node: ast.Name) -> ir.MatchKind:
        """Returns a match kind that this target has."""
        if node.name not in self._at.match_kinds:
            hint = self._at.suggest(node.name, self._at.match_kinds)
            self._at.fail(node.span, f"there is no match kind '{node.name}'{hint}")
        try:
            return ir.MatchKind(node.name)
        except ValueError:
            self._at.fail(node.span, f"this target can't match by '{node.name}'")

    # --- other properties

    def _properties(self, node: ast.Table) -> dict[str, ast.Property]:
        found: dict[str, ast.Property] = {}
        for one in node.properties:
            if one.name in found:
                self._at.fail(one.span, f"the table has '{one.name}' twice")
            if one.name not in _KNOWN:
                hint = self._at.suggest(one.name, _KNOWN)
                self._at.complain(one.span, f"this target has no table property '{one.name}'{hint}")
            found[one.name] = one
        return found

    def _object(self, node: ast.Property | None, table: str) -> int | None:
        """Returns the extern object that a property names, or makes."""
        if node is None:
            return None
        wanted = _IMPLEMENTATIONS[node.name]
        value = node.value
        if isinstance(value, ast.Name):
            entity = self._at.lookup(value.name, value.absolute, value.span)
        elif isinstance(value, ast.Call) and isinstance(value.target, ast.TypeExpression):
            mark = find(node.annotations, "name")
            name = f"{table}.{node.name}" if mark is None or not mark.arguments else str(mark.arguments[0])
            type_ = self._type_refs.type_of(value.target.type)
            if not isinstance(type_, types.ExternType):
                self._at.fail(value.span, f"{types.describe(type_)} is no extern object")
            annotations = (ir.Annotation("name", (f".{name.lstrip('.')}",)),)
            entity = self._at.instances.extern(type_, value.arguments, name, annotations, value.span)
        else:
            self._at.fail(value.span, f"'{node.name}' names an object: {' or '.join(wanted)}")
        if not isinstance(entity, ExternEntity) or entity.type.name not in wanted:
            self._at.fail(value.span, f"'{node.name}' needs an object of type {' or '.join(wanted)}")
        return entity.index

    def _check_selector(self, table: ir.Table, span: Span) -> None:
        selected = any(key.match_kind is ir.MatchKind.SELECTOR for key in table.keys)
        kind = "" if table.implementation is None else self._at.externs[table.implementation].kind
        if selected and kind == "action_profile":
            self._at.fail(span, "selector keys need an action_selector as the table's implementation")
        if selected and not kind:
            self._at.warn(span, "selector keys without an action_selector match nothing and choose nothing")
        if kind and table.entries:
            self._at.fail(span, f"a table with an {kind} can't have entries in the program")
