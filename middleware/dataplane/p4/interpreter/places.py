"""Places: l-values with evaluated indices."""

from __future__ import annotations

from .. import ir
from .values import HeaderValue, StackValue, UnionValue, Value, copy, default, fit


class Place:
    """Cell `index` of a list. `union`: the header union that the cell is a member of."""

    __slots__ = ("cells", "index", "union")

    def __init__(self, cells: list[Value], index: int, union: UnionValue | None = None) -> None:
        self.cells = cells
        self.index = index
        self.union = union

    def get(self) -> Value:
        return self.cells[self.index]

    def put(self, value: Value) -> None:
        """Stores a copy. Header, stack and union objects are kept; their contents are replaced."""
        held = self.cells[self.index]
        if isinstance(held, HeaderValue):
            held.valid, held.fields = value.valid, [copy(one) for one in value.fields]
            if self.union is not None and held.valid:
                self.union.only(held)
        elif isinstance(held, StackValue | UnionValue | list):
            self.cells[self.index] = copy(value)
        else:
            self.cells[self.index] = value


class Nowhere(Place):
    """A place outside of its stack: reads give the default, writes do nothing."""

    __slots__ = ()

    def __init__(self, type_: ir.Type) -> None:
        super().__init__([default(type_)], 0)


class SlicePlace(Place):
    """Bits `high` to `low` of another place."""

    __slots__ = ("base", "high", "low", "type")

    def __init__(self, base: Place, high: int, low: int, type_: ir.Type) -> None:
        super().__init__([], 0)
        self.base = base
        self.high = high
        self.low = low
        self.type = type_

    def get(self) -> Value:
        return (self.base.get() >> self.low) & ((1 << (self.high - self.low + 1)) - 1)

    def put(self, value: Value) -> None:
        mask = ((1 << (self.high - self.low + 1)) - 1) << self.low
        changed = (self.base.get() & ~mask) | (value << self.low)
        self.base.put(fit(changed, self.type))
