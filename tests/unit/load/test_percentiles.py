import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.load.percentiles import Distribution, percentile

values = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)


@given(values, st.floats(0, 1))
def test_percentile_is_the_smallest_value_that_covers_its_share(numbers, quantile):
    found = percentile(sorted(numbers), quantile)
    assert found in numbers
    covered = sum(value <= found for value in numbers)
    below = sum(value < found for value in numbers)
    assert covered >= quantile * len(numbers) - 1e-9
    assert below == 0 or below < quantile * len(numbers) + 1e-9


def test_distribution_of_one_to_a_thousand():
    found = Distribution.of([float(value) for value in range(1000, 0, -1)])
    assert (found.p50, found.p90, found.p99, found.p999) == (500, 900, 990, 999)
    assert (found.count, found.mean, found.maximum) == (1000, 500.5, 1000)


def test_nothing_has_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1.0], 1.5)
