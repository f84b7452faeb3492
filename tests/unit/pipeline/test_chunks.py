"""Parts of an archive: each name once, in order, and none larger than it may be."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from treecast.spark_connectors.pipeline.chunks import parts, runs

SIZES = st.dictionaries(st.integers(-50, 50), st.integers(0, 40))
NAMES = st.sets(st.integers(-60, 60))


@given(SIZES, NAMES, st.integers(1, 100))
def test_each_name_is_in_one_part_and_no_part_is_too_large(
    sizes: dict[int, int], names: set[int], most: int
) -> None:
    found = list(parts(sizes, names, most))
    assert [name for part in found for name in part] == sorted(names)
    for part in found:
        assert len(part) == 1 or sum(sizes.get(name, 0) for name in part) <= most
    for part, after in itertools.pairwise(found):  # and none is smaller than it has to be
        assert sum(sizes.get(name, 0) for name in [*part, after[0]]) > most


def test_names_without_intervals_fill_a_part_too() -> None:
    assert [len(part) for part in parts({}, range(25_000), 1)] == [10_000, 10_000, 5_000]


@given(st.sets(st.integers(-30, 30)), st.integers(1, 7))
def test_runs_are_the_names_and_no_others(numbers: set[int], step: int) -> None:
    names = {step * number for number in numbers}
    found = list(runs(names, step))
    assert {name for first, last in found for name in range(first, last + 1, step)} == names
    assert all(before[1] + step < after[0] for before, after in itertools.pairwise(found))
