"""The writes that bring a switch from one rule set to another, in an order in which no packet is misrouted.

After every single write each packet gets what the old rules say or what the new ones say.

1. Multicast groups and states that are new are written: nothing leads to them yet.
2. States that change in place: new exact entries, then new spans, above those of the state that are there;
then
   `rest` and `absent`; then entries that are gone. Each write moves some values from their old target to
   their new one.
3. If the first state is another one, the root's default action. One write moves all packets.
4. States and groups that nothing leads to any more are deleted.

A state changes in place if all packets that come to it before come to it afterwards, and no others: the first
state, and below it a state with one way in whose values stay the same. All other states never change.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from .bounds import ABSENT
from .compile import KINDS
from .live import LEAVES, LiveRules
from .schema import SchemaError
from .tables import CLASSES, LevelTables, add_node
from .terms import Effect

FIRST_STATE: Final = 1


class Kind(enum.Enum):
    """The kinds of writes to entries."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


class Place(Struct, frozen=True):
    """An entry without its action: the part of a level's table, the state, and the values if it matches
    any.
    """

    level: int
    part: str
    state: int
    low: int = 0
    high: int = 0


class Step(Struct, frozen=True):
    """A write of an entry that goes on to `target`. `at` is the target's level, -1 of a leaf."""

    kind: Kind
    place: Place
    target: int = 0
    at: int = -1
    priority: int = 0


class LeafStep(Struct, frozen=True):
    """A write of a leaf's entries."""

    kind: Kind
    state: int
    effect: Effect


class GroupStep(Struct, frozen=True):
    """A write of a multicast group."""

    kind: Kind
    group: int
    ports: tuple[int, ...]


class RootStep(Struct, frozen=True):
    """The first state becomes another one."""

    state: int
    at: int


Write = Step | LeafStep | GroupStep | RootStep


class State(Struct):
    """A state on the switch: its level (-1: a leaf), its runs' first values and targets, its entries."""

    level: int
    cuts: list[int]
    targets: list[int]
    entries: dict[Place, tuple[int, int]]
    effect: Effect
    uses: int = 0
    node: int = -1


