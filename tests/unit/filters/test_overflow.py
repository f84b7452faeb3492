"""Rules for bounded tables: they fit, nobody misses a packet, and what can't be widened is refused."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.filters import rule_strategies as some

from treecast.middleware.filters.actions import Rules
from treecast.middleware.filters.compiler.direct import Direct
from treecast.middleware.filters.compiler.machine import TableMachine
from treecast.middleware.filters.compiler.overflow import TablesTooSmall, fitted
from treecast.middleware.filters.compiler.schema import Counter, CustomAction, HeaderField, Schema
from treecast.middleware.filters.compiler.statistics import sizes
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.loosen import loosened
from treecast.middleware.filters.rules import parse_rules

FIELDS = tuple(some.query_field(name, "range") for name in some.NUMBERS)
SCHEMA = Schema(
    some.HEADERS,
    (),
    FIELDS,
    (Counter("n", 100, 8), Counter("m", 100, 8)),
    (CustomAction("mark", (HeaderField("value", 8),)),),
)
PORT_PER_VALUE = "\n".join(f"a == {value} and b > {value} : fwd({value + 1})" for value in range(15))


@given(
    some.stateful | some.stateless,
    st.integers(1, 12),
    st.lists(st.tuples(some.packets, st.integers(0, 60)), min_size=1, max_size=12),
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_fits_misses_nothing(
    rules: Rules, size: int, arrivals: list[tuple[tuple[int, int, tuple[int, int] | None], int]]
) -> None:
    """A refusal needs a rule, or a default, that may not be widened, or two leaves that size 1 can't hold."""
    try:
        found = fitted(SCHEMA, rules, size)
    except (FilterError, TablesTooSmall):
        return
    assert all(one.entries <= size for one in sizes(found.compiled))
    direct, machine = Direct(SCHEMA, rules), TableMachine(found.compiled)
    now = 0
    for packet, later in arrivals:
        now += later
        values = some.of_schema(SCHEMA, packet)
        exact, wide = direct.receive(values, now), machine.receive(values, now)
        assert set(exact.ports) <= set(wide.ports)
        assert found.wider or exact.ports == wide.ports
        assert exact.custom in (None, wide.custom)


@given(some.stateful, st.integers(2, 9), st.lists(st.tuples(some.packets, st.integers(0, 60)), max_size=12))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_looser_rules_miss_nothing_with_a_default_and_state(
    rules: Rules, alpha: int, arrivals: list[tuple[tuple[int, int, tuple[int, int] | None], int]]
) -> None:
    direct, loose = Direct(SCHEMA, rules), Direct(SCHEMA, loosened(rules, alpha))
    for packet, now in sorted(arrivals, key=lambda one: one[1]):
        values = some.of_schema(SCHEMA, packet)
        assert set(direct.receive(values, now).ports) <= set(loose.receive(values, now).ports)


def test_numbers_are_loosened_first_then_fields_left_out() -> None:
    rules = parse_rules("\n".join(f"a > {value} : fwd({value + 1})" for value in range(12)))
    assert not fitted(SCHEMA, rules, 100).wider
    some_ = fitted(SCHEMA, rules, 5)
    assert (some_.alpha, some_.left_out) == (4, ())
    assert {one.table: one.entries for one in some_.needed} == {"first_a_exact": 11, "leaf": 13}
    crowded = fitted(SCHEMA, parse_rules(PORT_PER_VALUE.replace(" and b >", " and b !=")), 3)
    assert set(crowded.left_out) == {"first.a", "first.b"}


def test_what_may_not_be_widened_is_refused_in_words() -> None:
    marks = parse_rules("\n".join(f"a == {value} : mark({value})" for value in range(9)))
    with pytest.raises(TablesTooSmall, match="first_a_exact 9, leaf 10: rules with custom actions"):
        fitted(SCHEMA, marks, 5)
    with pytest.raises(TablesTooSmall, match="leave out --refuse"):
        fitted(SCHEMA, parse_rules(PORT_PER_VALUE), 5, widen=False)
    answered = parse_rules(PORT_PER_VALUE + "\ndefault : mark(1)")
    with pytest.raises(TablesTooSmall, match="custom actions"):
        fitted(SCHEMA, answered, 5)
