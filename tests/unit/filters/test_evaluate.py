"""Evaluation: the rules about values without an order, and the compiled form against the tree walk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.filters import filter_strategies as strategies

from treecast.middleware.filters.evaluate import (
    StatefulFilterError,
    compile_filter,
    evaluate,
)
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.tree import Field, Filter, Scalar, fields

MESSAGE: dict[str, Scalar] = {"price": 60, "stock": "GOOGL", "share": 0.5, "open": True}


def passes(text: str) -> bool:
    """Returns the result of both ways, which must agree."""
    tree = parse(text)

    def read(field: Field) -> Scalar | None:
        return MESSAGE.get(".".join(field.path))

    walked = evaluate(tree, read)
    assert compile_filter(tree)([read(field) for field in fields(tree)]) is walked
    return walked


@pytest.mark.parametrize(
    "text",
    [
        "stock == GOOGL and price > 50",
        "stock prefix GOO",
        "stock != 'A' and stock > 'A'",
        "price == 60.0 and price >= 60 and price <= 60",
        "share < 1 and share != 1",
        "open == true and open != false",
        "not missing == 1",
        "not price == '60'",
        "not open == 1",
        "missing == 1 or true",
    ],
)
def test_passes(text: str) -> None:
    assert passes(text)


@pytest.mark.parametrize(
    "text",
    [
        "price > 60",
        "missing > 5",
        "missing <= 5",
        "missing != 5",
        "price != '60'",
        "stock == 60",
        "open == 1",
        "price == true",
        "price prefix '6'",
        "price > 50 and false",
    ],
)
def test_does_not_pass(text: str) -> None:
    assert not passes(text)


@given(strategies.stateless, st.data())
def test_compiled_and_walked_are_equal(tree: Filter, data: st.DataObject) -> None:
    message = {field: data.draw(st.none() | strategies.scalars) for field in fields(tree)}
    walked = evaluate(tree, message.__getitem__)
    assert compile_filter(tree)([message[field] for field in fields(tree)]) is walked


@given(strategies.stateless, strategies.stateless, st.data())
def test_logic_is_boolean(left: Filter, right: Filter, data: st.DataObject) -> None:
    """De Morgan's laws hold with missing fields too, as `Not` is the only negation."""
    both = parse("not (a == 1 and b == 1)")
    either = parse("not a == 1 or not b == 1")
    message = {Field((name,)): data.draw(st.none() | strategies.scalars) for name in "ab"}
    assert evaluate(both, message.__getitem__) is evaluate(either, message.__getitem__)


def test_state_is_refused_by_name() -> None:
    tree = parse("stock == GOOGL and avg(price) > 60")
    with pytest.raises(StatefulFilterError, match=r"avg\(price\) needs state"):
        compile_filter(tree)
    with pytest.raises(StatefulFilterError, match=r"avg\(price\) needs state"):
        evaluate(tree, lambda field: "GOOGL")
