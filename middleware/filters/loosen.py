"""Discretisation (Camus, section IV.D): numbers become multiples of alpha, so that fewer of them differ.

The result matches every packet that the filter matches: `price > 53` becomes `price > 50`, `price < 53`
becomes `price < 60`, and below a negation the other way round. A constraint on state stays as it is: it is
evaluated once, at the last hop.

Of a rule set only rules that do nothing but forward are loosened. They forward to the ports of the default
rule too, as a packet that now matches would have gone there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .actions import Action, Drop, Forward, Rule, Rules
from .tree import EVERYTHING, NOTHING, Aggregate, And, Constraint, Filter, Not, Or, Relation, aggregates


def loosened(rules: Rules, alpha: int) -> Rules:
    """Returns the rules with looser filters. `alpha` is above 0; with 1 whole numbers stay. Rules with
    aggregates stay: a window that counts more packets may say less.
    """
    return widened(rules, lambda tree: tree if aggregates(tree) else loosen(tree, alpha))


def widened(rules: Rules, change: Callable[[Filter], Filter]) -> Rules:
    """Returns the rules with `change` done to each filter that may match more packets."""
    forwards = tuple(one for one in rules.default if isinstance(one, Forward))
    if not _only_forwards(rules.default):
        return rules  # a packet that matches more would miss the default's action
    return Rules(
        tuple(
            _widened(rule, change, forwards) if _only_forwards(rule.actions) else rule for rule in rules.rules
        ),
        rules.default,
        rules.text,
    )


def _only_forwards(actions: tuple[Action, ...]) -> bool:
    return all(isinstance(action, Forward | Drop) for action in actions)


def _widened(rule: Rule, change: Callable[[Filter], Filter], forwards: tuple[Forward, ...]) -> Rule:
    found = change(rule.filter)
    return rule if found == rule.filter else Rule(found, (*rule.actions, *forwards), rule.position)


def loosen(tree: Filter, alpha: int, looser: bool = True) -> Filter:
    """Returns a filter that matches at least as much, or at most as much."""
    match tree:
        case Constraint(Aggregate()):
            return tree
        case Constraint(_, _, constant) if isinstance(constant, int | float) and not isinstance(
            constant, bool
        ):
            return _number(tree, constant, alpha, looser)
        case Not(part):
            return Not(loosen(part, alpha, not looser))
        case And(parts):
            return And(tuple(loosen(part, alpha, looser) for part in parts))
        case Or(parts):
            return Or(tuple(loosen(part, alpha, looser) for part in parts))
    return tree


def _number(tree: Constraint, constant: int | float, alpha: int, looser: bool) -> Filter:
    down, up = math.floor(constant / alpha) * alpha, math.ceil(constant / alpha) * alpha
    above = tree.relation in (Relation.GT, Relation.GE)
    if above or tree.relation in (Relation.LT, Relation.LE):
        return Constraint(tree.attribute, tree.relation, down if above is looser else up)
    if down == up:  # a multiple stays as it is
        return tree
    between = And(
        (Constraint(tree.attribute, Relation.GE, down), Constraint(tree.attribute, Relation.LT, up))
    )
    if tree.relation is Relation.EQ:
        return between if looser else NOTHING
    return tree if looser else And((Not(between), _present(tree)))


def _present(tree: Constraint) -> Filter:
    """Returns what holds of every number."""
    return Or((Constraint(tree.attribute, Relation.GE, 0), Constraint(tree.attribute, Relation.LT, 0)))


def counted_as_true(tree: Filter, is_state: Callable[[Constraint], bool], positive: bool = True) -> Filter:
    """Returns the filter without some constraints: each counts as true, negated or not.

    Without those on state it is the filter for switches before the last hop: what it may match whatever its
    state is, so that no packet is missed that the last hop wants.
    """
    match tree:
        case Constraint():
            if not is_state(tree):
                return tree
            return EVERYTHING if positive else NOTHING
        case Not(part):
            return Not(counted_as_true(part, is_state, not positive))
        case And(parts):
            return And(tuple(counted_as_true(part, is_state, positive) for part in parts))
        case Or(parts):
            return Or(tuple(counted_as_true(part, is_state, positive) for part in parts))
    return tree
