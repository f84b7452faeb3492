"""Looser filters match whatever the filter matches."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.filters import rule_strategies as some

from treecast.middleware.filters.evaluate import evaluate
from treecast.middleware.filters.loosen import counted_as_true, loosen
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.tree import (
    EVERYTHING,
    NOTHING,
    Aggregate,
    And,
    Constraint,
    Field,
    Filter,
    Not,
    Or,
)

values = st.none() | st.integers(-5, 25) | st.sampled_from([2.5, 7.25])
events = st.fixed_dictionaries({Field((name,)): values for name in some.NUMBERS})


@given(some.trees(some.on_fields), events, st.integers(1, 12))
@settings(max_examples=300)
def test_discretised_filters_miss_nothing(
    tree: Filter, event: dict[Field, int | float | None], alpha: int
) -> None:
    if evaluate(tree, event.get):
        assert evaluate(loosen(tree, alpha), event.get)
    if evaluate(loosen(tree, alpha, looser=False), event.get):
        assert evaluate(tree, event.get)


def test_the_papers_example() -> None:
    assert loosen(parse("price > 53"), 10) == loosen(parse("price > 57"), 10) == parse("price > 50")
    assert loosen(parse("price < 53"), 10) == loosen(parse("price < 57"), 10) == parse("price < 60")
    assert loosen(parse("stock == GOOGL"), 10) == parse("stock == GOOGL")


def on_state(constraint: Constraint) -> bool:
    return isinstance(constraint.attribute, Aggregate) or constraint.attribute == Field(("n",))


def with_state(tree: Filter, truths: list[bool]) -> Filter:
    """The filter with each constraint on state as true or false as the list says."""
    match tree:
        case Constraint():
            return (EVERYTHING if truths.pop() else NOTHING) if on_state(tree) else tree
        case Not(part):
            return Not(with_state(part, truths))
        case And(parts):
            return And(tuple(with_state(part, truths) for part in parts))
        case Or(parts):
            return Or(tuple(with_state(part, truths) for part in parts))
    raise AssertionError(tree)


@given(some.trees(some.on_fields | some.on_state), events, st.lists(st.booleans(), min_size=20, max_size=20))
@settings(max_examples=200)
def test_filters_before_the_last_hop_miss_nothing_whatever_the_state(
    tree: Filter, event: dict[Field, int | float | None], truths: list[bool]
) -> None:
    if evaluate(with_state(tree, truths), event.get):
        assert evaluate(counted_as_true(tree, on_state), event.get)
