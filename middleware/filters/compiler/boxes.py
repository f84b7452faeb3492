"""Disjunctive normal form: a filter as a union of boxes.

A box holds a set of allowed values for each attribute that it constrains: the conjunction of its atomic
predicates, with those of one attribute joined. Attributes are numbers: the place of a query field, or
`len(fields)` and up for state variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ..tree import And, Constraint, Filter, Not, Or
from .bounds import Bounds, intersection, union

Box = tuple[tuple[int, Bounds], ...]
"""(attribute, values), by rising attribute; values are never empty."""

Literal = Callable[[Constraint, bool], tuple[int, Bounds] | None]
"""Takes a constraint and whether it counts as it is or negated; None if it says nothing."""

MAX_BOXES: Final = 20_000  # of one filter
_PAIRS: Final = 4  # times as many boxes are formed at once: some are empty, repeated or joined
_ABSORB: Final = 64  # boxes among which larger ones are looked for

EVERY: Final[Box] = ()


class TooManyBoxes(ValueError):
    """The normal form of one filter is too large."""

    def __init__(self) -> None:
        super().__init__(
            f"the filter's disjunctive normal form has more than {MAX_BOXES:,} terms; write several rules"
        )


def normal_form(
    tree: Filter, literal: Literal, as_it_is: bool = True, most: int = MAX_BOXES, join: bool = False
) -> list[Box]:
    """Returns the boxes whose union is the filter, or its negation: at most `most`. `join`: alternatives that
    differ in the last attribute alone are one box. Raises TooManyBoxes."""
    match tree:
        case Constraint():
            return _one(literal(tree, as_it_is))
        case Not(part):
            return normal_form(part, literal, not as_it_is, most, join)
    assert isinstance(tree, And | Or)
    if isinstance(tree, And) is as_it_is:
        found: list[Box] = [EVERY]
        for part in tree.parts:
            found = product(found, normal_form(part, literal, as_it_is, most, join), most)
        return found
    # One part after the other, so that too many end at once.
    either: dict[Box, None] = {}
    for part in tree.parts:
        for box in normal_form(part, literal, as_it_is, most, join):
            either[box] = None
        if len(either) > MAX_BOXES:
            raise TooManyBoxes
    if join:
        return absorbed([box for box, _ in merged([(box, 0) for box in either])], most)
    return absorbed(either, most)


def _one(found: tuple[int, Bounds] | None) -> list[Box]:
    if found is None:
        return [EVERY]
    return [(found,)] if found[1] else []


def product(first: list[Box], second: list[Box], most: int = MAX_BOXES) -> list[Box]:
    """Returns the conjunction of two unions. Raises TooManyBoxes, before it forms the pairs."""
    if len(first) * len(second) > _PAIRS * most:
        raise TooManyBoxes
    found: list[Box] = []
    for a in first:
        for b in second:
            box = both(a, b)
            if box is not None:
                found.append(box)
    return absorbed(found, most)


def both(a: Box, b: Box) -> Box | None:
    """Returns the intersection; None if it is empty."""
    if not a or not b:
        return a or b
    values = dict(a)
    for attribute, bounds in b:
        had = values.get(attribute)
        values[attribute] = bounds if had is None else intersection(had, bounds)
        if not values[attribute]:
            return None
    return tuple(sorted(values.items()))


def absorbed(boxes: Iterable[Box], most: int = MAX_BOXES) -> list[Box]:
    """Returns the boxes without repeated ones, and without smaller ones if they are few. Raises TooManyBoxes
    if there are more than `most`."""
    found = list(dict.fromkeys(boxes))
    if len(found) > most:
        raise TooManyBoxes
    if not 1 < len(found) <= _ABSORB:
        return found
    kept: list[Box] = []
    for place, box in enumerate(found):
        others = (other for at, other in enumerate(found) if at != place)
        if not any(covers(other, box) for other in others):
            kept.append(box)
    return kept


def covers(a: Box, b: Box) -> bool:
    """Returns whether every point of `b` is in `a`."""
    inside = dict(b)
    return all(
        attribute in inside and intersection(bounds, inside[attribute]) == inside[attribute]
        for attribute, bounds in a
    )


def merged(terms: Iterable[tuple[Box, int]]) -> list[tuple[Box, int]]:
    """Returns boxes with their actions, where those of one action that differ in the last attribute alone
    are one: `price > 5` covers `price > 9`, and `price < 3` joins it.
    """
    groups: dict[tuple[int, int, Box], list[Bounds]] = {}
    for box, action in terms:
        last = box[-1][0] if box else -1
        groups.setdefault((action, last, box[:-1]), []).append(box[-1][1] if box else ())
    found: list[tuple[Box, int]] = []
    for (action, last, head), bounds in groups.items():
        if last < 0:
            found.append((EVERY, action))
        else:
            joined = bounds[0] if len(bounds) == 1 else union(bounds)
            found.append(((*head, (last, joined)), action))
    return found
