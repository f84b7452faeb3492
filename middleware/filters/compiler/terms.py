"""Rules as terms: what the diagram is built from. Every use of a name is checked here, with its position."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from ..actions import Action, Custom, Forward, Rule, Rules, Update
from ..errors import FilterError
from ..tree import Aggregate, Constraint, Field, Relation, Scalar
from .bounds import ABSENT, Bounds, bounds_of, complement
from .boxes import Box, TooManyBoxes, normal_form
from .program_messages import MASK_PORTS
from .schema import STATE_BITS, CustomAction, Schema, SchemaError
from .variables import Variable, Variables, is_state


class Effect(Struct, frozen=True):
    """The outcome for a packet: copies to `ports`, one custom action, updates of variables by number.

    The ports of all matching rules are joined. Of several custom actions, the one that the file names first
    is done.
    """

    ports: tuple[int, ...] = ()
    custom: tuple[str, tuple[int, ...]] | None = None
    updates: tuple[int, ...] = ()


class Term(Struct, frozen=True):
    """A conjunction and the number of its actions. Attributes from `len(fields)` up are state variables."""

    box: Box
    action: int


class Terms(Struct, frozen=True):
    """All terms of a rule set. `actions[n]` is the effect of action n alone; `warnings` have positions."""

    terms: list[Term]
    actions: list[Effect]
    default: Effect
    variables: list[Variable]
    warnings: list[tuple[int, str]]


class Translation:
    """One rule set in the terms of one schema."""

    def __init__(self, schema: Schema, rules: Rules) -> None:
        self._schema = schema
        self._rules = rules
        self._variables = Variables(schema)
        self._known: dict[tuple[Field, Relation, Scalar, type], tuple[int, Bounds]] = {}
        self._places: dict[Field, int] = {}
        self._keeping: dict[tuple[Action, ...], bool] = {}  # checked actions: whether they keep state
        self._numbers: dict[tuple[Action, ...], int] = {}
        self._rest: list[Box] = []
        self._keeps_state = False

    def terms(self) -> Terms:
        """Returns the terms. Raises FilterError at the rule's word that is wrong."""
        rests = [self._at(rule, self._collect) for rule in self._rules.rules]
        try:
            variables = self._variables.place()
        except SchemaError as error:
            raise FilterError(error.reason, self._rules.text, 0) from error
        terms: list[Term] = []
        warnings: list[tuple[int, str]] = []
        for rule, rest in zip(self._rules.rules, rests, strict=True):
            self._rest = rest
            boxes = self._at(rule, self._boxes) if variables else rest
            number = self._numbers.setdefault(rule.actions, len(self._numbers))
            terms += [Term(box, number) for box in boxes]
            if not boxes:
                warnings.append((rule.position, "this filter contradicts itself; it matches nothing"))
        effects = [self._effect(actions) for actions in self._numbers]
        return Terms(terms, effects, self._default(), variables, warnings)

    def _at(self, rule: Rule, work: Callable[[Rule], list[Box]]) -> list[Box]:
        """Returns the work's result; its errors point into the rule."""
        try:
            return work(rule)
        except SchemaError as error:
            raise FilterError(error.reason, self._rules.text, self._find(rule, error.name)) from error
        except TooManyBoxes as error:
            raise FilterError(str(error), self._rules.text, rule.position) from error

    def _find(self, rule: Rule, name: str) -> int:
        """Returns where a rule names something; the rule's beginning if that isn't found."""
        found = (
            re.compile(rf"(?<![\w]){re.escape(name)}").search(self._rules.text, rule.position)
            if name
            else None
        )
        return found.start() if found else min(rule.position, len(self._rules.text))

    # --- boxes

    def _collect(self, rule: Rule) -> list[Box]:
        """Returns the boxes of a rule's rest: the rule itself if it is stateless."""
        keeps = self._keeping.get(rule.actions)
        if keeps is None:
            effect_of(self._schema, rule.actions)
            keeps = any(isinstance(action, Update) for action in rule.actions)
            self._keeping[rule.actions] = keeps
        self._keeps_state = keeps
        rest = normal_form(rule.filter, self._stateless)
        if self._keeps_state:
            self._variables.collect(rule, rest)
        return rest

    def _boxes(self, rule: Rule) -> list[Box]:
        return normal_form(rule.filter, self._literal)

    def _stateless(self, constraint: Constraint, positive: bool) -> tuple[int, Bounds] | None:
        if is_state(self._schema, constraint):
            self._keeps_state = True
            return None
        return self._on_field(constraint, positive)

    def _literal(self, constraint: Constraint, positive: bool) -> tuple[int, Bounds] | None:
        """Returns the values for which a constraint holds, or doesn't; None if these are all."""
        if not is_state(self._schema, constraint):
            return self._on_field(constraint, positive)
        number = self._variables.number_of(constraint, self._rest)
        place = len(self._schema.fields) + number
        return self._whole(place, self._of_state(constraint), positive, 0, STATE_BITS)

    def _on_field(self, constraint: Constraint, positive: bool) -> tuple[int, Bounds] | None:
        attribute, constant = constraint.attribute, constraint.constant
        assert isinstance(attribute, Field)
        if positive and constant.__class__ is int and constraint.relation is Relation.EQ:
            return self._of_field(attribute, constraint)  # large sets name each value once
        key = (attribute, constraint.relation, constant, constant.__class__)  # as 1 equals True
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._of_field(attribute, constraint)
        if positive:
            return found
        return self._whole(found[0], found[1], False, ABSENT, self._schema.fields[found[0]].width)

    def _of_field(self, attribute: Field, constraint: Constraint) -> tuple[int, Bounds]:
        place = self._places.get(attribute, -1)
        if place < 0:
            place = self._places[attribute] = self._schema.field(attribute)
        field = self._schema.fields[place]
        return place, bounds_of(
            constraint.relation, constraint.constant, field.width, field.pad, attribute.path[-1]
        )

    def _of_state(self, constraint: Constraint) -> Bounds:
        attribute = constraint.attribute
        name = attribute.function if isinstance(attribute, Aggregate) else attribute.path[0]
        if isinstance(constraint.constant, str | bool):
            raise SchemaError(f"{name} is a number", name)
        return bounds_of(constraint.relation, constraint.constant, STATE_BITS, 0, name)

    def _whole(
        self, place: int, bounds: Bounds, positive: bool, low: int, width: int
    ) -> tuple[int, Bounds] | None:
        high = 1 << width
        found = bounds if positive else complement(bounds, low, high)
        return None if found == (low, high) else (place, found)

    # --- actions

    def _effect(self, actions: tuple[Action, ...]) -> Effect:
        updates = [self._variables.updated(one.variable) for one in actions if isinstance(one, Update)]
        alone = effect_of(self._schema, actions)
        return Effect(alone.ports, alone.custom, tuple(sorted(set(updates))))

    def _default(self) -> Effect:
        try:
            effect_of(self._schema, self._rules.default)
        except SchemaError as error:
            raise FilterError(error.reason, self._rules.text, 0) from error
        if any(isinstance(action, Update) for action in self._rules.default):
            raise FilterError("the default rule changes no state; write `not (...)`", self._rules.text, 0)
        return self._effect(self._rules.default)


