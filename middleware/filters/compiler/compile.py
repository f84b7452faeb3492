"""The dynamic step of Camus (section V.B): rules to the entries of the static program's tables.

  rules -> boxes (DNF) -> diagram over header fields -> link -> diagram over state -> tables, groups

What remains of the rules once all header fields are known may depend on state. A *link* node then names the
variables that the packet needs, brings them up to date, and goes on to the tables of their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ..actions import Rules
from ..errors import FilterError
from .bounds import ABSENT
from .boxes import Box, merged
from .diagram import Diagram, Expansion, Level, expand, reduce
from .schema import STATE_BITS, QueryField, Schema
from .tables import CLASSES, EXACT, PREFIXES, RANGE, LevelTables, NotExact, level_tables
from .terms import Effect, Terms, Translation, joined
from .variables import Variable

MAX_STATES: Final = 2_000_000
KINDS: Final = {"range": RANGE, "exact": EXACT, "lpm": PREFIXES, "ternary": PREFIXES, "low": CLASSES}


class Compiled(Struct, frozen=True):
    """A compiled rule set. States are node numbers of `diagram`.

    Its levels are the query fields in `order`, then the link, then a level for each block of state.
    `leaves[n]` is the effect of leaf n; leaf 0 is the default. `groups` are the sets of several ports,
    numbered from 1.
    """

    schema: Schema
    rules: int
    order: tuple[int, ...]
    terms: Terms
    diagram: Diagram
    root: int
    leaves: list[Effect]
    fields: list[LevelTables]
    blocks: list[LevelTables]
    links: list[int]
    groups: dict[tuple[int, ...], int]

    @property
    def link_level(self) -> int:
        return len(self.order)

    @property
    def entries(self) -> int:
        """The entries of the fields' tables, of links and of state; leaves aren't among them."""
        return sum(tables.size() for tables in (*self.fields, *self.blocks)) + len(self.links)

    def variables(self, link: int) -> list[Variable]:
        """Returns the variables that a link takes into account."""
        numbers = self.diagram.cuts[link - self.diagram.leaves]
        return [self.terms.variables[number] for number in numbers]


def compile_rules(
    schema: Schema, rules: Rules, order: Sequence[int] | None = None, max_states: int = MAX_STATES
) -> Compiled:
    """Returns the entries for rules. `order`: places of all query fields, in the order of their tables.

    Raises FilterError at what is wrong in the rules, DiagramTooLarge if they need too many states.
    """
    terms = Translation(schema, rules).terms()
    build = _Build(
        schema,
        terms,
        len(rules.rules),
        tuple(order) if order is not None else tuple(range(len(schema.fields))),
    )
    try:
        return build.compiled(max_states)
    except NotExact as error:
        raise FilterError(str(error), rules.text, 0) from error


def everybody(leaves: Sequence[Effect]) -> tuple[int, ...]:
    """Returns all ports that some packet is sent to."""
    return tuple(sorted({port for effect in leaves for port in effect.ports}))


class Remains:
    """Remains of terms before each of some levels; equal ones have one number."""

    def __init__(self, attributes: Sequence[int]) -> None:
        self.place = {attribute: place for place, attribute in enumerate(attributes)}
        self._bounds: list[dict[tuple[int, ...], int]] = [{} for _ in attributes]
        self._known: list[dict[tuple[int, int], int]] = [{} for _ in attributes]

    def add(self, constraints: Box, last: int) -> int:
        """Returns the number, before the first level, of a conjunction after which `last` remains."""
        places = [-1] * len(self._bounds)
        for attribute, bounds in constraints:
            level = self.place[attribute]
            numbers = self._bounds[level]
            places[level] = numbers.setdefault(bounds, len(numbers))
        remain = last
        for level in range(len(places) - 1, -1, -1):
            known = self._known[level]
            remain = known.setdefault((places[level], remain), len(known))
        return remain

    def levels(self, names: Sequence[str], domains: Sequence[tuple[int, int]], last: int) -> list[Level]:
        """Returns the levels for `expand`; `last` is how many remains there are after the last."""
        found: list[Level] = []
        for place, name in enumerate(names):
            known = self._known[place]
            count = len(self._known[place + 1]) if place + 1 < len(names) else last
            low, high = domains[place]
            constraint = [one for one, _ in known]
            following = [after for _, after in known]
            found.append(Level(name, low, high, list(self._bounds[place]), constraint, following, count))
        return found


class _Build:
    """One compilation."""

    def __init__(self, schema: Schema, terms: Terms, rules: int, order: tuple[int, ...]) -> None:
        self.schema = schema
        self.rules = rules
        self.terms = terms
        self.order = order
        self.state_base = len(schema.fields)
        self.leaves: list[Effect] = [terms.default]
        self._leaf_numbers = {terms.default: 0} if terms.default.custom is None else {}

    def compiled(self, limit: int) -> Compiled:
        headers = Remains(self.order)
        names = [".".join(self.schema.fields[place].path) for place in self.order]
        domains = [(ABSENT, 1 << self.schema.fields[place].width) for place in self.order]
        if self.terms.variables:
            diagram, root = self._stateful(headers, names, domains, limit)
        else:
            diagram, root = self._stateless(headers, names, domains, limit)
        return self._finish(diagram, root)

    # --- without state

    def _stateless(
        self, headers: Remains, names: list[str], domains: list[tuple[int, int]], limit: int
    ) -> tuple[Diagram, int]:
        terms = merged((term.box, term.action) for term in self.terms.terms)
        roots = sorted({headers.add(box, action) for box, action in terms})
        count = len(self.terms.actions)
        grown = expand(headers.levels(names, domains, count), [roots], count, limit)
        leaf_nodes = self._leaf_nodes(grown)
        diagram = Diagram(len(self.leaves))
        return diagram, reduce(grown, diagram, leaf_nodes, 0)[0]

    def _leaf_nodes(self, grown: Expansion) -> list[int]:
        """Returns the leaf of each set of actions; sets with one effect are one leaf."""
        found: list[int] = []
        for actions in grown.leaves:
            if not actions:
                found.append(0)
                continue
            effect = joined([self.terms.actions[action] for action in actions])
            number = self._leaf_numbers.setdefault(effect, len(self.leaves))
            if number == len(self.leaves):
                self.leaves.append(effect)
            found.append(number)
        return found

    # --- with state

    def _stateful(
        self, headers: Remains, names: list[str], domains: list[tuple[int, int]], limit: int
    ) -> tuple[Diagram, int]:
        """Builds the diagram over fields, whose leaves are sets of rests of rules and of variables; then, for
        each set, that over state.
        """
        blocks = range(len(self.schema.counters))
        states = Remains(blocks)
        access = len(self.terms.variables)  # numbers below are variables, others `access` + a rest of a rule
        rests: dict[int, int] = {}
        roots: set[int] = set()
        for number, variable in enumerate(self.terms.variables):
            roots.update(headers.add(box, number) for box in variable.rest)
        for term in self.terms.terms:
            header, state = self._split(term.box)
            rest = rests.setdefault(states.add(state, term.action), len(rests))
            roots.add(headers.add(header, access + rest))
        count = access + len(rests)
        grown = expand(headers.levels(names, domains, count), [sorted(roots)], count, limit)
        remains = list(rests)
        wanted = [[remains[n - access] for n in leaf if n >= access] for leaf in grown.leaves]
        state_levels = states.levels(
            [counter.name for counter in self.schema.counters],
            [(0, 1 << STATE_BITS)] * len(blocks),
            len(self.terms.actions),
        )
        after = expand(state_levels, wanted, len(self.terms.actions), limit)
        leaf_nodes = self._leaf_nodes(after)
        diagram = Diagram(len(self.leaves))
        link = len(self.order)
        inner = reduce(after, diagram, leaf_nodes, link + 1)
        used = [[n for n in leaf if n < access] for leaf in grown.leaves]
        linked = [
            diagram.link(link, numbers, node) if numbers else node
            for numbers, node in zip(used, inner, strict=True)
        ]
        return diagram, reduce(grown, diagram, linked, 0)[0]

    def _split(self, box: Box) -> tuple[Box, Box]:
        """Returns the constraints on fields, and those on state by block."""
        header = tuple(one for one in box if one[0] < self.state_base)
        state = tuple(
            (self.terms.variables[attribute - self.state_base].block, bounds)
            for attribute, bounds in box
            if attribute >= self.state_base
        )
        return header, state

    # --- tables

    def _finish(self, diagram: Diagram, root: int) -> Compiled:
        link = len(self.order)
        nodes: list[list[int]] = [[] for _ in range(link + 1 + len(self.schema.counters))]
        for node in self._reached(diagram, root):
            nodes[diagram.level(node)].append(node)
        fields = [
            self._field_tables(diagram, nodes[place], self.schema.fields[field])
            for place, field in enumerate(self.order)
        ]
        blocks = [
            level_tables(diagram, nodes[link + 1 + place], 0, 1 << STATE_BITS, RANGE, STATE_BITS)
            for place in range(len(self.schema.counters))
        ]
        groups: dict[tuple[int, ...], int] = {}
        for effect in self.leaves:
            if len(effect.ports) > 1:
                groups.setdefault(effect.ports, len(groups) + 1)
        if self.schema.messages is not None:
            groups.setdefault(everybody(self.leaves), len(groups) + 1)
        return Compiled(
            self.schema,
            self.rules,
            self.order,
            self.terms,
            diagram,
            root,
            self.leaves,
            fields,
            blocks,
            nodes[link],
            groups,
        )

    def _reached(self, diagram: Diagram, root: int) -> list[int]:
        """Returns the nodes below the root, each once, rising."""
        seen = {root}
        left = [root]
        while left:
            node = left.pop()
            if node >= diagram.leaves:
                new = set(diagram.targets[node - diagram.leaves]) - seen
                seen |= new
                left += new
        return sorted(node for node in seen if node >= diagram.leaves)

    def _field_tables(self, diagram: Diagram, nodes: list[int], field: QueryField) -> LevelTables:
        kind = KINDS[field.kind]
        try:
            tables = level_tables(diagram, nodes, ABSENT, 1 << field.width, kind, field.width)
        except NotExact as error:
            raise NotExact(
                f"{'.'.join(field.path)} is matched exactly, but {error}; declare it with query_field"
            ) from error
        if kind == CLASSES and len(tables.classes) > 1 << field.bits:
            raise NotExact(
                f"{'.'.join(field.path)}: the rules tell {len(tables.classes):,} classes of values "
                f"apart, and {field.bits} bits hold {1 << field.bits:,}"
            )
        return tables
