"""A packet through compiled tables, as the generated program does it: for `explain`, and for tests.

Each lookup is done on the entries alone: the diagram is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from .compile import Compiled
from .direct import Window
from .tables import LevelTables, place_of
from .terms import Effect
from .variables import AVG, NO_FIELD, Variable

_NAMES = {1: "count", 2: "sum", AVG: "avg"}
NOWHERE = 0


class Step(Struct, frozen=True):
    """One lookup: the table, its part that hit ("" if none), the state before and after, and the value."""

    table: str
    part: str
    state: int
    value: int | None
    after: int


class TableMachine:
    """A compiled rule set with the state of its variables."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self._windows = [Window() for _ in compiled.terms.variables]
        self._fields = [_Index(tables) for tables in compiled.fields]
        self._blocks = [_Index(tables) for tables in compiled.blocks]

    def receive(self, packet: Sequence[int | None], now: int) -> Effect:
        """Returns what becomes of a packet at `now`, in µs."""
        _, leaf = self.trace(packet, now)
        found = self.compiled.leaves[leaf]
        for number in found.updates:
            self._add(self.compiled.terms.variables[number], number, packet)
        return Effect(found.ports, found.custom)

    def trace(self, packet: Sequence[int | None], now: int) -> tuple[list[Step], int]:
        """Returns all lookups and the leaf. Aggregates change, named variables don't."""
        state = self.compiled.root
        steps = list(self._over_fields(state, packet))
        state = steps[-1].after if steps else state
        diagram = self.compiled.diagram
        if diagram.level(state) == self.compiled.link_level:
            numbers = diagram.cuts[state - diagram.leaves]
            after = diagram.targets[state - diagram.leaves][0]
            steps.append(Step("link", "exact", state, None, after))
            values = {self.compiled.terms.variables[n].block: self._linked(n, packet, now) for n in numbers}
            for block, index in enumerate(self._blocks):
                if diagram.level(after) == self.compiled.link_level + 1 + block:
                    steps.append(
                        index.look_up(self.compiled.schema.counters[block].name, after, values[block])
                    )
                    after = steps[-1].after
            state = after
        return steps, state

    def _over_fields(self, state: int, packet: Sequence[int | None]) -> Iterator[Step]:
        for level, place in enumerate(self.compiled.order):
            if self.compiled.diagram.level(state) == level:
                step = self._fields[level].look_up(
                    self.compiled.schema.fields[place].key, state, packet[place]
                )
                yield step
                state = step.after

    def _linked(self, number: int, packet: Sequence[int | None], now: int) -> int:
        """Brings a variable up to date and returns its value."""
        variable = self.compiled.terms.variables[number]
        window = self._windows[number]
        window.begin(now // self.compiled.schema.counters[variable.block].window)
        if not variable.name:
            self._add(variable, number, packet)
        return window.value(_NAMES[variable.function])

    def _add(self, variable: Variable, number: int, packet: Sequence[int | None]) -> None:
        value = 0 if variable.argument == NO_FIELD else packet[variable.argument]
        if value is not None:
            self._windows[number].add(value)


class _Index:
    """One field's entries by what they match."""

    def __init__(self, tables: LevelTables) -> None:
        self._classes = tables.classes
        self._exact = dict(
            zip(zip(tables.exact_state, tables.exact_value, strict=True), tables.exact_target, strict=True)
        )
        self._rest = dict(zip(tables.rest_state, tables.rest_target, strict=True))
        self._absent = dict(zip(tables.absent_state, tables.absent_target, strict=True))
        self._spans: dict[int, list[tuple[int, int, int]]] = {}
        columns = zip(tables.span_state, tables.span_low, tables.span_high, tables.span_target, strict=True)
        for state, low, high, target in columns:
            self._spans.setdefault(state, []).append((low, high, target))

    def look_up(self, table: str, state: int, value: int | None) -> Step:
        if value is None:
            part = "absent" if state in self._absent else ""
            return Step(table, part, state, value, self._absent.get(state, NOWHERE))
        key = place_of(self._classes, value) if self._classes else value
        if (state, key) in self._exact:
            return Step(table, "exact", state, value, self._exact[state, key])
        for low, high, target in self._spans.get(state, ()):
            if low <= key <= high:
                return Step(table, "span", state, value, target)
        part = "rest" if state in self._rest else ""
        return Step(table, part, state, value, self._rest.get(state, NOWHERE))
