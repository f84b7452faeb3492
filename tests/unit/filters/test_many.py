"""Many filters at once are each filter by itself: `evaluate` is the reference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.filters import filter_strategies as strategies

from treecast.middleware.filters import many
from treecast.middleware.filters.content import StatelessFilter
from treecast.middleware.filters.domains import Domain, behind_prefix
from treecast.middleware.filters.evaluate import holds
from treecast.middleware.filters.many import Built, ManyFilters
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.tree import Constraint, Filter, Scalar
from treecast.middleware.model.records import Record

NAMES = strategies.NAMES
VALUES = st.none() | strategies.scalars
RECORDS = st.recursive(
    st.dictionaries(st.sampled_from(NAMES), VALUES),
    lambda inner: st.dictionaries(st.sampled_from(NAMES), VALUES | inner),
    max_leaves=8,
)


def record_of(values: object) -> Record:
    return Record(None, json.dumps(values).encode())


def expected(filters: list[StatelessFilter], record: Record) -> set[str]:
    return {one.text for one in filters if one.passes("t", record)}


def passed(filters: ManyFilters, record: Record) -> set[str]:
    found = filters.passing("t", record)
    assert found is not None
    assert len(set(found)) == len(found)
    return {one.text for one in found}


@given(st.lists(strategies.constraints(), max_size=6), strategies.constraints(), strategies.scalars)
def test_a_domain_tells_apart_what_constraints_do(
    others: list[Constraint], one: Constraint, value: Scalar
) -> None:
    domain = Domain([*others, one])
    bounds, code = domain.bounds(one.relation, one.constant), domain.code(value)
    inside = any(low <= code < high for low, high in zip(bounds[::2], bounds[1::2], strict=True))
    assert inside is holds(value, one.relation, one.constant)


@pytest.mark.parametrize("value", [None, float("nan")])
def test_no_constraint_holds_for_what_has_no_value(value: Scalar | None) -> None:
    assert Domain([]).code(value) == -1


def test_what_is_behind_a_prefix() -> None:
    last = chr(0x10FFFF)
    assert (behind_prefix("ab"), behind_prefix("a" + last), behind_prefix(last), behind_prefix("")) == (
        "ac",
        "b",
        None,
        None,
    )


@given(st.lists(strategies.stateless, max_size=12), st.lists(RECORDS, min_size=1, max_size=5), st.booleans())
def test_all_at_once_is_each_alone(trees: list[Filter], values: list[object], built: bool) -> None:
    filters = [StatelessFilter(tree) for tree in trees]
    together = ManyFilters()
    together.become(set(filters))
    if built:
        together.build()
    for record in map(record_of, values):
        assert passed(together, record) == expected(filters, record)


@settings(max_examples=50)
@given(
    st.lists(strategies.stateless, min_size=1, max_size=12),
    st.lists(st.tuples(st.sets(st.integers(0, 11)), RECORDS), min_size=1, max_size=12),
)
def test_filters_come_and_go(trees: list[Filter], steps: list[tuple[set[int], object]]) -> None:
    filters = [StatelessFilter(tree) for tree in trees]
    together = ManyFilters()
    for number, (places, values) in enumerate(steps):
        wanted = [filters[place] for place in places if place < len(filters)]
        together.become(set(wanted))
        if number % 3 == 1:
            together.build()
        record = record_of(values)
        assert passed(together, record) == expected(wanted, record)


def market(count: int, rng: Random) -> list[StatelessFilter]:
    texts = {f"stock == S{rng.randrange(100)} and price > {rng.randrange(1000)}" for _ in range(count)}
    return [StatelessFilter(parse(text)) for text in sorted(texts)]


def orders(count: int, rng: Random) -> list[Record]:
    return [
        record_of({"stock": f"S{rng.randrange(120)}", "price": rng.randrange(1000)}) for _ in range(count)
    ]


def test_a_thousand_filters_are_one_diagram() -> None:
    rng = Random(1)
    filters, records = market(1000, rng), orders(200, rng)
    together = ManyFilters()
    together.become(filters)
    for record in records:
        assert passed(together, record) == expected(filters, record)
    assert (together.builds, len(together.diagrams)) == (1, 1)


def test_filters_whose_sets_are_large_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "MOST_MEMBERS", 2_000)
    filters = [StatelessFilter(parse(f"price > {price}")) for price in range(200)]
    together = ManyFilters()
    together.become(filters)
    together.build()
    assert len(together.diagrams) > 4
    for price in (-1, 0, 77, 199, 500):
        record = record_of({"price": price})
        assert passed(together, record) == expected(filters, record)


def test_filters_on_more_fields_than_a_diagram_has() -> None:
    filters = [
        StatelessFilter(parse(f"headers.h{place} == x or a > {place}"))
        for place in range(2 * many.MOST_FIELDS)
    ]
    together = ManyFilters()
    together.become(filters)
    together.build()
    for place in range(0, 2 * many.MOST_FIELDS, 5):
        record = Record(None, json.dumps({"a": place}).encode(), ((f"h{place}", b"x"), ("h3", b"y")))
        assert passed(together, record) == expected(filters, record)


class Later:
    """A build that is done when the test says so."""

    def __init__(self, filters: Sequence[StatelessFilter]) -> None:
        self.filters = filters
        self.over = False

    def done(self) -> bool:
        return self.over

    def result(self) -> Built:
        return Built(self.filters)


def test_filters_change_while_a_diagram_is_built_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_SMALL", 10)
    rng = Random(2)
    filters, records = market(60, rng), orders(400, rng)
    started: list[Later] = []

    def start(wanted: Sequence[StatelessFilter]) -> Later:
        started.append(Later(wanted))
        return started[-1]

    together = ManyFilters(start)
    wanted = filters[:40]
    together.become(wanted)
    for number, record in enumerate(records):
        if number == 100:
            wanted = filters[20:]
            together.become(wanted)
        if number == 200:
            assert (len(started), together.builds) == (1, 0)
            started[0].over = True
        assert passed(together, record) == expected(wanted, record)
    assert (len(started), together.builds) == (2, 1)  # the second one has those that came meanwhile
    started[1].over = True
    for record in records:
        assert passed(together, record) == expected(wanted, record)
    assert together.builds == 2


def alternatives(field: str, count: int) -> str:
    return "(" + " or ".join(f"{field}={number}" for number in range(count)) + ")"


def ranges(count: int, rng: Random) -> list[StatelessFilter]:
    """Filters whose common diagram is large: each attribute of each splits what the others have split."""
    texts = (" and ".join(f"f{place} > {rng.randrange(10**6)}" for place in range(12)) for _ in range(count))
    return [StatelessFilter(parse(text)) for text in texts]


def test_alternatives_of_one_field_are_one_box() -> None:
    text = " and ".join([alternatives("a", 27), alternatives("b", 27), alternatives("c", 27)])
    text += " and " + alternatives("d", 300)
    assert len(text) < 4_096
    filters = [StatelessFilter(parse(text)), *(StatelessFilter(parse(f"a={one}")) for one in range(3))]
    built = Built(filters)
    assert (len(built.diagrams), built.alone) == (1, [])
    together = ManyFilters()
    together.become(filters)
    together.build()
    for number in (0, 26, 27):
        record = record_of({"a": 1, "b": number, "c": 1, "d": 1})
        assert passed(together, record) == expected(filters, record)


def test_a_filter_of_many_boxes_is_in_no_diagram() -> None:
    pairs = " and ".join(f"(a{place}=1 or b{place}=1)" for place in range(11))  # 2^11 boxes
    filters = [StatelessFilter(parse(text)) for text in (pairs, "a0=1", "a0=2")]
    built = Built(filters)
    assert [one.filter for one in built.alone] == [filters[0]]
    together = ManyFilters()
    together.become(filters)
    together.build()
    record = record_of({f"{'ab'[place % 2]}{place}": 1 for place in range(11)})
    assert passed(together, record) == expected(filters, record) == {filters[0].text, filters[1].text}


def test_a_large_diagram_of_few_filters_is_built_elsewhere() -> None:
    started: list[Later] = []

    def start(wanted: Sequence[StatelessFilter]) -> Later:
        started.append(Later(wanted))
        return started[-1]

    rng = Random(3)
    together = ManyFilters(start)
    filters = ranges(17, rng)
    together.become(filters)
    record = record_of({f"f{place}": 10**6 for place in range(12)})
    for _ in range(200):
        assert passed(together, record) == expected(filters, record)
    assert (len(started), together.builds) == (1, 0)
    few = [StatelessFilter(parse(f"a > {number}")) for number in range(5)]
    together.become(few)
    started[0].result = lambda: Built(())  # type: ignore[method-assign]
    started[0].over = True
    for _ in range(200):
        assert passed(together, record_of({"a": 3})) == {"a > 0", "a > 1", "a > 2"}
    assert (len(started), together.builds) == (1, 2)  # these are built at once


def test_filters_stay_as_they_are_if_a_build_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_SMALL", 10)
    started: list[Later] = []

    class Failing(Later):
        def result(self) -> Built:
            raise MemoryError

    def start(wanted: Sequence[StatelessFilter]) -> Later:
        started.append(Failing(wanted) if not started else Later(wanted))
        started[-1].over = True
        return started[-1]

    rng = Random(4)
    filters = market(30, rng)
    together = ManyFilters(start)
    together.become(filters)
    for record in orders(400, rng):
        assert passed(together, record) == expected(filters, record)
    assert (len(started), together.builds) == (2, 1)
