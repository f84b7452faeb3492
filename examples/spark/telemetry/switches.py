"""Switches that report hop latencies and queue depths, with injected anomalies. Pure, by a seed.

The events are those of the Camus paper's telemetry: each report is of one packet at one switch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

SWITCHES = tuple(f"s{number}" for number in range(1, 9))
LATENCY_US = 10.0  # of a hop, usually
LIMIT_US, LIMIT_CELLS = 30.0, 40  # above them a report is of interest
WINDOW_S = 5
ENOUGH = 8  # such reports of a switch in one window are an anomaly
_KINDS = ("queue builds up", "hop is slow")


class Anomaly(Struct, frozen=True):
    """An anomaly at a switch. Times in seconds from the beginning."""

    switch: str
    kind: str
    begin: float
    end: float


class Network:
    """`seconds` of reports at `rate` a second from each switch."""

    def __init__(self, seed: int, seconds: int, rate: int, anomalies: int) -> None:
        self._random = rng = random.Random(seed)
        self.seconds, self._rate = seconds, rate
        self.anomalies: list[Anomaly] = []
        while len(self.anomalies) < anomalies:
            begin = rng.uniform(2 * WINDOW_S, seconds - 4 * WINDOW_S)
            found = Anomaly(
                rng.choice(SWITCHES), rng.choice(_KINDS), begin, begin + rng.uniform(2, 3) * WINDOW_S
            )
            if all(
                found.switch != one.switch or found.begin > one.end + 15 or one.begin > found.end + 15
                for one in self.anomalies
            ):
                self.anomalies.append(found)

    def reports(self) -> Iterator[dict[str, Any]]:
        """Yields the reports in order of time."""
        for step in range(self.seconds * self._rate):
            time = step / self._rate
            for switch in SWITCHES:
                yield self._report(switch, time)

    def _report(self, switch: str, time: float) -> dict[str, Any]:
        rng = self._random
        latency, depth = rng.lognormvariate(0, 0.25) * LATENCY_US, int(rng.expovariate(1 / 6))
        if rng.random() < 0.002:  # a single slow packet means nothing
            latency *= 5
        for one in self.anomalies:
            if one.switch == switch and one.begin <= time < one.end:
                share = min(1.0, (time - one.begin) / WINDOW_S * 2)
                if one.kind == _KINDS[0]:
                    depth += int(120 * share * rng.random())
                else:
                    latency *= 1 + 5 * share * rng.random()
        return {"switch": switch, "t": round(time, 3), "latency": round(latency, 2), "depth": depth}
