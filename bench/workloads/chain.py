"""Workloads for servers in a row: maximum throughput, and single records at a fixed rate."""

from __future__ import annotations

import sys

from bench.chain.load import Order
from bench.core.chain import Chain
from bench.core.load import LoadRun, run_load
from bench.core.measure import (
    ACK_P50,
    ACK_P99,
    ACK_P999,
    DELIVERY_P50,
    DELIVERY_P99,
    DELIVERY_P999,
    LAG_P99,
    REACHED,
    SERVER_CPU,
    THROUGHPUT,
    Metric,
    Values,
    Workload,
)
from bench.core.process import keep_to_cores

COMMAND = (sys.executable, "-m", "bench.chain")
ACKNOWLEDGED = Metric("acknowledged", "records/s", True)
GENERATOR = Metric("generator busy", "% of a core", False)
FIRST = 20_000  # records of the first warm-up, whose rate determines the size of the others
MOST_BYTES = 512 << 20  # limit of a run, however fast the peer is


def _run(peer: Chain, records: int, size: int, rate: float = 0) -> LoadRun:
    if not isinstance(peer, Chain):
        raise TypeError(f"{peer.name} has no route through it")
    if peer.own_cores:
        keep_to_cores(peer.hosts())
    return run_load(peer, Order(peer.route, records, size, rate).as_json(), COMMAND)


def _size(size: int) -> str:
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def _throughput(run: LoadRun) -> float:
    return float(run.result["records"]) / float(run.result["seconds"])


class ChainThroughput(Workload[Chain]):
    """Measures from the first record sent to the last one arrived, with as many records as take about
    `seconds`.

    Two earlier runs are not measured: a short one determines the rate, one of half the length warms up.
    """

    floor = True

    def __init__(self, size: int, seconds: float) -> None:
        self._size, self._seconds = size, seconds
        self.name = f"through the chain, {_size(size)}"

    def run(self, peer: Chain, number: int) -> Values:
        rate = _throughput(_run(peer, FIRST, self._size))
        rate = _throughput(_run(peer, self._records(rate / 2), self._size))
        run = _run(peer, self._records(rate), self._size)
        return {
            THROUGHPUT: _throughput(run),
            ACKNOWLEDGED: run.result["records"] / run.result["acknowledged"],
            SERVER_CPU: run.cpu_per_record,
            **run.joining,
            GENERATOR: 100 * run.result["generator"],
        }

    def _records(self, rate: float) -> int:
        return max(FIRST // 2, min(round(rate * self._seconds), MOST_BYTES // self._size))


class ChainLatency(Workload[Chain]):
    """Single records at `rate` a second for `seconds`; a run before it and its first fifth don't count."""

    floor = True

    def __init__(self, size: int, rate: int, seconds: float) -> None:
        self._size, self.rate, self._seconds = size, rate, seconds
        self.name = f"latency at {rate:,}/s, {_size(size)}"

    def run(self, peer: Chain, number: int) -> Values:
        _run(peer, round(self.rate * self._seconds / 4), self._size, self.rate)
        run = _run(peer, round(self.rate * self._seconds), self._size, self.rate)
        answered, arrived = run.result["produce"], run.result["end_to_end"]
        values = {
            DELIVERY_P50: arrived["p50"],
            DELIVERY_P99: arrived["p99"],
            DELIVERY_P999: arrived["p999"],
            ACK_P50: answered["p50"],
            ACK_P99: answered["p99"],
            ACK_P999: answered["p999"],
            LAG_P99: run.result["lag"]["p99"],
        }
        return {
            **{metric: 1000 * seconds for metric, seconds in values.items()},
            SERVER_CPU: run.cpu_per_record,
            **run.joining,
            REACHED: run.result["achieved"],
            GENERATOR: 100 * run.result["generator"],
        }
