"""Contents of tables: their actions, default action, and entries with priorities. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .. import ast, ir, types
from ..ir.annotations import find
from ..source import Span
from .base import Place, Refused
from .conversions import Conversions
from .expressions import Expressions
from .functions import Functions
from .inference import Inference
from .matches import Matches, as_prefix
from .scope import ActionEntity

_ENTRY_MATCHES: dict[ir.MatchKind, tuple[type, ...]] = {
    ir.MatchKind.EXACT: (ir.MatchValue,),
    ir.MatchKind.LPM: (ir.MatchValue, ir.MatchMask, ir.MatchAny),
    ir.MatchKind.TERNARY: (ir.MatchValue, ir.MatchMask, ir.MatchAny),
    ir.MatchKind.RANGE: (ir.MatchValue, ir.MatchRange, ir.MatchAny),
    ir.MatchKind.OPTIONAL: (ir.MatchValue, ir.MatchAny),
    ir.MatchKind.SELECTOR: (ir.MatchAny,),
}


class Actions:
    """The actions of a table while it is checked."""

    def __init__(self) -> None:
        self.references: list[ir.TableAction] = []
        self.entities: list[ActionEntity] = []
        self.names: list[str] = []


class Entries:
    """The part of the checker that lowers the actions and entries of tables."""

    def __init__(
        self,
        at: Place,
        conversions: Conversions,
        expressions: Expressions,
        inference: Inference,
        functions: Functions,
        matches: Matches,
    ) -> None:
        self._at = at
        self._conversions = conversions
        self._expressions = expressions
        self._inference = inference
        self._functions = functions
        self._matches = matches

    # --- actions

    def _action_entity(self, name: ast.Name) -> ActionEntity:
        entity = self._at.lookup(name.name, name.absolute, name.span)
        if not isinstance(entity, ActionEntity):
            self._at.fail(name.span, f"'{name.name}' is no action")
        return entity

    def reference(self, node: ast.ActionRef, actions: Actions) -> None:
        entity = self._action_entity(node.name)
        if entity in actions.entities:
            self._at.fail(node.span, f"action '{node.name.name}' is in the table twice")
        index = self._functions.action(entity)
        bound = self._bound(node.name, node.arguments or (), entity, node.span)
        actions.references.append(ir.TableAction(index, bound, node.annotations))
        actions.entities.append(entity)
        actions.names.append(node.name.name)

    def _bound(
        self, name: ast.Name, arguments: tuple[ast.Argument, ...], entity: ActionEntity, span: Span
    ) -> tuple[ir.Expression, ...]:
        """Returns the arguments that a table gives to the parameters with a direction."""
        directed = [one for one in entity.parameters if one.direction]
        paired = self._inference.pair(name.name, [one.declaration for one in directed], arguments, span)
        found = []
        for parameter, argument in zip(directed, paired, strict=True):
            if argument is None or isinstance(argument.value, ast.DontCare):
                self._at.fail(span, f"argument '{parameter.name}' of action '{name.name}' is missing")
            typed = self._expressions.expression(argument.value, parameter.type)
            if parameter.direction == "in":
                typed = self._conversions.convert(typed, parameter.type, argument.span)
            else:
                self._inference.check_out(typed, parameter.type, parameter)
            found.append(typed.node)
        return tuple(found)

    def _action_data(
        self, name: ast.Name, arguments: tuple[ast.Argument, ...], actions: Actions, span: Span
    ) -> ir.ActionData:
        """Returns an action of the table with its data, for default_action and entries."""
        entity = self._action_entity(name)
        if entity not in actions.entities:
            self._at.fail(name.span, f"action '{name.name}' is not among the actions of the table")
        place = actions.entities.index(entity)
        data = [one for one in entity.parameters if not one.direction]
        directed = len(entity.parameters) - len(data)
        given = arguments[directed:] if len(arguments) > len(data) else arguments
        if len(given) < len(arguments):
            self._same_bound(arguments[:directed], entity, actions.references[place])
        paired = self._inference.pair(name.name, [one.declaration for one in data], given, span)
        values: list[int | bool] = []
        for parameter, argument in zip(data, paired, strict=True):
            node = argument.value if argument is not None else parameter.default
            if node is None:
                self._at.fail(span, f"argument '{parameter.name}' of action '{name.name}' is missing")
            literal = self._expressions.value(node, parameter.type).node
            if not isinstance(literal, ir.Literal) or isinstance(literal.value, str):
                self._at.fail(node.span, "action data must be known when the program is loaded")
            values.append(literal.value)
        return ir.ActionData(place, tuple(values))

    def _same_bound(
        self, arguments: tuple[ast.Argument, ...], entity: ActionEntity, reference: ir.TableAction
    ) -> None:
        """Checks that repeated arguments with a direction equal those in the list of actions."""
        for argument, parameter, bound in zip(
            arguments, entity.parameters, reference.arguments, strict=False
        ):
            typed = self._conversions.convert(
                self._expressions.expression(argument.value, parameter.type), parameter.type
            )
            if not alike(typed.node, bound):
                self._at.fail(argument.span, "this argument is another one in the table's list of actions")

    def default(self, node: ast.Property | None, actions: Actions, span: Span) -> tuple[ir.ActionData, bool]:
        """Returns the default action; NoAction, added to the actions if necessary, if none is named."""
        if node is None:
            nothing = self._action_entity(ast.Name("NoAction", True, span))
            if nothing not in actions.entities:
                index = self._functions.action(nothing)
                mark = ir.Annotation("defaultonly")
                actions.references.append(ir.TableAction(index, (), (mark,)))
                actions.entities.append(nothing)
                actions.names.append("NoAction")
            return ir.ActionData(actions.entities.index(nothing), ()), False
        value = node.value
        try:
            if isinstance(value, ast.Call) and isinstance(value.target, ast.Name):
                found = self._action_data(value.target, value.arguments, actions, value.span)
            elif isinstance(value, ast.Name):
                found = self._action_data(value, (), actions, value.span)
            else:
                self._at.fail(value.span, "default_action names an action")
        except Refused as refused:
            self._at.report(refused)
            return ir.ActionData(0, ()), False
        if actions.references[found.action].table_only:
            self._at.complain(value.span, "this action is @tableonly, so that it can't be the default")
        return found, node.constant

    # --- entries

    def entries(
        self,
        node: ast.Table,
        keys: tuple[ir.Key, ...],
        key_types: list[types.Type],
        actions: Actions,
        properties: dict[str, ast.Property],
    ) -> tuple[ir.Entry, ...]:
        if node.entries is None:
            return ()
        if not keys:
            self._at.fail(node.entries.span, "a table without keys has no entries")
        found = []
        ranked = any(key.match_kind not in (ir.MatchKind.EXACT, ir.MatchKind.LPM) for key in keys)
        for one in node.entries.entries:
            if one.priority is not None and not ranked:
                self._at.complain(
                    one.priority.span, "entries for exact and lpm keys alone have no priorities"
                )
        largest = self.flag(properties.get("largest_priority_wins"), True)
        priorities = self._priorities(node.entries, largest, properties)
        for one, priority in zip(node.entries.entries, priorities, strict=True):
            try:
                found.append(self._entry(one, node.entries.constant, keys, key_types, actions, priority))
            except Refused as refused:
                self._at.report(refused)
        return tuple(found)

    def _priorities(self, node: ast.Entries, largest: bool, properties: dict[str, ast.Property]) -> list[int]:
        """Returns each entry's priority, so that the largest wins. Without a number, order decides."""
        delta = self.number(properties.get("priority_delta")) or 1
        written = [
            None if one.priority is None else self._at.integer(one.priority, "a priority")
            for one in node.entries
        ]
        marks = [find(one.annotations, "priority") for one in node.entries]
        if any(marks) and all(one is None for one in written):
            return _by_marks(marks)
        if all(one is None for one in written):
            return list(range(len(written), 0, -1))
        found: list[int] = []
        for number, one in enumerate(written):
            if one is None and not found:
                one = (len(written) - 1) * delta + 1 if largest else 1
            elif one is None:
                one = found[-1] - delta if largest else found[-1] + delta
            if one <= 0:
                self._at.fail(node.entries[number].span, f"a priority is above 0, not {one}")
            found.append(one)
        return found if largest else [max(found) + 1 - one for one in found]

    def _entry(
        self,
        node: ast.Entry,
        constant: bool,
        keys: tuple[ir.Key, ...],
        key_types: list[types.Type],
        actions: Actions,
        priority: int,
    ) -> ir.Entry:
        elements = self._matches.key_elements(node.keys, len(keys), node.span)
        matches = []
        for element, key, type_ in zip(elements, keys, key_types, strict=True):
            match = self._matches.match(element, type_)
            kind = key.match_kind
            if isinstance(match, ir.MatchMask) and match.mask == (1 << ir.width_of(key.type)) - 1:
                match = ir.MatchValue(match.value)
            if not isinstance(match, _ENTRY_MATCHES[kind]):
                self._at.fail(element.span, f"this can't be matched by {kind.value}")
            if kind is ir.MatchKind.LPM and not as_prefix(match, ir.width_of(key.type)):
                self._at.fail(element.span, "the mask of an lpm key is a prefix: ones, then zeros")
            matches.append(match)
        reference = node.action
        action = self._action_data(reference.name, reference.arguments or (), actions, reference.span)
        if actions.references[action.action].default_only:
            self._at.fail(reference.span, "this action is @defaultonly, so that no entry can have it")
        annotations = node.annotations
        return ir.Entry(tuple(matches), action, priority, constant or node.constant, annotations, node.span)

    def number(self, node: ast.Property | None) -> int | None:
        if node is None:
            return None
        size = self._at.integer(node.value, f"'{node.name}'")
        if size < 0:
            self._at.fail(node.value.span, f"'{node.name}' can't be negative")
        return size

    def flag(self, node: ast.Property | None, default: bool) -> bool:
        if node is None:
            return default
        literal = self._expressions.value(node.value, types.BOOL).node
        if not isinstance(literal, ir.Literal):
            self._at.fail(node.value.span, f"'{node.name}' must be known when the program is loaded")
        return bool(literal.value)


def _by_marks(marks: Sequence[ir.Annotation | None]) -> list[int]:
    """Priorities by `@priority(n)` on entries, which p4c knows too: the smallest wins, an entry's place is
    the default."""
    numbers = [
        mark.arguments[0] if mark is not None and mark.arguments else place
        for place, mark in enumerate(marks, 1)
    ]
    wanted = [one if isinstance(one, int) else place for place, one in enumerate(numbers, 1)]
    return [max(wanted) + 1 - one for one in wanted]


def alike(one: object, other: object) -> bool:
    """Returns whether two expressions are equal except for their places."""
    if isinstance(one, ir.Expression) and type(one) is type(other):
        names = (name for name in one.__struct_fields__ if name != "span")
        return all(alike(getattr(one, name), getattr(other, name)) for name in names)
    return one == other