class Installed:
    """The states that a switch holds of a `LiveRules`. Call `change` after each change and do its writes,
    all and in order.
    """

    def __init__(self, rules: LiveRules) -> None:
        if any(field.kind == "low" for field in rules.schema.fields):
            raise SchemaError("low-resolution domains are written whole: a new class may change every state")
        if rules.schema.messages is not None:
            raise SchemaError(
                "packets with several messages: rules are written whole, with everybody's group"
            )
        self._rules = rules
        self._states: dict[int, State] = {0: State(-1, [], [], {}, Effect(), 1, 0)}
        self._of_node: dict[int, int] = {0: 0}
        self._groups: dict[tuple[int, ...], int] = {}
        self._group_uses: Counter[tuple[int, ...]] = Counter()
        self._free_states: list[int] = []
        self._free_groups: list[int] = []
        self._priority = 1
        self.root = 0

    def group(self, ports: tuple[int, ...]) -> int:
        """Returns the number of a group that exists."""
        return self._groups[ports]

    def change(self) -> Iterator[Write]:
        """Yields the writes to the rules as they are now."""
        new = self._rules.root
        old = self.root
        if self._states[old].node == new:
            return
        in_place = self._in_place(old, new)
        kept = set(in_place.values())
        for state in kept:  # their nodes get other states, if they are still needed elsewhere
            self._of_node.pop(self._states[state].node, None)
        self._of_node |= in_place
        yield from self._new_states(new, in_place)
        gone: list[int] = []
        for node, state in in_place.items():
            yield from self._altered(node, state, gone)
        root = self._of_node[new]
        if root != old:
            self._states[root].uses += 1
            self.root = root
            yield RootStep(root, self._states[root].level)
            gone.append(old)
        self._priority += 1
        yield from self._dropped(gone)

    # --- which states stay

    def _in_place(self, old: int, new: int) -> dict[int, int]:
        """Returns the states that change in place, by their new nodes, the first state first."""
        found: dict[int, int] = {}
        uses = self._uses_below(new)
        pairs = [(old, new)]
        while pairs:
            state, node = pairs.pop()
            level = self._level(node)
            if state == 0 or level < 0 or self._states[state].level != level or node in self._of_node:
                continue
            found[node] = state
            before, after = self._values(*self._state_runs(state)), self._values(*self._node_runs(node))
            for values, child in before.items():
                other = after.get(values)
                if other is not None and uses[other] == 1 and self._states[child].uses == 1 and child != 0:
                    pairs.append((child, other))
        return found

    def _uses_below(self, root: int) -> Counter[int]:
        """Returns how many runs lead to each node that has no state yet."""
        uses: Counter[int] = Counter({root: 1})
        left, seen = [root], {root}
        while left:
            node = left.pop()
            if node in self._of_node or node < LEAVES:
                continue
            for target in self._node_runs(node)[1]:
                uses[target] += 1
                if target not in seen:
                    seen.add(target)
                    left.append(target)
        return uses

    def _values(self, cuts: list[int], targets: list[int]) -> dict[tuple[int, int], int]:
        """Returns the targets by the values that lead to them: the bounds of single runs."""
        ends = [*cuts[1:], -1]
        return {(low, end): target for low, end, target in zip(cuts, ends, targets, strict=True)}

    def _level(self, node: int) -> int:
        return self._rules.diagram.level(node)

    def _node_runs(self, node: int) -> tuple[list[int], list[int]]:
        place = node - LEAVES
        return self._rules.diagram.cuts[place], self._rules.diagram.targets[place]

    def _state_runs(self, state: int) -> tuple[list[int], list[int]]:
        return self._states[state].cuts, self._states[state].targets

    # --- writes

    def _new_states(self, root: int, in_place: dict[int, int]) -> Iterator[Write]:
        """Writes what has no state yet, targets before what leads to them."""
        left = [root]
        seen: set[int] = set()
        while left:
            node = left[-1]
            if node in self._of_node and node not in in_place:
                left.pop()
                continue
            below = self._node_runs(node)[1] if node >= LEAVES else []
            missing = [
                one for one in below if (one not in self._of_node or one in in_place) and one not in seen
            ]
            if missing and node not in seen:
                left += missing
                seen.add(node)
                continue
            seen.add(node)
            left.pop()
            if node not in self._of_node:
                yield from self._created(node)

    def _created(self, node: int) -> Iterator[Write]:
        number = self._free_states.pop() if self._free_states else len(self._states) + len(self._free_states)
        if node < LEAVES:
            effect = self._rules.leaves[node]
            yield from self._use_group(effect.ports)
            self._states[number] = State(-1, [], [], {}, effect, 0, node)
            self._of_node[node] = number
            yield LeafStep(Kind.INSERT, number, effect)
            return
        cuts, targets = self._node_runs(node)
        after = [self._of_node[target] for target in targets]
        entries = self._entries(self._level(node), number, cuts, after)
        self._states[number] = State(self._level(node), list(cuts), after, entries, Effect(), 0, node)
        self._of_node[node] = number
        self._use(after)
        for place in entries:
            yield self._step(Kind.INSERT, place, entries[place])

    def _altered(self, node: int, number: int, gone: list[int]) -> Iterator[Write]:
        """Writes the difference of a state that changes in place; `gone` gets the targets that it leaves."""
        state = self._states[number]
        cuts, targets = self._node_runs(node)
        after = [self._of_node[target] for target in targets]
        old, new = state.entries, self._entries(state.level, number, cuts, after)
        self._use(after)
        for part in ("exact", "span", "rest", "absent"):
            for place, (target, priority) in new.items():
                if place.part != part:
                    continue
                if place not in old:
                    yield self._step(Kind.INSERT, place, (target, priority))
                elif old[place][0] != target:
                    new[place] = (target, old[place][1])
                    yield self._step(Kind.MODIFY, place, new[place])
                else:
                    new[place] = old[place]
            if part in ("rest", "absent"):
                left = [place for place in old if place.part == part and place not in new]
                for place in left:
                    yield self._step(Kind.DELETE, place, old[place])
        for place in old:
            if place not in new and place.part in ("exact", "span"):
                yield self._step(Kind.DELETE, place, old[place])
        gone += state.targets
        state.cuts, state.targets, state.entries, state.node = list(cuts), after, new, node

    def _step(self, kind: Kind, place: Place, entry: tuple[int, int]) -> Step:
        target, priority = entry
        level = self._states[target].level if target in self._states else -1
        return Step(kind, place, target, level, priority)

    def _entries(
        self, level: int, state: int, cuts: list[int], targets: list[int]
    ) -> dict[Place, tuple[int, int]]:
        """Returns a state's entries: their target and priority."""
        field = self._rules.schema.fields[self._rules.order[level]]
        kind = KINDS[field.kind]
        assert kind != CLASSES
        tables = LevelTables()
        add_node(tables, state, list(cuts), targets, ABSENT, 1 << field.width, kind, field.width)
        found: dict[Place, tuple[int, int]] = {}
        for value, target in zip(tables.exact_value, tables.exact_target, strict=True):
            found[Place(level, "exact", state, value, value)] = (target, 0)
        priority = 0 if field.kind == "lpm" else self._priority
        for low, high, target in zip(tables.span_low, tables.span_high, tables.span_target, strict=True):
            found[Place(level, "span", state, low, high)] = (target, priority)
        for target in tables.rest_target:
            found[Place(level, "rest", state)] = (target, 0)
        for target in tables.absent_target:
            found[Place(level, "absent", state)] = (target, 0)
        return found

    # --- uses

    def _use(self, states: list[int]) -> None:
        for state in states:
            self._states[state].uses += 1

    def _use_group(self, ports: tuple[int, ...]) -> Iterator[Write]:
        if len(ports) > 1:
            self._group_uses[ports] += 1
            if ports not in self._groups:
                number = self._free_groups.pop() if self._free_groups else len(self._groups) + 1
                self._groups[ports] = number
                yield GroupStep(Kind.INSERT, number, ports)

    def _dropped(self, gone: list[int]) -> Iterator[Write]:
        """Takes one use from each of the states; deletes those without any, and what only these use."""
        while gone:
            number = gone.pop()
            state = self._states[number]
            state.uses -= 1
            if state.uses or number == 0:
                continue
            del self._states[number]
            if self._of_node.get(state.node) == number:
                del self._of_node[state.node]
            self._free_states.append(number)
            if state.level < 0:
                yield LeafStep(Kind.DELETE, number, state.effect)
                yield from self._leave_group(state.effect.ports)
                continue
            for place, entry in state.entries.items():
                yield self._step(Kind.DELETE, place, entry)
            gone += state.targets

    def _leave_group(self, ports: tuple[int, ...]) -> Iterator[Write]:
        if len(ports) > 1:
            self._group_uses[ports] -= 1
            if not self._group_uses[ports]:
                number = self._groups.pop(ports)
                self._free_groups.append(number)
                yield GroupStep(Kind.DELETE, number, ports)
