"""Percentiles of a list of measurements, by nearest rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

QUANTILES = (0.5, 0.9, 0.99, 0.999)


def percentile(ordered: Sequence[float], quantile: float) -> float:
    """The smallest value that at least `quantile` of all values don't exceed. `ordered` ascends."""
    if not ordered:
        raise ValueError("no values to take a percentile of")
    if not 0 <= quantile <= 1:
        raise ValueError("a quantile is between 0 and 1")
    return ordered[max(math.ceil(quantile * len(ordered)) - 1, 0)]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Count, mean, percentiles and maximum, in the unit of the values."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution:
        ordered = sorted(values)
        p50, p90, p99, p999 = (percentile(ordered, quantile) for quantile in QUANTILES)
        return cls(len(ordered), sum(ordered) / len(ordered), p50, p90, p99, p999, ordered[-1])
