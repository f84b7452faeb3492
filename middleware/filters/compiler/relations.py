"""How two filters stand to each other, by one diagram of both: satisfiable, implied, overlapping; covers.

An advertisement says what a publisher may send, a subscription what somebody wants (Siena; the thesis'
controller decides by this where subscriptions go). State counts as true: filters before the last hop.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ..actions import Forward, Rule, Rules
from ..loosen import counted_as_true
from ..tree import Filter
from .compile import compile_rules
from .schema import Schema
from .variables import is_state


class Match(enum.Enum):
    """How the packets of an advertisement stand to a subscription."""

    PERMANENT = "permanent"  # each of them is wanted
    POTENTIAL = "potential"  # some are
    NONE = "none"  # no packet can be both


def _combinations(schema: Schema, filters: Sequence[Filter]) -> list[frozenset[int]]:
    """Returns which filters one packet can match together, each such set once; the empty one too if there
    is.
    """
    plain = [counted_as_true(tree, lambda one: is_state(schema, one)) for tree in filters]
    rules = Rules(tuple(Rule(tree, (Forward((place,)),)) for place, tree in enumerate(plain)))
    compiled = compile_rules(schema, rules)
    reached, left = {compiled.root}, [compiled.root]
    while left:
        node = left.pop()
        if node >= compiled.diagram.leaves:
            new = set(compiled.diagram.targets[node - compiled.diagram.leaves]) - reached
            reached |= new
            left += new
    return [frozenset(compiled.leaves[node].ports) for node in reached if node < compiled.diagram.leaves]


def satisfiable(schema: Schema, tree: Filter) -> bool:
    """Returns whether some packet matches."""
    return any(_combinations(schema, [tree]))


def implies(schema: Schema, tree: Filter, other: Filter) -> bool:
    """Returns whether every packet that matches `tree` matches `other`."""
    return all(1 in found for found in _combinations(schema, [tree, other]) if 0 in found)


def match(schema: Schema, advertisement: Filter, subscription: Filter) -> Match:
    """Returns how an advertisement's packets stand to a subscription. One without packets matches nothing."""
    found = [one for one in _combinations(schema, [advertisement, subscription]) if 0 in one]
    wanted = [1 in one for one in found]
    if not any(wanted):
        return Match.NONE
    return Match.PERMANENT if all(wanted) else Match.POTENTIAL


def cover(schema: Schema, filters: Sequence[Filter]) -> list[Filter]:
    """Returns filters whose union is that of `filters`, without those that others cover together. Of equal
    ones the first stays.
    """
    found = _combinations(schema, filters)
    kept = set(range(len(filters)))
    for place in range(len(filters) - 1, -1, -1):
        if all((one & kept) - {place} for one in found if place in one):
            kept.discard(place)
    return [filters[place] for place in sorted(kept)]
