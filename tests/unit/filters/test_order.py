"""The order of tables: the search against all orders, and a rule set whose order matters."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.filters import rule_strategies as some

from treecast.middleware.evaluation.camus import workload
from treecast.middleware.filters.actions import Rules
from treecast.middleware.filters.compiler.compile import compile_rules
from treecast.middleware.filters.compiler.order import best, narrow_first, searched
from treecast.middleware.filters.compiler.schema import CustomAction, HeaderField, Schema
from treecast.middleware.filters.rules import parse_rules

FIELDS = tuple(some.query_field(name, "range") for name in some.NUMBERS)
MARK = CustomAction("mark", (HeaderField("value", 8),))
SCHEMA = Schema(some.HEADERS, (), FIELDS, (), (MARK,))


@given(some.stateless, st.integers(1, 30), st.integers(0, 3))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_search_is_between_the_given_order_and_the_best(rules: Rules, most: int, seed: int) -> None:
    found, reference = searched(SCHEMA, rules, most, Random(seed).shuffle), best(SCHEMA, rules)
    assert sorted(found.order) == list(range(4))
    assert reference.entries <= found.entries <= found.before
    assert compile_rules(SCHEMA, rules, found.order).entries == found.entries
    assert found.tried <= max(most, 1)
    assert found == searched(SCHEMA, rules, most, Random(seed).shuffle)


def test_what_is_narrow_comes_first() -> None:
    rules = parse_rules("\n".join(f"d == {one} and b > {one} : fwd({one})" for one in range(1, 9)))
    assert narrow_first(SCHEMA, rules) == (3, 1, 0, 2)
    found = searched(SCHEMA, rules, 50, Random(1).shuffle)
    assert found.entries == best(SCHEMA, rules).entries < found.before


def test_market_data_want_the_symbol_first() -> None:
    rules = workload.uniform(300, Random(1))
    price_first = workload.STOCK_FIRST[::-1]
    found = searched(workload.ITCH, rules, 20, Random(1).shuffle)
    assert found.entries == compile_rules(workload.ITCH, rules, workload.STOCK_FIRST).entries
    assert found.entries < compile_rules(workload.ITCH, rules, price_first).entries
