"""A rule set that changes: a changed rule rebuilds only the part of the diagram inside its boxes.

The paper leaves this open (section V). The diagram of the rules that meet a box, and the old diagram, are joined:
inside the box the former holds, outside the latter. Nodes are found in one table, so what has not changed is the
same node. `changes` then writes the difference to a switch.

State is not kept here: rule sets with aggregates or updates are compiled whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..actions import Rule, Rules
from ..errors import FilterError
from .bounds import ABSENT, intersection
from .boxes import Box, both
from .diagram import Diagram, Level, expand, reduce
from .schema import Schema
from .terms import Effect, Translation, joined

LEAVES: Final = 1 << 24  # numbers of leaves; nodes are above
MAX_STATES: Final = 2_000_000
_FULL: Final = -1


class LiveRules:
    """Rules by number, with their diagram. `leaves[n]` is the effect of leaf n; leaf 0 matches no rule."""

    def __init__(self, schema: Schema, order: Sequence[int] | None = None) -> None:
        self.schema = schema
        self.order = tuple(order) if order is not None else tuple(range(len(schema.fields)))
        self.diagram = Diagram(LEAVES)
        self.leaves: list[Effect] = [Effect()]
        self.root = 0
        self._level = {field: level for level, field in enumerate(self.order)}
        self._leaf_numbers: dict[Effect, int] = {}
        self._boxes: dict[int, list[Box]] = {}
        self._effects: dict[int, Effect] = {}
        self._where: dict[object, set[int]] = {}
        self._next = 0

    def add(self, rules: Iterable[Rule]) -> list[int]:
        """Adds rules and returns their numbers. Raises FilterError."""
        numbers = []
        boxes: list[Box] = []
        for rule in rules:
            number = self._next
            self._next += 1
            self._boxes[number], self._effects[number] = self._translated(rule)
            for box in self._boxes[number]:
                self._where.setdefault(self._place(box), set()).add(number)
            boxes += self._boxes[number]
            numbers.append(number)
        self._rebuild(boxes)
        return numbers

    def remove(self, numbers: Iterable[int]) -> None:
        """Removes rules. Raises KeyError if there is none with a number."""
        boxes: list[Box] = []
        for number in numbers:
            gone = self._boxes.pop(number)
            del self._effects[number]
            for box in gone:
                self._where[self._place(box)].discard(number)
            boxes += gone
        self._rebuild(boxes)

    def leaf(self, values: Sequence[int]) -> Effect:
        """Returns what becomes of a packet, whose values are in the order of levels."""
        node = self.root
        while node >= LEAVES:
            node = self.diagram.run(node, values[self.diagram.level(node)])
        return self.leaves[node]

    def _translated(self, rule: Rule) -> tuple[list[Box], Effect]:
        found = Translation(self.schema, Rules((rule,))).terms()
        if found.variables:
            raise FilterError("rules with state are compiled whole", "", 0)
        return [term.box for term in found.terms], found.actions[0]

    # --- the part that changes

    def _place(self, box: Box) -> object:
        """Returns where rules that meet a box are looked for: its one value in the first field, if so."""
        bounds = dict(box).get(self.order[0])
        return bounds[0] if bounds is not None and len(bounds) == 2 and bounds[1] - bounds[0] == 1 else _FULL * 2

    def _rebuild(self, boxes: list[Box]) -> None:
        """Makes the diagram right inside some boxes; many of them are one part, the whole."""
        if len(boxes) > 64:
            self.root = self._built(list(self._boxes), ())
            return
        for box in boxes:
            self.root = self._joined(self.root, self._built(self._near(box), box), box)

    def _near(self, box: Box) -> list[int]:
        """Returns the rules that may match a packet of a box."""
        place = self._place(box)
        if place == _FULL * 2:
            return list(self._boxes)
        return sorted(self._where.get(place, set()) | self._where.get(_FULL * 2, set()))

    def _built(self, numbers: list[int], region: Box) -> int:
        """Returns the diagram of some rules; it counts only inside the region."""
        actions: dict[Effect, int] = {}
        terms: list[tuple[Box, int]] = []
        for number in numbers:
            action = actions.setdefault(self._effects[number], len(actions))
            terms += [(box, action) for box in self._boxes[number] if both(box, region) is not None]
        levels, roots = self._levels(terms, len(actions))
        grown = expand(levels, [roots], len(actions), MAX_STATES)
        effects = list(actions)
        leaves = [self._leaf_of([effects[action] for action in leaf]) for leaf in grown.leaves]
        return reduce(grown, self.diagram, leaves, 0)[0]

    def _levels(self, terms: list[tuple[Box, int]], actions: int) -> tuple[list[Level], list[int]]:
        from .compile import Remains

        remains = Remains(self.order)
        roots = sorted({remains.add(box, action) for box, action in terms})
        names = [self.schema.fields[place].name for place in self.order]
        domains = [(ABSENT, 1 << self.schema.fields[place].width) for place in self.order]
        return remains.levels(names, domains, actions), roots

    def _leaf_of(self, effects: list[Effect]) -> int:
        if not effects:
            return 0
        effect = joined(effects)
        found = self._leaf_numbers.setdefault(effect, len(self.leaves))
        if found == len(self.leaves):
            self.leaves.append(effect)
        return found

    def _joined(self, old: int, new: int, region: Box) -> int:
        """Returns the diagram that is `new` inside a region and `old` elsewhere."""
        inside = {self._level[field]: bounds for field, bounds in region}
        known: dict[tuple[int, int, int], int] = {}

        def at(old: int, new: int, level: int) -> int:
            if old == new:
                return old
            if level == len(self.order):
                return new
            key = (old, new, level)
            if key not in known:
                known[key] = self._cut(old, new, level, inside.get(level), at)
            return known[key]

        return at(old, new, 0)

    def _cut(self, old: int, new: int, level: int, bounds: tuple[int, ...] | None, at: object) -> int:
        """Returns the node of one level: both diagrams' runs, and the region's bounds, cut it."""
        assert callable(at)
        high = 1 << self.schema.fields[self.order[level]].width
        runs_old, runs_new = self._runs(old, level), self._runs(new, level)
        allowed = (ABSENT, high) if bounds is None else bounds
        cuts = sorted({*(cut for cut, _ in runs_old), *(cut for cut, _ in runs_new), *(b for b in allowed if b < high)})
        targets = []
        i = j = 0
        for cut in cuts:
            while i + 1 < len(runs_old) and runs_old[i + 1][0] <= cut:
                i += 1
            while j + 1 < len(runs_new) and runs_new[j + 1][0] <= cut:
                j += 1
            inside = bool(intersection(allowed, (cut, cut + 1)))
            targets.append(at(runs_old[i][1], runs_new[j][1], level + 1) if inside else runs_old[i][1])
        return self.diagram.node(level, cuts, targets)

    def _runs(self, node: int, level: int) -> list[tuple[int, int]]:
        """Returns (first value, target) of a node at a level; one run if it does not test it."""
        if self.diagram.level(node) != level:
            return [(ABSENT, node)]
        place = node - LEAVES
        return list(zip(self.diagram.cuts[place], self.diagram.targets[place], strict=True))
