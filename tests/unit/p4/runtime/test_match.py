"""Match engines against a linear search, while entries come and go."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.dataplane.p4.bits import prefix_mask
from treecast.middleware.dataplane.p4.runtime.match import MAX_CACHED, MatchTable, Row

WIDTH = 6
ONES = (1 << WIDTH) - 1
VALUES = st.integers(0, ONES)


def row(value: int, mask: int, rank: int, ranges: tuple[tuple[int, int, int, int], ...] = ()) -> Row:
    made = Row(True, 0, ())
    made.value, made.mask, made.rank, made.ranges = value & mask, mask, rank, ranges
    return made


exact = VALUES.map(lambda value: row(value, ONES, 0))
lpm = st.tuples(VALUES, st.integers(0, WIDTH)).map(
    lambda pair: row(pair[0], prefix_mask(pair[1], WIDTH), pair[1])
)
ternary = st.tuples(VALUES, VALUES, st.integers(1, 5)).map(lambda t: row(*t))
ranged = st.tuples(VALUES, VALUES, st.integers(1, 5), st.integers(0, 7), st.integers(0, 7)).map(
    lambda t: row(t[0], t[1] & 0b111000, t[2], ((0, 7, min(t[3], t[4]), max(t[3], t[4])),))
)


def check(table: MatchTable) -> None:
    for key in range(ONES + 1):
        assert table.find(key) is table.find_linear(key)
        assert table.find(key) is table.find_linear(key)  # a cached result is right too


def exercise(is_exact: bool, rows: list[Row], order: list[int]) -> None:
    """Adds all rows, then removes them one after the other, with lookups in between."""
    table = MatchTable(is_exact, Row(False, 0, ()))
    for one in rows:
        if one.identity not in table.by_identity:
            table.add(one)
    check(table)
    for number in order:
        if table.by_identity:
            table.remove(list(table.by_identity.values())[number % len(table.by_identity)])
            check(table)
    assert table.miss.hit is False


ORDER = st.lists(st.integers(0, 50), max_size=6)


@given(st.lists(exact, max_size=30), ORDER)
@settings(max_examples=20)
def test_exact(rows: list[Row], order: list[int]) -> None:
    exercise(True, rows, order)


@given(st.lists(lpm, max_size=20), ORDER)
@settings(max_examples=30)
def test_longest_prefix(rows: list[Row], order: list[int]) -> None:
    exercise(False, rows, order)


@given(st.lists(ternary, max_size=20), ORDER)
@settings(max_examples=40)
def test_ternary(rows: list[Row], order: list[int]) -> None:
    exercise(False, rows, order)


@given(st.lists(ranged, max_size=20), ORDER)
@settings(max_examples=40)
def test_range(rows: list[Row], order: list[int]) -> None:
    exercise(False, rows, order)


def test_the_longest_prefix_wins() -> None:
    table = MatchTable(False, Row(False, 0, ()))
    for prefix in (0, 2, 4):
        table.add(row(0b110100, prefix_mask(prefix, WIDTH), prefix))
    assert [table.find(key).rank for key in (0b110111, 0b111111, 0b000000)] == [4, 2, 0]


def test_equal_priorities_go_to_the_older_one() -> None:
    table = MatchTable(False, Row(False, 0, ()))
    older, newer = row(0, 0, 7), row(1, 1, 7)
    table.add(older)
    table.add(newer)
    assert table.find(1) is older


def test_the_cache_is_bounded() -> None:
    table = MatchTable(False, Row(False, 0, ()))
    for key in range(MAX_CACHED + 10):
        table.find(key)
    assert len(table.cache) <= MAX_CACHED
