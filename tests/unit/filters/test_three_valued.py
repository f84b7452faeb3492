"""SQL's three-valued logic: its tables by hand, the two-valued form, and the tables of a switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.filters import filter_strategies as strategies
from tests.unit.filters import rule_strategies as some

from treecast.middleware.filters.actions import Forward, Rule, Rules
from treecast.middleware.filters.compiler.compile import compile_rules
from treecast.middleware.filters.compiler.machine import TableMachine
from treecast.middleware.filters.compiler.schema import Schema
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.evaluate import compile_filter, evaluate
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.rules import parse_rules
from treecast.middleware.filters.text import to_text
from treecast.middleware.filters.three_valued import truth, where_true
from treecast.middleware.filters.tree import Field, Filter, Scalar, fields

T, F, U = True, False, None
OF = {T: "t == 1", F: "t == 2", U: "gone == 1"}


def read(field: Field) -> Scalar | None:
    return {"t": 1, "stock": "GOOGL", "open": True}.get(field.path[0])


@pytest.mark.parametrize(
    ("a", "b", "both", "either"),
    [
        (T, T, T, T),
        (T, F, F, T),
        (T, U, U, T),
        (F, T, F, T),
        (F, F, F, F),
        (F, U, F, U),
        (U, T, U, T),
        (U, F, F, U),
        (U, U, U, U),
    ],
)
def test_and_and_or_are_those_of_sql(
    a: bool | None, b: bool | None, both: bool | None, either: bool | None
) -> None:
    for sign, wanted in (("and", both), ("or", either)):
        text = f"{OF[a]} {sign} {OF[b]}"
        assert truth(parse(text), read) is wanted
        assert evaluate(parse(f"sql({text})"), read) is (wanted is True)
        assert evaluate(parse(f"sql(not ({text}))"), read) is (wanted is False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("not t == 2", T),
        ("not t == 1", F),
        ("not gone == 1", U),
        ("not not gone == 1", U),
        ("gone != 1", U),
        ("gone == 1 or not gone == 1", U),  # SQL's law of the excluded middle does not hold
        ("stock > 5", U),  # not comparable
        ("not stock > 5", U),
        ("not stock prefix A", T),
        ("not gone prefix A", U),
        ("not t prefix A", U),
        ("not open == true", F),
        ("not open == 1", U),
        ("true or gone == 1", T),
        ("not (false and gone == 1)", T),
    ],
)
def test_negation_by_hand(text: str, wanted: bool | None) -> None:
    assert truth(parse(text), read) is wanted
    tree = parse(f"sql({text})")
    assert evaluate(tree, read) is (wanted is True)
    assert compile_filter(tree)([read(field) for field in fields(tree)]) is (wanted is True)


def test_both_logics_stand_beside_one_another() -> None:
    assert evaluate(parse("not gone > 5 and not sql(not gone > 5)"), read)
    assert to_text(parse("SQL(not (price > 5 or stock == A))")) == 'price <= 5 and stock != "A"'
    assert to_text(parse("sql == 1 and sql.x == 2")) == "sql == 1 and sql.x == 2"  # a field may have the name
    with pytest.raises(FilterError, match="is wanted, but the filter ends"):
        parse("sql(price > 5")


@given(strategies.stateless, st.data())
def test_the_two_valued_form_is_the_reference(tree: Filter, data: st.DataObject) -> None:
    message = {field: data.draw(st.none() | strategies.scalars) for field in fields(tree)}
    found = truth(tree, message.__getitem__)
    assert evaluate(where_true(tree), message.__getitem__) is (found is True)
    assert evaluate(where_true(tree, False), message.__getitem__) is (found is False)
    assert parse(f"sql({to_text(tree)})") == where_true(parse(to_text(tree)))


def reader(schema: Schema, values: Sequence[int | None]) -> Callable[[Field], int | None]:
    return lambda field: values[schema.field(field)]


@given(some.schemas(), some.trees(some.on_fields), st.lists(some.packets, min_size=1, max_size=12))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_tables_of_a_switch_have_it(
    schema: Schema, tree: Filter, packets: list[tuple[int, int, tuple[int, int] | None]]
) -> None:
    """Port 1 where a filter is true, port 2 where it is false; neither where a header is missing that
    matters.
    """
    one, two = (Rule(where_true(tree, positive), (Forward((2 - positive,)),)) for positive in (True, False))
    machine = TableMachine(compile_rules(schema, Rules((one, two))))
    for packet in packets:
        values = some.of_schema(schema, packet)
        found = truth(tree, reader(schema, values))
        wanted = () if found is None else (1,) if found else (2,)
        assert machine.receive(values, 0).ports == wanted


def test_rules_take_it() -> None:
    rules = parse_rules("sql(not price > 5) : fwd(1)\nsql(not avg(price) > 60) and a == 1 : fwd(2)")
    assert to_text(rules.rules[0].filter) == "price <= 5"
    assert to_text(rules.rules[1].filter) == "avg(price) <= 60 and a == 1"
