"""A search for the order of the fields' tables (Camus leaves the order to a heuristic).

The size of a diagram depends on the order of its levels, and the best order is hard to find. `searched`
starts with the better of two orders, as the header description has the fields and those first that rules
narrow most, and moves one field to another place as long as this saves entries. `best` tries all and is the
reference for few fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from math import log2
from typing import Final

from msgspec import Struct

from ..actions import Rules
from .bounds import intervals
from .compile import MAX_STATES, compile_rules
from .diagram import DiagramTooLarge
from .schema import Schema
from .terms import Translation

Order = tuple[int, ...]
Shuffle = Callable[[list[tuple[int, int]]], None]
"""A seeded generator's `shuffle`."""
TOO_LARGE: Final = 1 << 62  # the cost of an order whose diagram has too many states


class Found(Struct, frozen=True):
    """An order, its entries, those of the description's order, and how many orders were compiled."""

    order: Order
    entries: int
    before: int
    tried: int


class _Costs:
    """Entries by order, each order compiled once. `most` orders are compiled."""

    def __init__(self, schema: Schema, rules: Rules, most: int, states: int) -> None:
        self._schema, self._rules, self._most, self._states = schema, rules, most, states
        self.known: dict[Order, int] = {}

    def of(self, order: Order) -> int:
        """Returns the entries; TOO_LARGE once `most` orders were compiled."""
        if order in self.known:
            return self.known[order]
        if len(self.known) >= self._most:
            return TOO_LARGE
        try:
            cost = compile_rules(self._schema, self._rules, order, self._states).entries
        except DiagramTooLarge:
            cost = TOO_LARGE
        self.known[order] = cost
        return cost


def searched(schema: Schema, rules: Rules, most: int, shuffle: Shuffle, states: int = MAX_STATES) -> Found:
    """Returns the best order of at most `most` that the search compiles, never worse than the description's.

    Raises FilterError for wrong rules, DiagramTooLarge if the diagram of no order fits in `states`.
    """
    costs = _Costs(schema, rules, max(1, most), states)
    given = tuple(range(len(schema.fields)))
    before = costs.of(given)
    best = min(given, narrow_first(schema, rules), key=costs.of)
    moves = [(at, to) for at in given for to in given if at != to]
    while len(costs.known) < most:
        shuffle(moves)
        better = next((one for one in _moved(best, moves) if costs.of(one) < costs.of(best)), None)
        if better is None:
            break
        best = better
    if costs.of(best) == TOO_LARGE:
        raise DiagramTooLarge(states, ".".join(schema.fields[best[0]].path))
    return Found(best, costs.of(best), before, len(costs.known))


def best(schema: Schema, rules: Rules) -> Found:
    """Returns the first order with the fewest entries, of all: the reference, for few fields."""
    orders = list(permutations(range(len(schema.fields))))
    costs = _Costs(schema, rules, len(orders), MAX_STATES)
    found = min(orders, key=costs.of)
    return Found(found, costs.of(found), costs.of(orders[0]), len(orders))


def narrow_first(schema: Schema, rules: Rules) -> Order:
    """Returns the fields by how many bits rules fix of them, most first: these part rules soonest."""
    bits = [0.0] * len(schema.fields)
    for term in Translation(schema, rules).terms().terms:
        for place, bounds in term.box:
            if place < len(bits):
                values = sum(high - low for low, high in intervals(bounds))
                bits[place] += schema.fields[place].width - log2(values)
    return tuple(sorted(range(len(bits)), key=lambda place: -bits[place]))


def _moved(order: Order, moves: Sequence[tuple[int, int]]) -> list[Order]:
    """Returns the order with one field at another place, for each move."""
    found = []
    for at, to in moves:
        rest = [*order[:at], *order[at + 1 :]]
        rest.insert(to, order[at])
        found.append(tuple(rest))
    return found
