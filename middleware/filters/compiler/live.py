"""A rule set that changes: a changed rule rebuilds only the part of the diagram inside its boxes.

The paper leaves this open (section V). The diagram of the rules that meet a box, and the old diagram, are
joined: inside the box the former holds, outside the latter. Nodes are found in one table, so what has not
changed is the same node. `changes` then writes the difference to a switch.

State is not kept here: rule sets with aggregates or updates are compiled whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ..actions import Rule, Rules
from ..errors import FilterError
from .bounds import ABSENT, Bounds, difference, intersection, union
from .boxes import EVERY, Box, both
from .diagram import Diagram, Level, expand, reduce
from .schema import Schema
from .terms import Effect, Translation, joined

LEAVES: Final = 1 << 24  # numbers of leaves; nodes are above
MAX_STATES: Final = 2_000_000
ANYWHERE: Final = -2  # a place: boxes with several values in the first field
NO_LAST: Final = -1  # of the box without attributes
MANY: Final = 64  # regions that are rebuilt one by one


Key = tuple[Effect, Box, int]
"""Boxes with one effect that differ in their last attribute alone: effect, the other attributes, the last
one.
"""


Deeper = Callable[[int, int, int], int]
"""Joins two nodes from a level on."""


class Group:
    """Boxes of one key: the allowed values of the last attribute by rule, and their union."""

    def __init__(self) -> None:
        self.members: dict[int, Bounds] = {}
        self.joined: Bounds = ()

    def join(self) -> Bounds:
        """Brings the union up to date; returns the values that came or went."""
        old = self.joined
        self.joined = union(self.members.values())
        return difference(old, self.joined)


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
        self._rules: dict[int, tuple[list[Box], Effect]] = {}
        self._places: dict[int, dict[Key, Group]] = {}
        self._next = 0

    def add(self, rules: Iterable[Rule]) -> list[int]:
        """Adds rules and returns their numbers. Raises FilterError, and then adds none."""
        translated = [self._translated(rule) for rule in rules]
        numbers = list(range(self._next, self._next + len(translated)))
        self._next += len(translated)
        touched: dict[Group, tuple[Key, int]] = {}
        for number, (boxes, effect) in zip(numbers, translated, strict=True):
            self._rules[number] = boxes, effect
            for box in boxes:
                group = self._group(box, effect, touched)
                values = box[-1][1] if box else ()
                had = group.members.get(number)
                group.members[number] = values if had is None else union((had, values))
        self._rebuild(touched)
        return numbers

    def remove(self, numbers: Iterable[int]) -> None:
        """Removes rules. Raises KeyError if there is none with a number."""
        touched: dict[Group, tuple[Key, int]] = {}
        for number in numbers:
            boxes, effect = self._rules.pop(number)
            for box in boxes:
                self._group(box, effect, touched).members.pop(number, None)
        self._rebuild(touched)

    def _group(self, box: Box, effect: Effect, touched: dict[Group, tuple[Key, int]]) -> Group:
        key = (effect, box[:-1], box[-1][0] if box else NO_LAST)
        place = self._place(box)
        group = self._places.setdefault(place, {}).setdefault(key, Group())
        touched[group] = key, place
        return group

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

    def _place(self, box: Box) -> int:
        """Returns where rules that meet a box are looked for: its one value in the first field, if it has
        one.
        """
        for attribute, bounds in box[:-1]:
            if attribute == self.order[0] and len(bounds) == 2 and bounds[1] - bounds[0] == 1:
                return bounds[0]
        return ANYWHERE

    def _rebuild(self, touched: dict[Group, tuple[Key, int]]) -> None:
        """Makes the diagram right where groups have changed; where many have, the whole."""
        regions: list[Box] = []
        for group, (key, place) in touched.items():
            changed = group.join()
            if key[2] == NO_LAST:
                regions.append(EVERY)
            elif changed:
                regions.append((*key[1], (key[2], changed)))
            if not group.members:
                del self._places[place][key]
        if len(regions) > MANY:
            self.root = self._built(EVERY)
            return
        for region in regions:
            self.root = self._joined(self.root, self._built(region), region)

    def _near(self, region: Box) -> Iterator[tuple[int, Box, Effect]]:
        """Yields the parts of rules that lie in a region, each with the number of the first such rule."""
        place = self._place(region)
        places = (place, ANYWHERE) if place != ANYWHERE else tuple(self._places)
        for one in dict.fromkeys(places):
            for (effect, head, last), group in self._places.get(one, {}).items():
                box = both(EVERY if last == NO_LAST else (*head, (last, group.joined)), region)
                if box is not None:
                    yield next(iter(group.members)), box, effect

    def _built(self, region: Box) -> int:
        """Returns the diagram of all rules; it counts only inside the region."""
        actions: dict[Effect, int] = {}
        near = sorted(self._near(region), key=lambda one: one[0])  # of custom actions the first one counts
        terms = [(box, actions.setdefault(effect, len(actions))) for _, box, effect in near]
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

    def _cut(self, old: int, new: int, level: int, bounds: Bounds | None, at: Deeper) -> int:
        """Returns the node of one level: both diagrams' runs, and the region's bounds, cut it."""
        high = 1 << self.schema.fields[self.order[level]].width
        runs_old, runs_new = self._runs(old, level), self._runs(new, level)
        allowed = (ABSENT, high) if bounds is None else bounds
        cuts = sorted(
            {*(cut for cut, _ in runs_old), *(cut for cut, _ in runs_new), *(b for b in allowed if b < high)}
        )
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