def effect_of(schema: Schema, actions: tuple[Action, ...]) -> Effect:
    """Returns the effect of one rule's actions, without updates. Raises SchemaError."""
    ports = {port for action in actions if isinstance(action, Forward) for port in action.ports}
    customs = [_custom(schema, action) for action in actions if isinstance(action, Custom)]
    if schema.messages is not None:
        _check_of_messages(ports, customs)
    return Effect(tuple(sorted(ports)), customs[0] if customs else None)


def _check_of_messages(ports: set[int], customs: list[tuple[str, tuple[int, ...]]]) -> None:
    """Raises SchemaError if one message of several cannot have these actions."""
    if customs:
        raise SchemaError(
            f"{customs[0][0]} changes a whole packet; with query_messages a rule may only fwd or drop",
            customs[0][0],
        )
    if ports and max(ports) >= MASK_PORTS:
        raise SchemaError(
            f"with query_messages ports are 0 to {MASK_PORTS - 1}, not {max(ports)}", str(max(ports))
        )


def _custom(schema: Schema, action: Custom) -> tuple[str, tuple[int, ...]]:
    declared: CustomAction = schema.action(action.name)
    if len(action.arguments) != len(declared.parameters):
        raise SchemaError(
            f"{action.name} takes {len(declared.parameters)} arguments, not {len(action.arguments)}",
            action.name,
        )
    values = []
    for argument, parameter in zip(action.arguments, declared.parameters, strict=True):
        bounds = bounds_of(Relation.EQ, argument, parameter.width, 0, f"{action.name}'s {parameter.name}")
        if not bounds:
            raise SchemaError(
                f"{argument} does not fit {parameter.name}, of {parameter.width} bits", action.name
            )
        values.append(bounds[0])
    return action.name, tuple(values)


def joined(effects: list[Effect]) -> Effect:
    """Returns the effect of several actions, in the order of the file."""
    if len(effects) == 1:
        return effects[0]
    ports = {port for effect in effects for port in effect.ports}
    customs = [effect.custom for effect in effects if effect.custom is not None]
    updates = {update for effect in effects for update in effect.updates}
    return Effect(tuple(sorted(ports)), customs[0] if customs else None, tuple(sorted(updates)))
