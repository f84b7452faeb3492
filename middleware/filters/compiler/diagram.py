"""The decision diagram of a rule set: an ordered multi-terminal BDD, a node for all tests of one field.

Camus' BDD (section V.C) orders its predicates by field, so that all tests of one field on one way lie
together. Such a part has one way in and as many ways out as the field's values tell apart. Here it is one
node: a cut of the field's domain into runs, and a target for each. The paper's reductions then are:

  (i)   isomorphic nodes are one: equal cuts and targets, found in one table of nodes
  (ii)  a redundant node, all of whose runs lead to one target, is that target
  (iii) predicates that another implies never arise: the runs are disjoint

For a given order of fields, rules with the same meaning have the same diagram. `reference` builds the paper's
binary diagram; tests hold both equal.

The diagram is built in two passes over all levels, without recursion. `expand` goes down: a state is the
set of rules that may still match, as what remains of them (rules with equal remains are one). `reduce`
comes up and joins states that mean the same. A field's sweep costs O(n log n) in the number of its rules'
bounds.

Compiled by mypyc; values of up to 128 bits are Python's integers.
"""

from __future__ import annotations

from typing import Final

_SMALL: Final = 1024  # remains that fit one integer as a set
_SPARSE: Final = 32  # a set with fewer than 1/32 of all is kept as a tuple


class DiagramTooLarge(ValueError):
    """The rules need more states than allowed."""

    def __init__(self, limit: int, name: str) -> None:
        self.limit = limit
        super().__init__(
            f"the diagram of these rules has more than {limit:,} states at {name}; order the fields "
            "otherwise, loosen numbers (--alpha), or allow more (--states)"
        )


class Level:
    """One field: the cut of its domain [low, high) by what remains of rules before it.

    Remains are numbered. `constraint[r]` is the place in `bounds` of remain r's values, or -1 for all.
    `following[r]` is what then remains, of `count` at the next level; after the last level, an action.
    """

    def __init__(
        self,
        name: str,
        low: int,
        high: int,
        bounds: list[tuple[int, ...]],
        constraint: list[int],
        following: list[int],
        count: int,
    ) -> None:
        self.name = name
        self.low = low
        self.high = high
        self.bounds = bounds
        self.constraint = constraint
        self.following = following
        self.count = count


class States:
    """The states before one level, with what each becomes: `children[s][i]` from value `cuts[s][i]` on."""

    def __init__(self) -> None:
        self.cuts: list[list[int]] = []
        self.children: list[list[int]] = []


class Sets:
    """Sets of numbers below `count`, each with a number of its own, in the order of their first coming.

    `room`: how many members all of them may have together; negative: any number."""

    def __init__(self, count: int, room: int = -1) -> None:
        self.count = count
        self.room = room
        self._small: dict[int, int] = {}
        self._sparse: dict[tuple[int, ...], int] = {}
        self._dense: dict[bytes, int] = {}
        self.members: list[list[int]] = []

    def of_mask(self, mask: int) -> int:
        """Returns the number of a set of bits."""
        found = self._small.get(mask, -1)
        if found < 0:
            found = len(self.members)
            self._small[mask] = found
            self._add(bits_of(mask))
        return found

    def of_tuple(self, live: tuple[int, ...]) -> int:
        """Returns the number of a set of sorted numbers."""
        found = self._sparse.get(live, -1)
        if found < 0:
            found = len(self.members)
            self._sparse[live] = found
            self._add(list(live))
        return found

    def of_bytes(self, data: bytes) -> int:
        """Returns the number of a set of bits in bytes, the lowest first."""
        found = self._dense.get(data, -1)
        if found < 0:
            found = len(self.members)
            self._dense[data] = found
            self._add(bits_of(int.from_bytes(data, "little")))
        return found

    def _add(self, members: list[int]) -> None:
        self.members.append(members)
        if self.room >= 0:
            self.room -= len(members) + 1
            if self.room < 0:
                raise DiagramTooLarge(len(self.members), "sets of rules")

    def of_list(self, members: list[int]) -> int:
        """Returns the number of a set, as the sweep would form it."""
        live = Live(self)
        for member in members:
            live.enter(member)
        return live.number()


