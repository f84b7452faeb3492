"""The meaning of rules, written plainly: the reference for diagram, tables and programs.

Walks each rule's tree for each packet, and keeps each rule's state by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..actions import Rule, Rules, Update
from ..tree import Aggregate, And, Constraint, Field, Filter, Not, aggregates
from .bounds import bounds_of, contains
from .schema import STATE_BITS, Schema
from .terms import Effect, effect_of, joined
from .variables import is_state

Values = Sequence[int | None]
"""A packet: the value of each query field of the schema, None if its header isn't there."""

_MOST = (1 << STATE_BITS) - 1


class Window(Struct):
    """One variable's state: what the packets of window `number` add up to."""

    number: int = -1
    count: int = 0
    total: int = 0

    def begin(self, number: int) -> None:
        """Starts at nothing if the window has changed."""
        if number != self.number:
            self.number, self.count, self.total = number, 0, 0

    def add(self, value: int) -> None:
        self.count += 1
        self.total = min(self.total + value, _MOST)

    def value(self, function: str) -> int:
        if function == "avg":
            return self.total // self.count if self.count else 0
        return self.count if function == "count" else self.total


class Direct:
    """Rules on packets, one after the other."""

    def __init__(self, schema: Schema, rules: Rules) -> None:
        self._schema = schema
        self._rules = rules
        self._aggregates: dict[tuple[int, Aggregate], Window] = {}
        self._named = {counter.name: Window() for counter in schema.counters}
        self._functions: dict[str, str] = {}
        for rule in rules.rules:
            for update in _updates(rule):
                self._functions[update.variable] = update.function

    def receive(self, packet: Values, now: int) -> Effect:
        """Returns what becomes of a packet at `now`, in µs; `updates` stay empty."""
        matching = self.matching(packet, now)
        self._act(matching, packet)
        ordered = sorted(matching, key=self._first)
        actions = [rule.actions for rule in ordered] or [self._rules.default]
        found = joined([effect_of(self._schema, one) for one in actions])
        return Effect(found.ports, found.custom)

    def matching(self, packet: Values, now: int) -> list[Rule]:
        """Returns the rules that match a packet. Takes it into account in aggregates, not in named
        variables.
        """
        rules = self._rules.rules
        for place, rule in enumerate(rules):
            if self._holds(rule.filter, packet, True, None):
                for aggregate in aggregates(rule.filter):
                    self._add(place, aggregate, packet, now)
        for name, window in self._named.items():
            window.begin(now // self._window(name))
        return [rule for place, rule in enumerate(rules) if self._holds(rule.filter, packet, True, place)]

    def _first(self, rule: Rule) -> int:
        """Returns where the file first has these actions."""
        return next(n for n, one in enumerate(self._rules.rules) if one.actions == rule.actions)

    def _holds(self, tree: Filter, packet: Values, positive: bool, rule: int | None) -> bool:
        """Returns whether a filter, or its negation, holds; for rule None with all state taken as true."""
        match tree:
            case Not(part):
                return self._holds(part, packet, not positive, rule)
            case Constraint():
                if is_state(self._schema, tree):
                    return rule is None or self._state_holds(tree, rule) is positive
                return self._field_holds(tree, packet) is positive
        parts = (self._holds(part, packet, positive, rule) for part in tree.parts)
        return all(parts) if isinstance(tree, And) is positive else any(parts)

    def _field_holds(self, constraint: Constraint, packet: Values) -> bool:
        assert isinstance(constraint.attribute, Field)
        place = self._schema.field(constraint.attribute)
        value, field = packet[place], self._schema.fields[place]
        allowed = bounds_of(constraint.relation, constraint.constant, field.width, field.pad, field.name)
        return value is not None and contains(allowed, value)

    def _state_holds(self, constraint: Constraint, rule: int) -> bool:
        attribute = constraint.attribute
        allowed = bounds_of(constraint.relation, constraint.constant, STATE_BITS, 0, "state")
        if isinstance(attribute, Aggregate):
            window = self._aggregates.get((rule, attribute), Window())
            return contains(allowed, window.value(attribute.function))
        name = attribute.path[0]
        return contains(allowed, self._named[name].value(self._functions.get(name, "count")))

    # --- state

    def _add(self, rule: int, aggregate: Aggregate, packet: Values, now: int) -> None:
        """Adds a packet to one aggregate of a rule."""
        window = self._aggregates.setdefault((rule, aggregate), Window())
        window.begin(now // self._window(self._block(aggregate)))
        self._count(window, self._argument(aggregate.arguments), packet)

    def _act(self, matching: Iterable[Rule], packet: Values) -> None:
        done = {update.variable: update for rule in matching for update in _updates(rule)}
        for name, update in done.items():
            self._count(self._named[name], self._argument(update.arguments), packet)

    def _count(self, window: Window, argument: int | None, packet: Values) -> None:
        value = 0 if argument is None else packet[argument]
        if value is not None:
            window.add(value)

    def _argument(self, fields: Iterable[Field]) -> int | None:
        """Returns the place of the query field among an aggregate's arguments."""
        for field in fields:
            if len(field.path) > 1 or self._schema.counter(field.path[0]) is None:
                return self._schema.field(field)
        return None

    def _block(self, aggregate: Aggregate) -> str:
        names = [field.path[0] for field in aggregate.arguments if len(field.path) == 1]
        named = [name for name in names if self._schema.counter(name) is not None]
        return named[0] if named else self._schema.counters[0].name

    def _window(self, name: str) -> int:
        return next(counter.window for counter in self._schema.counters if counter.name == name)


def _updates(rule: Rule) -> list[Update]:
    return [action for action in rule.actions if isinstance(action, Update)]
