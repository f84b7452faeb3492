"""The paper's binary diagram and its Algorithm 2, as printed: the reference for `diagram` and `tables`.

Grows exponentially; for tests, and for pictures of a few rules (Fig. 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from .bounds import ABSENT, Bounds, complement, intersection
from .boxes import Box
from .schema import Schema
from .terms import Effect, Terms, joined

MAX_NODES: Final = 5_000


class Predicate(Struct, frozen=True):
    """An atomic predicate: the field at `level` has one of `values`."""

    level: int
    values: Bounds


class Node(Struct, frozen=True):
    """A test: node `high` follows if it holds, else `low`. Leaves are numbers below `Binary.leaves`."""

    predicate: Predicate
    high: int
    low: int


class TooManyNodes(ValueError):
    """The binary diagram is too large for what it is meant for."""


class Binary:
    """The diagram of terms without state; `effects[n]` is leaf n, 0 the default."""

    def __init__(self, schema: Schema, terms: Terms, order: Sequence[int]) -> None:
        self._level = {field: level for level, field in enumerate(order)}
        self.domains = [(ABSENT, 1 << schema.fields[field].width) for field in order]
        self._terms = terms
        self.effects: list[Effect] = [terms.default]
        boxes = [term.box for term in terms.terms]
        self.predicates = self._predicates(boxes)
        self.nodes: dict[int, Node] = {}
        self._numbers: dict[Node | Effect, int] = {terms.default: 0}
        self._grown: dict[tuple[int, Bounds, frozenset[int]], int] = {}
        self.root = self._grow(0, (), frozenset(range(len(boxes))))

    def _predicates(self, boxes: Sequence[Box]) -> list[Predicate]:
        """Returns the atomic predicates in their order: by field, then by values."""
        found = {Predicate(self._level[field], values) for box in boxes for field, values in box}
        return sorted(found, key=lambda one: (one.level, one.values))

    def _grow(self, place: int, context: Bounds, terms: frozenset[int]) -> int:
        """Returns the node for the predicates from `place` on, by Shannon's expansion.

        `terms` may still hold; `context` is what the tests before say of the field of this predicate.
        """
        if place == len(self.predicates):
            return self._leaf(terms)
        predicate = self.predicates[place]
        if place == 0 or self.predicates[place - 1].level != predicate.level:
            context = self.domains[predicate.level]
        key = (place, context, terms)
        found = self._grown.get(key)
        if found is None:
            found = self._grown[key] = self._expanded(place, predicate, context, terms)
        return found

    def _expanded(self, place: int, predicate: Predicate, context: Bounds, terms: frozenset[int]) -> int:
        inside = intersection(context, predicate.values)
        outside = intersection(context, complement(predicate.values, *self.domains[predicate.level]))
        if not outside:  # reduction (iii): implied to be true
            return self._grow(place + 1, context, terms)
        without = frozenset(term for term in terms if not self._needs(term, predicate))
        if not inside:  # and to be false
            return self._grow(place + 1, context, without)
        high, low = self._grow(place + 1, inside, terms), self._grow(place + 1, outside, without)
        if high == low:  # reduction (ii)
            return high
        return self._number(Node(predicate, high, low))

    def _needs(self, term: int, predicate: Predicate) -> bool:
        box = self._terms.terms[term].box
        return any(self._level[f] == predicate.level and values == predicate.values for f, values in box)

    def _leaf(self, terms: frozenset[int]) -> int:
        actions = sorted({self._terms.terms[term].action for term in terms})
        if not actions:
            return 0
        return self._number(joined([self._terms.actions[action] for action in actions]))

    def _number(self, one: Node | Effect) -> int:
        """Returns the number of a node or leaf; equal ones have one (reduction (i)). Leaves are negative."""
        found = self._numbers.get(one)
        if found is not None:
            return found
        if isinstance(one, Effect):
            found = -len(self.effects)
            self.effects.append(one)
        else:
            found = len(self.nodes) + 1
            self.nodes[found] = one
            if found > MAX_NODES:
                raise TooManyNodes(f"the binary diagram has more than {MAX_NODES:,} nodes")
        self._numbers[one] = found
        return found

    def leaf(self, values: Sequence[int]) -> Effect:
        """Returns what becomes of a packet with these values, one for each level."""
        at = self.root
        while at > 0:
            node = self.nodes[at]
            value = values[node.predicate.level]
            inside = intersection(node.predicate.values, (value, value + 1))
            at = node.high if inside else node.low
        return self.effects[-at]

    # --- Algorithm 2

    def tables(self) -> list[dict[tuple[int, Bounds], int]]:
        """Returns, for each field, (state, values) -> state. Values of several paths between two nodes stay
        apart; they are disjoint.
        """
        found: list[dict[tuple[int, Bounds], int]] = [{} for _ in self.domains]
        for entry in self.entries():
            level = self.nodes[entry].predicate.level
            for values, after in self._paths(entry, level, self.domains[level]):
                found[level][entry, values] = after
        return found

    def entries(self) -> set[int]:
        """Returns the nodes with an edge from another field's part: the paper's In."""
        edges = [(node.predicate.level, to) for node in self.nodes.values() for to in (node.high, node.low)]
        found = {to for level, to in edges if to > 0 and self.nodes[to].predicate.level != level}
        return found | ({self.root} if self.root > 0 else set())

    def _paths(self, at: int, level: int, values: Bounds) -> Iterator[tuple[Bounds, int]]:
        if at <= 0 or self.nodes[at].predicate.level != level:
            yield values, at
            return
        node = self.nodes[at]
        inside = intersection(values, node.predicate.values)
        outside = intersection(values, complement(node.predicate.values, *self.domains[level]))
        yield from self._paths(node.high, level, inside)
        yield from self._paths(node.low, level, outside)
