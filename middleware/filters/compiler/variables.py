"""State variables: which a rule set needs, and the cells of the declared blocks that hold them.

The papers leave open how state is bound to rules. Here:

- **A window tumbles**: packets belong to window floor(time / window), and each window begins with nothing.
- **`count()`, `sum(f)`, `avg(f)` in a filter** are about the packets of the current window that match *the
rest
  of the filter*: the filter with every constraint on state taken as true, negated or not. The packet itself
  is among them: it is added first, then compared.
- **`avg`** is the sum over the count, rounded down. A packet whose field is absent is not added.
- **A declared counter's name** is a variable of its own. It changes by actions alone (`n <- count()`),
after all
  filters have been evaluated: a filter sees the value that earlier packets left.
- **`query_counter(name, window, cells)`** is a block of `cells` cells, of which one packet uses at most
one. The
  compiler gives each variable a cell such that variables that one packet may need lie in different blocks. An
  aggregate uses blocks with the window of the first declared one; `avg(price, name)` uses block `name`.
- Sums saturate at 2**64 - 1.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..actions import Rule, Update
from ..tree import Aggregate, Constraint, Field, aggregates, constraints
from .boxes import Box, absorbed, both
from .schema import Schema, SchemaError

COUNT: Final = 1
SUM: Final = 2
AVG: Final = 3
FUNCTIONS: Final = {"count": COUNT, "sum": SUM, "avg": AVG}
NO_FIELD: Final = -1


class Variable(Struct, frozen=True):
    """A state variable. `rest`: the packets that need it. `argument`: place of a query field, or NO_FIELD.

    `name`: of a declared variable, which only actions change; else empty, and each packet of `rest` is added.
    """

    name: str
    function: int
    argument: int
    block: int
    rest: tuple[Box, ...]
    cell: int = 0


class Key(Struct, frozen=True):
    """The identity of a variable: uses of state with equal keys are one. `wanted` is a block, or NO_FIELD
    for any.
    """

    name: str
    function: int
    argument: int
    wanted: int
    rest: tuple[Box, ...] = ()


def is_state(schema: Schema, constraint: Constraint) -> bool:
    """Returns whether a constraint is on state: an aggregate, or a declared variable."""
    attribute = constraint.attribute
    if isinstance(attribute, Aggregate):
        return True
    return len(attribute.path) == 1 and schema.counter(attribute.path[0]) is not None


class Variables:
    """The variables of a rule set, collected rule by rule, then placed."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._keys: dict[Key, int] = {}
        self._rests: list[list[Box]] = []
        self._updates: dict[str, tuple[int, int]] = {}

    def collect(self, rule: Rule, rest: list[Box]) -> None:
        """Notes the state that a rule uses. Raises SchemaError."""
        for aggregate in aggregates(rule.filter):
            self._note(self.key(aggregate, rest), rest)
        for constraint in constraints(rule.filter):
            if isinstance(constraint.attribute, Field) and is_state(self._schema, constraint):
                self._note(self._named(constraint.attribute.path[0]), rest)
        for action in rule.actions:
            if isinstance(action, Update):
                self._update(action, rest)

    def key(self, aggregate: Aggregate, rest: list[Box]) -> Key:
        """Returns the key of an aggregate in a rule."""
        if aggregate.function not in FUNCTIONS:
            raise SchemaError(
                f"there is no function {aggregate.function}; there are count, sum and avg", aggregate.function
            )
        function = FUNCTIONS[aggregate.function]
        wanted, argument = NO_FIELD, NO_FIELD
        for field in aggregate.arguments:
            block = self._schema.counter(field.path[0]) if len(field.path) == 1 else None
            if block is not None and wanted == NO_FIELD:
                wanted = block
            elif argument == NO_FIELD:
                argument = self._schema.field(field)
            else:
                raise SchemaError(f"{aggregate.function} takes one field", aggregate.function)
        if (function == COUNT) is (argument != NO_FIELD):
            takes = "no field, but perhaps a counter" if function == COUNT else "a field"
            raise SchemaError(f"{aggregate.function} takes {takes}", aggregate.function)
        return Key("", function, argument, wanted, tuple(sorted(rest)))

    def _named(self, name: str) -> Key:
        block = self._schema.counter(name)
        if block is None:
            known = ", ".join(counter.name for counter in self._schema.counters) or "none"
            raise SchemaError(f"there is no counter {name}; the header description declares {known}", name)
        return Key(name, 0, NO_FIELD, block)

    def _update(self, update: Update, rest: list[Box]) -> None:
        key = self._named(update.variable)
        argument = self._schema.field(update.arguments[0]) if update.arguments else NO_FIELD
        does = (FUNCTIONS[update.function], argument)
        if self._updates.setdefault(update.variable, does) != does:
            raise SchemaError(f"{update.variable} is updated in two ways", update.variable)
        self._note(key, rest)

    def _note(self, key: Key, rest: list[Box]) -> None:
        place = self._keys.setdefault(key, len(self._keys))
        if place == len(self._rests):
            self._rests.append(list(rest))
        elif key.name:
            self._rests[place] = absorbed(self._rests[place] + rest)

    def place(self) -> list[Variable]:
        """Returns the variables by number, each with a block and a cell. Raises SchemaError if blocks don't
        do.
        """
        placed: dict[int, list[Variable]] = {block: [] for block in range(len(self._schema.counters))}
        found: dict[int, Variable] = {}
        for key, number in sorted(self._keys.items(), key=lambda item: (not item[0].name, item[1])):
            variable = self._placed(key, tuple(self._rests[number]), placed)
            placed[variable.block].append(variable)
            found[number] = variable
        return [found[number] for number in range(len(found))]

    def _placed(self, key: Key, rest: tuple[Box, ...], placed: dict[int, list[Variable]]) -> Variable:
        function, argument = (
            self._updates.get(key.name, (COUNT, NO_FIELD)) if key.name else (key.function, key.argument)
        )
        for block in self._allowed(key):
            there = placed[block]
            if len(there) < self._schema.counters[block].cells and not any(
                meet(rest, one.rest) for one in there
            ):
                return Variable(key.name, function, argument, block, rest, len(there))
        raise SchemaError(
            "one packet may need more state variables than there are counters for them; declare another "
            "query_counter, or one with more cells"
        )

    def _allowed(self, key: Key) -> list[int]:
        if key.wanted != NO_FIELD:
            return [key.wanted]
        counters = self._schema.counters
        if not counters:
            raise SchemaError("the rules keep state; declare a query_counter(name, window, cells)")
        return [place for place, one in enumerate(counters) if one.window == counters[0].window]

    def number(self, key: Key) -> int:
        return self._keys[key]

    def number_of(self, constraint: Constraint, rest: list[Box]) -> int:
        """Returns the variable that a constraint of a rule reads."""
        attribute = constraint.attribute
        if isinstance(attribute, Aggregate):
            return self._keys[self.key(attribute, rest)]
        return self._keys[self._named(attribute.path[0])]

    def updated(self, name: str) -> int:
        """Returns the variable of an update."""
        return self._keys[self._named(name)]


def meet(a: tuple[Box, ...], b: tuple[Box, ...]) -> bool:
    """Returns whether a packet may be in both unions of boxes."""
    return any(both(x, y) is not None for x in a for y in b)
