"""Raw workloads: the pre-encoded blaster, the fetch reader and the open-loop latency generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from bench.core.load import LoadRun, run_load
from bench.core.measure import (
    ACK_P50,
    ACK_P99,
    ACK_P999,
    ACK_WINDOW_P99,
    DELIVERY_P50,
    DELIVERY_P99,
    DELIVERY_P999,
    DELIVERY_WINDOW_P99,
    LAG_P99,
    LAG_WINDOW_P99,
    REACHED,
    SERVER_CPU,
    THROUGHPUT,
    Values,
    Workload,
)
from bench.core.peer import Server
from treecast.middleware.load.bench import BenchOptions, Kind

MOST_BYTES = 2 << 30  # of records: limit of a run, however fast the peer is


def _run(kind: Kind, peer: Server, options: BenchOptions, topic: str, **changes: Any) -> LoadRun:
    host, port = peer.address
    options = replace(options, host=host, port=port, topic=topic, **changes)
    return run_load(peer, {"kind": kind, "options": asdict(options)})


def _rate(run: LoadRun) -> Values:
    return {
        THROUGHPUT: run.result["records"] / run.result["seconds"],
        SERVER_CPU: run.cpu_per_record,
    }


def _bytes(size: int) -> str:
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def _describe(options: BenchOptions) -> str:
    size, batch = _bytes(options.size), _bytes(options.batch_bytes)
    return f"{size}, {batch} batches, {options.connections} conn."


class RawProduce(Workload[Server]):
    """Produces as fast as answers arrive; the options' records are sent first, unmeasured.

    They determine the rate: the measured run takes about `seconds`, or less beyond `MOST_BYTES`. With 0 it
    has the length of the previous one.
    """

    floor = True

    def __init__(self, options: BenchOptions, seconds: float = 0) -> None:
        self._options = options
        self._seconds = seconds
        self.name = f"raw produce, {_describe(options)}"

    def run(self, peer: Server, number: int) -> Values:
        topic = f"produce-{self._options.size}-{self._options.batch_bytes}-{self._options.connections}"
        warm = _run("produce", peer, self._options, f"{topic}-warm")
        records = self._records(warm.result["records"] / warm.result["seconds"])
        return _rate(_run("produce", peer, self._options, topic, records=records))

    def _records(self, rate: float) -> int:
        wanted = min(round(rate * self._seconds), MOST_BYTES // self._options.size)
        return max(wanted, self._options.records)


class RawFetch(Workload[Server]):
    """Reads a topic filled by the blaster, as fast as answers arrive; twice before, unmeasured.

    `passes` times: a few hundred megabytes are read in some 50 ms, which one pause of the machine doubles.
    """

    floor = True

    def __init__(self, options: BenchOptions, passes: int = 1) -> None:
        self._options = replace(options, equal_batches=True)
        self._passes = passes
        self.name = f"raw fetch, {_describe(options)}"

    def run(self, peer: Server, number: int) -> Values:
        topic = f"fetch-{self._options.size}-{self._options.batch_bytes}-{self._options.connections}"
        _run("produce", peer, self._options, topic)
        _run("fetch", peer, self._options, topic, equal_batches=False)  # reads every byte once
        _run("fetch", peer, self._options, topic)
        return _rate(_run("fetch", peer, self._options, topic, passes=self._passes))


class Latency(Workload[Server]):
    """A fixed rate, open loop, one producing and one long-polling connection on one partition."""

    def __init__(self, options: BenchOptions, seconds: float) -> None:
        self._options = replace(options, records=round(options.rate * seconds))
        each = options.records_per_batch("latency")
        records = "single records" if each == 1 else f"batches of {each}"
        self.name = f"latency at {options.rate:,.0f}/s, {options.size} B, {records}"

    def run(self, peer: Server, number: int) -> Values:
        topic = f"latency-{self._options.rate:.0f}-{self._options.batch_records}"
        _run("latency", peer, self._options, topic)
        run = _run("latency", peer, self._options, topic)
        found: Mapping[str, Mapping[str, float]] = run.result
        values = {
            ACK_P50: found["produce"]["p50"],
            ACK_P99: found["produce"]["p99"],
            ACK_P999: found["produce"]["p999"],
            ACK_WINDOW_P99: found["produce"]["window_p99"],
            DELIVERY_P50: found["end_to_end"]["p50"],
            DELIVERY_P99: found["end_to_end"]["p99"],
            DELIVERY_P999: found["end_to_end"]["p999"],
            DELIVERY_WINDOW_P99: found["end_to_end"]["window_p99"],
            LAG_P99: found["lag"]["p99"],
            LAG_WINDOW_P99: found["lag"]["window_p99"],
        }
        return {
            **{metric: 1000 * seconds for metric, seconds in values.items()},
            SERVER_CPU: run.cpu_per_record,
            REACHED: run.result["achieved"],
        }