class Live:
    """A set that changes, by how often each member is in it."""

    def __init__(self, sets: Sets) -> None:
        self._sets = sets
        self._small = sets.count <= _SMALL
        self._mask = 0
        self._times: dict[int, int] = {}
        self._dense = bytearray(0 if self._small else (sets.count + 7) // 8)

    def enter(self, member: int) -> None:
        times = self._times.get(member, 0)
        self._times[member] = times + 1
        if times == 0:
            self._flip(member)

    def leave(self, member: int) -> None:
        times = self._times[member]
        if times > 1:
            self._times[member] = times - 1
        else:
            del self._times[member]
            self._flip(member)

    def _flip(self, member: int) -> None:
        if self._small:
            self._mask ^= 1 << member
        else:
            self._dense[member >> 3] ^= 1 << (member & 7)

    def number(self) -> int:
        """Returns the number of the set as it is."""
        if self._small:
            return self._sets.of_mask(self._mask)
        if len(self._times) * _SPARSE < self._sets.count:
            return self._sets.of_tuple(tuple(sorted(self._times)))
        return self._sets.of_bytes(bytes(self._dense))


def bits_of(mask: int) -> list[int]:
    """Returns the places of the bits that are set, rising."""
    found: list[int] = []
    data = mask.to_bytes((mask.bit_length() + 7) // 8, "little")
    for place in range(len(data)):
        byte = data[place]
        while byte:
            low = byte & -byte
            found.append(place * 8 + low.bit_length() - 1)
            byte ^= low
    return found


class Expansion:
    """The states of all levels; `leaves` are sets of actions, `roots` states of the first level."""

    def __init__(self, levels: list[States], leaves: list[list[int]], roots: list[int]) -> None:
        self.levels = levels
        self.leaves = leaves
        self.roots = roots


def expand(
    levels: list[Level], roots: list[list[int]], actions: int, limit: int, room: int = -1
) -> Expansion:
    """Returns all states that the sets of remains `roots` lead to. Raises DiagramTooLarge, also if the states
    of a level have more than `room` members together."""
    sets = Sets(len(levels[0].constraint) if levels else actions, room)
    numbers = [sets.of_list(root) for root in roots]
    found: list[States] = []
    total = 0
    for level in levels:
        following = Sets(level.count, room)
        states = States()
        for members in sets.members:
            _sweep(level, members, following, states)
            if total + len(following.members) > limit:
                raise DiagramTooLarge(limit, level.name)
        total += len(following.members)
        found.append(states)
        sets = following
    return Expansion(found, sets.members, numbers)


def _sweep(level: Level, members: list[int], sets: Sets, states: States) -> None:
    """Appends one state: goes through the field's values in order, and keeps what remains at each."""
    live = Live(sets)
    shift = level.count.bit_length() + 1
    events = _events(level, members, live, shift)
    low_bits = (1 << shift) - 1
    cuts: list[int] = []
    children: list[int] = []
    position, place, count, last = level.low, 0, len(events), -1
    while True:
        while place < count:
            event = events[place]
            if event >> shift != position:
                break
            code = event & low_bits
            if code & 1:
                live.enter(code >> 1)
            else:
                live.leave(code >> 1)
            place += 1
        child = live.number()
        if child != last:
            cuts.append(position)
            children.append(child)
            last = child
        if place == count:
            break
        position = events[place] >> shift
        if position >= level.high:
            break
    states.cuts.append(cuts)
    states.children.append(children)


def _events(level: Level, members: list[int], live: Live, shift: int) -> list[int]:
    """Returns where each remain begins and ceases to hold, in order: position, remain, whether it begins.
    What is not constrained is in `live` from the beginning.
    """
    events: list[int] = []
    for member in members:
        after = level.following[member] << 1
        place = level.constraint[member]
        if place < 0:
            live.enter(after >> 1)
            continue
        bounds = level.bounds[place]
        for edge in range(0, len(bounds), 2):
            events.append(bounds[edge] << shift | after | 1)
            events.append(bounds[edge + 1] << shift | after)
    events.sort()
    return events


class Diagram:
    """Nodes by number. Those below `leaves` are leaves; leaf 0 does nothing.

    Node n has, at n - leaves: its level; `cuts`, the first value of each run, rising from the level's low;
    and the `targets` of the runs, where neighbours differ.
    """

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves
        self.levels: list[int] = []
        self.cuts: list[list[int]] = []
        self.targets: list[list[int]] = []
        self.roots: list[int] = []
        self._numbers: dict[tuple[int, ...], int] = {}

    def node(self, level: int, cuts: list[int], targets: list[int]) -> int:
        """Returns the node with these runs; neighbours with one target are joined first."""
        starts: list[int] = []
        ends: list[int] = []
        last = -1
        for place in range(len(cuts)):
            target = targets[place]
            if target != last:
                starts.append(cuts[place])
                ends.append(target)
                last = target
        if len(starts) == 1:
            return ends[0]
        key = (level, *starts, *ends)
        found = self._numbers.get(key, -1)
        if found < 0:
            found = self.leaves + len(self.levels)
            self._numbers[key] = found
            self.levels.append(level)
            self.cuts.append(starts)
            self.targets.append(ends)
        return found

    def link(self, level: int, variables: list[int], target: int) -> int:
        """Returns the node that takes state variables into account, whose numbers are its `cuts`."""
        key = (level, -1, *variables, target)
        found = self._numbers.get(key, -1)
        if found < 0:
            found = self.leaves + len(self.levels)
            self._numbers[key] = found
            self.levels.append(level)
            self.cuts.append(variables)
            self.targets.append([target])
        return found

    def level(self, node: int) -> int:
        """Returns the level of a node, -1 of a leaf."""
        return -1 if node < self.leaves else self.levels[node - self.leaves]

    def run(self, node: int, value: int) -> int:
        """Returns where a value leads from a node that is not a leaf."""
        cuts = self.cuts[node - self.leaves]
        low, high = 0, len(cuts)
        while high - low > 1:
            middle = (low + high) >> 1
            if cuts[middle] <= value:
                low = middle
            else:
                high = middle
        return self.targets[node - self.leaves][low]


def reduce(expansion: Expansion, diagram: Diagram, leaf_nodes: list[int], first: int) -> list[int]:
    """Adds the states of an expansion to a diagram, and returns the nodes of its roots.

    `leaf_nodes[n]` is the node that the expansion's leaf n stands for; `first` the level of its first field.
    """
    below = leaf_nodes
    for place in range(len(expansion.levels) - 1, -1, -1):
        states = expansion.levels[place]
        nodes: list[int] = []
        for state in range(len(states.cuts)):
            targets = [below[child] for child in states.children[state]]
            nodes.append(diagram.node(first + place, states.cuts[state], targets))
        below = nodes
    return [below[root] for root in expansion.roots]
