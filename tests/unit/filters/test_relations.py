"""Satisfiability, implication, overlap and cover, against all packets of small headers."""

from __future__ import annotations

from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.filters import rule_strategies as some

from treecast.middleware.filters.compiler.relations import Match, cover, implies, match, satisfiable
from treecast.middleware.filters.compiler.schema import Header, HeaderField, QueryField, Schema
from treecast.middleware.filters.evaluate import evaluate
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.tree import Field, Filter

WIDTH = 2
FIELDS = tuple(QueryField("h", name, WIDTH) for name in some.NUMBERS)
SCHEMA = Schema((Header("h", tuple(HeaderField(name, WIDTH) for name in some.NUMBERS)),), (), FIELDS)
VALUES = (None, 0, 1, 2, 3)
PACKETS = [
    {Field((name,)): value for name, value in zip(some.NUMBERS, values, strict=True)}
    for values in product(VALUES, repeat=4)
]
filters = some.trees(some.on_fields)


def of(tree: Filter) -> list[bool]:
    return [evaluate(tree, packet.get) for packet in PACKETS]


@given(filters, filters)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_relations_of_two(a: Filter, b: Filter) -> None:
    both = list(zip(of(a), of(b), strict=True))
    assert satisfiable(SCHEMA, a) is any(x for x, _ in both)
    assert implies(SCHEMA, a, b) is all(y for x, y in both if x)
    wanted = [y for x, y in both if x]
    expected = Match.NONE if not any(wanted) else Match.PERMANENT if all(wanted) else Match.POTENTIAL
    assert match(SCHEMA, a, b) is expected


@given(st.lists(filters, max_size=5))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_covers(several: list[Filter]) -> None:
    kept = cover(SCHEMA, several)

    def matched(trees: list[Filter]) -> list[bool]:
        columns = [of(tree) for tree in trees]
        return [any(column[place] for column in columns) for place in range(len(PACKETS))]

    assert matched(kept) == matched(several)
    for place in range(len(kept)):
        assert matched(kept[:place] + kept[place + 1 :]) != matched(kept)


def test_a_cover_may_take_several() -> None:
    several = [parse("a < 2"), parse("a == 1 or a == 2"), parse("a > 1")]
    assert cover(SCHEMA, several) == [several[0], several[2]]
