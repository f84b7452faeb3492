import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.load.percentiles import Distribution, percentile, window_p99

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
    found = Distribution.of([float(value) for value in range(1000, 0, -1)], rate=1000.0)
    assert (found.p50, found.p90, found.p99, found.p999) == (500, 900, 990, 999)
    assert (found.count, found.mean, found.maximum) == (1000, 500.5, 1000)


def test_a_pause_spoils_one_window_and_not_their_median():
    calm = [0.001] * 9000 + [0.002] * 1000
    paused = calm[:4000] + [0.1 - i / 10_000 for i in range(400)] + calm[4400:]
    assert Distribution.of(paused, rate=1000.0).p99 > 0.05
    assert window_p99(paused, rate=1000.0) == window_p99(calm, rate=1000.0) == 0.001


@given(values, st.floats(0.1, 1000))
def test_the_median_window_is_between_the_best_and_the_worst(numbers, rate):
    size = max(round(rate / 4), 1)
    whole = max(len(numbers) // size, 1)
    windows = [sorted(numbers[i * size : (i + 1) * size]) for i in range(whole)]
    found = sorted(percentile(window, 0.99) for window in windows)
    assert window_p99(numbers, rate) == (found[whole // 2] + found[(whole - 1) // 2]) / 2


def test_nothing_has_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1.0], 1.5)
