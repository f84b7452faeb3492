"""SQL's three-valued logic: a constraint on a field that is absent is neither true nor false.

Negation keeps what is unknown, so `not price > 5` does not hold for a message without a price. `truth` is the
reference (Kleene's strong logic, as in ISO 9075-2, 6.39). `where_true` writes the same in the two-valued
language of `tree`, so that every evaluator, the diagram and switches have it without a change: negations move
down to the constraints, and a negated constraint is the one with the opposite relation, which an absent field
does not meet either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .evaluate import Reader, StatefulFilterError, holds
from .tree import Aggregate, And, Constraint, Field, Filter, Not, Or, Relation

_OPPOSITE: Final = {
    Relation.EQ: Relation.NE,
    Relation.NE: Relation.EQ,
    Relation.LT: Relation.GE,
    Relation.LE: Relation.GT,
    Relation.GT: Relation.LE,
    Relation.GE: Relation.LT,
}


def where_true(tree: Filter, positive: bool = True) -> Filter:
    """Returns a filter of two-valued logic that holds where `tree` is true, or is false, in three-valued."""
    match tree:
        case Constraint():
            return tree if positive else _where_false(tree)
        case Not(part):
            return where_true(part, not positive)
    parts = tuple(where_true(part, positive) for part in tree.parts)
    return And(parts) if isinstance(tree, And) is positive else Or(parts)


def _where_false(tree: Constraint) -> Filter:
    if tree.relation is not Relation.PREFIX:
        return Constraint(tree.attribute, _OPPOSITE[tree.relation], tree.constant)
    return And((Constraint(tree.attribute, Relation.PREFIX, ""), Not(tree)))  # every string begins with ""


# --- the reference


def truth(tree: Filter, read: Reader) -> bool | None:
    """Returns whether a filter is true, false or, None, unknown. Raises StatefulFilterError if it
    aggregates.
    """
    match tree:
        case Constraint(Field() as field, relation, constant):
            value = read(field)
            if value is None:
                return None
            if holds(value, relation, constant):
                return True
            return None if _incomparable(value, constant) else False
        case Constraint(Aggregate() as aggregate):
            raise StatefulFilterError(aggregate)
        case Not(part):
            found = truth(part, read)
            return None if found is None else not found
        case And(parts):
            return _first(False, (truth(part, read) for part in parts))
        case Or(parts):
            return _first(True, (truth(part, read) for part in parts))
    raise AssertionError(f"no filter: {tree!r}")


def _incomparable(value: object, constant: object) -> bool:
    return _kind(value) is not _kind(constant)


def _kind(value: object) -> type:
    return bool if isinstance(value, bool) else str if isinstance(value, str) else float


def _first(decides: bool, parts: Iterable[bool | None]) -> bool | None:
    """Returns `decides` if one part is that, else None if one is unknown, else its opposite."""
    found = list(parts)
    if decides in found:
        return decides
    return None if None in found else not decides
