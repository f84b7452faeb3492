"""Effects on other hosts: latencies in windows of a run, compared with windows without any action. Pure.

A round is a list of windows, the first of which is calm; each other one is compared with it, by the factor of
a percentile. The machine itself also changes these factors. So every round is followed by one with windows of
the same lengths without any action, and only values that stand out from all of those count as effects.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

PERCENTILES = (50.0, 90.0, 99.0)
WORSE = 1.2  # times the control's factor
_LEAST = 100  # minimum samples of a window for a percentile

Sample = tuple[float, float]  # (time of sending in seconds, latency in ms)


@dataclass(frozen=True)
class Window:
    """From `begin` to `end`, in seconds of the clock that stamps samples."""

    name: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns a percentile of ascending values; NaN if there are none."""
    if not ordered:
        return float("nan")
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def within(samples: Sequence[Sample], windows: Sequence[Window]) -> list[float]:
    """Returns ascending latencies of records sent in one of the windows. `samples` in the order of
    sending."""
    sent = [at for at, _ in samples]
    found: list[float] = []
    for window in windows:
        found += [ms for _, ms in samples[bisect_left(sent, window.begin) : bisect_left(sent, window.end)]]
    return sorted(found)


@dataclass
class Watched:
    """The windows of each round that one host has seen, with and without an outage."""

    host: str
    samples: list[Sample]
    outages: list[list[Window]] = field(default_factory=list)
    controls: list[list[Window]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.samples.sort()

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yields one or two rows for each window, with and without an outage: its name, records, percentiles
        in ms, and the factors relative to the calm window, as medians of the rounds."""
        for at, window in enumerate(self.outages[0]):
            yield (window.name, *self._row(self.outages, at))
            if self.controls:
                yield ("   control", *self._row(self.controls, at))

    def _row(self, rounds: Sequence[Sequence[Window]], at: int) -> Iterator[str]:
        found = within(self.samples, [windows[at] for windows in rounds])
        yield f"{len(found):,}"
        yield from (f"{percentile(found, percent):.2f}" for percent in PERCENTILES)
        yield from (f"{median(self._factors(rounds, at, percent)):.2f}" for percent in PERCENTILES)

    def _factors(self, rounds: Sequence[Sequence[Window]], at: int, percent: float) -> list[float]:
        """Returns for each round the window's percentile divided by that of the calm one."""
        found = []
        for windows in rounds:
            calm = percentile(within(self.samples, windows[:1]), percent)
            found.append(percentile(within(self.samples, [windows[at]]), percent) / calm)
        return found

    def effects(self, but: Collection[str] = ()) -> list[str]:
        """Returns the windows that stand out: their median factor is above that of every control round and
        above `WORSE` times the control's median. `but`: windows to skip."""
        found: list[str] = []
        for at, window in enumerate(self.outages[0]):
            if at == 0 or window.name in but:
                continue
            seen = within(self.samples, [windows[at] for windows in self.outages])
            if len(seen) < _LEAST:
                found.append(f"{self.host}: only {len(seen)} records were sent to it during {window.name}")
                continue
            for percent in PERCENTILES:
                factor = median(self._factors(self.outages, at, percent))
                control = self._factors(self.controls, at, percent)
                if factor > max(*control, WORSE * median(control)):
                    found.append(
                        f"{self.host}, {window.name}: the {percent:g}th percentile is {factor:.2f} times "
                        f"that of before, without an outage {median(control):.2f}, at most {max(control):.2f}"
                    )
        return found


HEAD = ("window", "records", *(f"p{percent:g}" for percent in PERCENTILES))
HEAD = (*HEAD, *(f"p{percent:g} x" for percent in PERCENTILES))
