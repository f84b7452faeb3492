"""Metrics, samples and workloads."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from .peer import Peer


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity. `target` is the required ratio of Treecast to the peer: a minimum if higher is
    better, else a maximum.
    """

    name: str
    unit: str
    higher_is_better: bool
    target: float | None = None

    def meets(self, ratio: float) -> bool | None:
        if self.target is None:
            return None
        return ratio >= self.target if self.higher_is_better else ratio <= self.target


THROUGHPUT = Metric("throughput", "records/s", True, 2.0)
CLIENT_THROUGHPUT = Metric("client throughput", "records/s", True)
SERVER_CPU = Metric("server CPU", "µs/record", False, 0.5)
JOINING_CPU = Metric("CPU of the bridge", "µs/record", False)
CORE_WAIT = Metric("waited for a core", "µs/record", False)
ACK_P50 = Metric("ack p50", "ms", False)
ACK_P99 = Metric("ack p99", "ms", False, 0.5)
ACK_P999 = Metric("ack p99.9", "ms", False)
ACK_WINDOW_P99 = Metric("ack p99, median 0.25 s", "ms", False, 0.5)
DELIVERY_P50 = Metric("end-to-end p50", "ms", False)
DELIVERY_P99 = Metric("end-to-end p99", "ms", False, 0.5)
DELIVERY_P999 = Metric("end-to-end p99.9", "ms", False)
DELIVERY_WINDOW_P99 = Metric("end-to-end p99, median 0.25 s", "ms", False, 0.5)
REACHED = Metric("rate reached", "records/s", True)
LAG_P99 = Metric("generator lag p99", "ms", False)
LAG_WINDOW_P99 = Metric("generator lag p99, median 0.25 s", "ms", False)
START_UP = Metric("start-up", "s", False, 0.1)
IDLE_MEMORY = Metric("resident, idle", "MiB", False, 0.25)
LOADED_MEMORY = Metric("resident, after load", "MiB", False, 0.25)
LOADED_ANONYMOUS = Metric("of it anonymous", "MiB", False)

Values = Mapping[Metric, float]
P = TypeVar("P", bound=Peer)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value: of a metric, for a peer, under a workload, in a round."""

    peer: str
    round: int
    workload: str
    metric: Metric
    value: float


class Workload(abc.ABC, Generic[P]):
    """An operation on a running peer of the kind `P`. Reports use `name`."""

    name: str
    floor = False  # whether the bare loop can serve it

    def missing(self) -> str:
        """Returns why it cannot run here, or an empty string."""
        return ""

    def void(self, values: Values) -> str:
        """Returns why these values of a run are no measurement of the peer, or an empty string."""
        return ""

    @abc.abstractmethod
    def run(self, peer: P, number: int) -> Values:
        """Warms up, measures once; `number` counts the rounds."""
