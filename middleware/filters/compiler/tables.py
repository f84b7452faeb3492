"""Algorithm 2 of Camus: the decision diagram as one table for each field.

A node is a state. Its table entries say, for the state and the field's value, which state follows. A field's
table has four parts, which a packet tries in this order:

| part | key | for |
| --- | --- | --- |
| exact | state, value | runs of one value; SRAM |
| span | state, first and last value | longer runs: ranges, prefixes or masks; TCAM |
| rest | state | the target with most runs of the state, so that these need no entries of their own |
| absent | state | packets without the field's header |

A packet that finds no entry does nothing: runs that lead to leaf 0 need none.

The paper enumerates paths, and says that at most one joins two nodes. This isn't so: in `f > 10 and f < 20`
two paths lead to the empty leaf. Hence one entry per run; runs are disjoint, and `rest` stands in for a
lowest priority.

Compiled by mypyc.
"""

from __future__ import annotations

from typing import Final

from .diagram import Diagram

RANGE: Final = 0  # a run of several values is one entry
EXACT: Final = 1  # it is one entry for each value
PREFIXES: Final = 2  # it is one entry for each prefix that it consists of
CLASSES: Final = 3  # it is one entry for each class of values (a low-resolution domain)

MAX_POINTS: Final = 65_536  # entries of one run in an exact table


class NotExact(ValueError):
    """A run does not fit how its field is matched."""


class LevelTables:
    """The entries of one field, as columns. Spans hold first and last value, both included."""

    def __init__(self) -> None:
        self.exact_state: list[int] = []
        self.exact_value: list[int] = []
        self.exact_target: list[int] = []
        self.span_state: list[int] = []
        self.span_low: list[int] = []
        self.span_high: list[int] = []
        self.span_target: list[int] = []
        self.rest_state: list[int] = []
        self.rest_target: list[int] = []
        self.absent_state: list[int] = []
        self.absent_target: list[int] = []
        self.classes: list[int] = []  # the first value of each class

    def size(self) -> int:
        """Returns the number of entries."""
        return len(self.exact_state) + len(self.span_state) + len(self.rest_state) + len(self.absent_state)


def level_tables(
    diagram: Diagram, nodes: list[int], low: int, high: int, kind: int, width: int
) -> LevelTables:
    """Returns the entries of one field's nodes, whose domain is [low, high). `width` is the field's in bits.

    Raises NotExact.
    """
    tables = LevelTables()
    if kind == CLASSES:
        tables.classes = _classes(diagram, nodes, high)
    for node in nodes:
        cuts = diagram.cuts[node - diagram.leaves]
        add_node(tables, node, cuts, diagram.targets[node - diagram.leaves], low, high, kind, width)
    return tables


def add_node(
    tables: LevelTables,
    state: int,
    starts: list[int],
    targets: list[int],
    low: int,
    high: int,
    kind: int,
    width: int,
) -> None:
    """Adds the entries of one state. Raises NotExact."""
    if low < 0 and targets[0] != 0:
        tables.absent_state.append(state)
        tables.absent_target.append(targets[0])
    lows, highs, after = _value_runs(starts, targets, high)
    sizes = [_size(lows[run], highs[run], kind, width, tables.classes) for run in range(len(lows))]
    base = _base(after, sizes)
    if base != 0:
        tables.rest_state.append(state)
        tables.rest_target.append(base)
    for run in range(len(lows)):
        if after[run] != base:
            _add(tables, state, lows[run], highs[run], after[run], kind, width)


def _value_runs(starts: list[int], targets: list[int], high: int) -> tuple[list[int], list[int], list[int]]:
    """Returns the runs of values, without absence: first values, ends (not included), targets."""
    lows: list[int] = []
    highs: list[int] = []
    after: list[int] = []
    for place in range(len(starts)):
        end = starts[place + 1] if place + 1 < len(starts) else high
        if end <= 0:
            continue
        lows.append(max(starts[place], 0))
        highs.append(end)
        after.append(targets[place])
    return lows, highs, after


def _size(low: int, high: int, kind: int, width: int, classes: list[int]) -> int:
    """Returns how many entries a run is."""
    if high - low == 1 or kind == RANGE:
        return 1
    if kind == EXACT:
        return high - low
    if kind == CLASSES:
        return place_of(classes, high - 1) - place_of(classes, low) + 1
    return len(prefixes_of(low, high, width))


def _base(after: list[int], sizes: list[int]) -> int:
    """Returns the target whose runs have most entries. The empty leaf saves one more, as it needs no
    `rest`; of equal ones another is taken, as `rest` needs no TCAM.
    """
    weights: dict[int, int] = {0: 1}
    for run in range(len(after)):
        weights[after[run]] = weights.get(after[run], 0) + sizes[run]
    best, most = 0, weights[0]
    for target, weight in weights.items():
        if target != 0 and weight >= most:
            best, most = target, weight
    return best


def _add(tables: LevelTables, node: int, low: int, high: int, target: int, kind: int, width: int) -> None:
    """Adds the entries of one run."""
    if kind == CLASSES:
        points = (place_of(tables.classes, low), place_of(tables.classes, high - 1) + 1)
    elif kind == EXACT or high - low == 1:
        points = (low, high)
    elif kind == PREFIXES:
        for first, length in prefixes_of(low, high, width):
            _span(tables, node, first, first + (1 << (width - length)) - 1, target)
        return
    else:
        _span(tables, node, low, high - 1, target)
        return
    if points[1] - points[0] > MAX_POINTS:
        raise NotExact(f"values {low} to {high - 1} need a range")
    for value in range(points[0], points[1]):
        tables.exact_state.append(node)
        tables.exact_value.append(value)
        tables.exact_target.append(target)


def _span(tables: LevelTables, node: int, low: int, high: int, target: int) -> None:
    tables.span_state.append(node)
    tables.span_low.append(low)
    tables.span_high.append(high)
    tables.span_target.append(target)


def prefixes_of(low: int, high: int, width: int) -> list[tuple[int, int]]:
    """Returns the fewest (value, length) of prefixes that make up [low, high), at most 2 * width - 2."""
    found: list[tuple[int, int]] = []
    while low < high:
        free = (low & -low).bit_length() - 1 if low else width
        step = min(free, (high - low).bit_length() - 1)
        found.append((low, width - step))
        low += 1 << step
    return found


def _classes(diagram: Diagram, nodes: list[int], high: int) -> list[int]:
    """Returns the first values of the classes that no node of the field tells apart."""
    found: set[int] = {0}
    for node in nodes:
        for start in diagram.cuts[node - diagram.leaves]:
            if 0 <= start < high:
                found.add(start)
    return sorted(found)


def place_of(classes: list[int], value: int) -> int:
    """Returns the class of a value."""
    low, high = 0, len(classes)
    while high - low > 1:
        middle = (low + high) >> 1
        if classes[middle] <= value:
            low = middle
        else:
            high = middle
    return low
