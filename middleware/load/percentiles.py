"""Percentiles of a list of measurements, by nearest rank."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

QUANTILES = (0.5, 0.9, 0.99, 0.999)
WINDOW_S = 0.25


def percentile(ordered: Sequence[float], quantile: float) -> float:
    """Returns the smallest value that at least `quantile` of all values do not exceed. `ordered` ascends."""
    if not ordered:
        raise ValueError("no values to take a percentile of")
    if not 0 <= quantile <= 1:
        raise ValueError("a quantile is between 0 and 1")
    return ordered[max(math.ceil(quantile * len(ordered)) - 1, 0)]


def window_p99(values: Sequence[float], rate: float) -> float:
    """Returns the median of the 99th percentiles of windows of WINDOW_S each.

    `values` are in the order of their due times, `rate` of them a second. A pause of the machine for a tenth
    of a second spoils the 99th percentile of ten seconds, but of one window only. An incomplete last window
    counts only if it is the first.
    """
    size = max(round(rate * WINDOW_S), 1)
    starts = range(0, max(len(values) - size, 0) + 1, size)
    return statistics.median([percentile(sorted(values[start : start + size]), 0.99) for start in starts])


@dataclass(frozen=True, slots=True)
class Distribution:
    """Count, mean, percentiles and maximum, in the unit of the values. See `window_p99()`."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    maximum: float
    window_p99: float

    @classmethod
    def of(cls, values: Sequence[float], rate: float) -> Distribution:
        """Returns the distribution of `values`, which are in the order of their due times, `rate` of them a
        second.
        """
        ordered = sorted(values)
        p50, p90, p99, p999 = (percentile(ordered, quantile) for quantile in QUANTILES)
        mean, calm = sum(ordered) / len(ordered), window_p99(values, rate)
        return cls(len(ordered), mean, p50, p90, p99, p999, ordered[-1], calm)
