"""A field's values as integers: what many filters tell apart of it, whatever the types of its values.

The constants of all filters cut the values of a field into points and what lies between. A value's code is
the place of its point or gap:

  -1          no value
  0, 1        false, true
  2 ...       numbers: gap, point, gap, point, ... gap
  then        strings: the same, by their code points

So a constraint is a set of codes, and the compiler's boxes and diagrams work on fields of any type.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from .compiler.bounds import ABSENT, Bounds
from .tree import Constraint, Relation, Scalar

_NUMBERS: Final = 2  # the first code of numbers
_LAST: Final = chr(0x10FFFF)

T = TypeVar("T", float, str)


class Domain:
    """The codes of one field, cut by the constants of `constraints` on it."""

    def __init__(self, constraints: Iterable[Constraint]) -> None:
        numbers: set[int | float] = set()
        strings: set[str] = set()
        for one in constraints:
            if isinstance(one.constant, str):
                strings.add(one.constant)
                if one.relation is Relation.PREFIX and (behind := behind_prefix(one.constant)) is not None:
                    strings.add(behind)
            elif not isinstance(one.constant, bool):
                numbers.add(one.constant)
        self._numbers = sorted(numbers)
        self._strings = sorted(strings)
        self._first_string = _NUMBERS + 2 * len(self._numbers) + 1
        self.high = self._first_string + 2 * len(self._strings) + 1  # behind the last code

    def code(self, value: Scalar | None) -> int:
        """Returns the code of a value. NaN has none, as no constraint on it holds."""
        if value is None or value != value:
            return ABSENT
        if value.__class__ is bool:
            return 1 if value else 0
        if isinstance(value, str):
            return self._first_string + _place(self._strings, value)
        return _NUMBERS + _place(self._numbers, value)

    def bounds(self, relation: Relation, constant: Scalar) -> Bounds:
        """Returns the codes for which a constraint holds."""
        if isinstance(constant, bool):
            code = int(constant is (relation is Relation.EQ))
            return (code, code + 1)
        if isinstance(constant, str):
            low, high = self._first_string, self.high
            point = low + _place(self._strings, constant)
            if relation is Relation.PREFIX:
                behind = behind_prefix(constant)
                return (point, high if behind is None else low + _place(self._strings, behind))
        else:
            low, high = _NUMBERS, self._first_string
            point = low + _place(self._numbers, constant)
        return _compared(relation, low, point, high)


def behind_prefix(text: str) -> str | None:
    """Returns the first string behind all those that begin with `text`; None if there is none."""
    rest = text.rstrip(_LAST)
    return rest[:-1] + chr(ord(rest[-1]) + 1) if rest else None


def _place(points: Sequence[T], value: T) -> int:
    """Returns the place of a value among points and the gaps between them."""
    found = bisect_left(points, value)
    if found < len(points) and points[found] == value:
        return 2 * found + 1
    return 2 * found


def _compared(relation: Relation, low: int, point: int, high: int) -> Bounds:
    match relation:
        case Relation.EQ:
            return (point, point + 1)
        case Relation.NE:
            return (low, point, point + 1, high)
        case Relation.LT:
            return (low, point)
        case Relation.LE:
            return (low, point + 1)
        case Relation.GT:
            return (point + 1, high)
        case _:
            return (point, high)
