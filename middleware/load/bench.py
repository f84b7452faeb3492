"""The loads of `treecast bench`: produce, fetch or latency against a Kafka face, with results as values and
tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from treecast.middleware.model.records import Compression

from .connection import Connection
from .fetch import EqualBatches, FetchResult, Reader
from .frames import EARLIEST, LoadError
from .latency import LatencyResult, LatencyRun
from .payload import Batch, make_batch, records_in
from .produce import Blaster, ProduceResult

if TYPE_CHECKING:
    from rich.table import Table

Kind = Literal["produce", "fetch", "latency"]
Result = ProduceResult | FetchResult | LatencyResult


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """The options of a load. `batch_bytes` bounds a request's batch; a non-zero `batch_records` overrides it.

    `rate` is in records a second and applies to `latency` only, which sends one record per request unless
    `batch_records` is larger. `equal_batches` tells `fetch` that the caller created the topic itself, with
    the same `size` and batch, so that it need not read every byte (see `fetch.py`); it reads all `passes`
    times.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    topic: str = "treecast-bench"
    records: int = 1_000_000
    size: int = 100
    batch_bytes: int = 16_384  # the Java client's default batch.size
    batch_records: int = 0
    connections: int = 1
    window: int = 16
    acks: int = 1
    compression: str = "none"
    rate: float = 5_000
    warmup: float = 0.2  # the share of a latency run that is not measured
    consume: bool = True
    max_bytes: int = 1 << 20
    equal_batches: bool = False
    passes: int = 1

    def records_per_batch(self, kind: Kind) -> int:
        if self.batch_records:
            return self.batch_records
        return 1 if kind == "latency" else records_in(self.batch_bytes, self.size)


def run_bench(kind: Kind, options: BenchOptions) -> Result:
    """Runs one load to its end. Raises LoadError if the server refuses, OSError if it is unreachable."""
    return prepare(kind, options)()


def prepare(kind: Kind, options: BenchOptions) -> Callable[[], Result]:
    """Makes the topic, encodes, connects; what is returned runs the load itself and checks the log's end."""
    if kind == "produce":
        return _prepare_produce(options)
    if kind == "fetch":
        return _prepare_fetch(options)
    return _prepare_latency(options)


def _batch(kind: Kind, options: BenchOptions) -> Batch:
    try:
        compression = Compression[options.compression.upper()]
    except KeyError as error:
        known = ", ".join(codec.name.lower() for codec in Compression)
        raise LoadError(f"unknown compression {options.compression!r}; there are {known}") from error
    count = options.records_per_batch(kind)
    return make_batch(count, options.size, int(time.time() * 1000), compression)


def _ends(options: BenchOptions, partitions: range) -> dict[int, int]:
    with Connection(options.host, options.port) as connection:
        return {partition: connection.offset(options.topic, partition) for partition in partitions}


def _prepare_produce(options: BenchOptions) -> Callable[[], ProduceResult]:
    partitions = range(options.connections)
    with Connection(options.host, options.port) as connection:
        connection.create_topic(options.topic, options.connections)
    batch = _batch("produce", options)
    requests = max(options.connections, round(options.records / batch.records))
    before = _ends(options, partitions)
    blaster = Blaster(
        options.host,
        options.port,
        options.topic,
        batch.data,
        batch.records,
        requests=requests,
        connections=options.connections,
        partitions=tuple(partitions),
        window=options.window,
        acks=options.acks,
    )

    def run() -> ProduceResult:
        result = blaster.run()
        grown = sum(_ends(options, partitions).values()) - sum(before.values())
        if grown != result.records:
            raise LoadError(f"{result.records} records were acknowledged, but the log grew by {grown}")
        return result

    return run


def _prepare_fetch(options: BenchOptions) -> Callable[[], FetchResult]:
    with Connection(options.host, options.port) as connection:
        error, leaders = connection.metadata([options.topic]).topics.get(options.topic, (3, {}))
        if error or not leaders:
            raise LoadError(f"there is no topic {options.topic}: fill it first with `treecast bench produce`")
        ranges = [
            (
                number,
                connection.offset(options.topic, number, EARLIEST),
                connection.offset(options.topic, number),
            )
            for number in sorted(leaders)
        ]
    equal = None
    if options.equal_batches:
        batch = _batch("produce", options)
        equal = EqualBatches(len(batch.data), batch.records)
    if not any(end > start for _, start, end in ranges):
        raise LoadError(f"topic {options.topic} is empty: fill it first with `treecast bench produce`")
    return Reader(
        options.host,
        options.port,
        options.topic,
        ranges,
        max_bytes=options.max_bytes,
        equal=equal,
        passes=options.passes,
    ).run


def _prepare_latency(options: BenchOptions) -> Callable[[], LatencyResult]:
    with Connection(options.host, options.port) as connection:
        connection.create_topic(options.topic, 1)
        end = connection.offset(options.topic, 0)
    batch = _batch("latency", options)
    requests = max(10, options.records // batch.records)
    return LatencyRun(
        options.host,
        options.port,
        options.topic,
        batch.data,
        batch.records,
        rate=options.rate,
        requests=requests,
        start_offset=end,
        warmup=int(requests * options.warmup),
        acks=options.acks,
        consume=options.consume,
    ).run


def as_json(kind: Kind, options: BenchOptions, result: Result) -> dict[str, object]:
    """`{"kind", "options", "result"}` with plain values; times in seconds."""
    return {"kind": kind, "options": asdict(options), "result": asdict(result)}


def as_table(kind: Kind, options: BenchOptions, result: Result) -> Table:
    from rich.table import Table  # here, as Spark's workers import this package and want no tables

    per_batch = options.records_per_batch(kind)
    table = Table(title=f"{kind} · {options.size} B records, {per_batch} in a batch, acks={options.acks}")
    if isinstance(result, LatencyResult):
        _latency_rows(table, result)
        return table
    for column in ("records", "seconds", "records/s", "MB/s", "requests/s"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{result.records:,}",
        f"{result.seconds:.3f}",
        f"{result.records / result.seconds:,.0f}",
        f"{result.bytes / result.seconds / 1e6:,.1f}",
        f"{result.requests / result.seconds:,.0f}",
    )
    return table


def _latency_rows(table: Table, result: LatencyResult) -> None:
    for column in ("ms", "p50", "p90", "p99", "p99.9", "max"):
        table.add_column(column, justify="left" if column == "ms" else "right")
    rows = {"to the acknowledgement": result.produce, "to the consumer": result.end_to_end}
    for name, found in {**rows, "generator's own lag": result.lag}.items():
        if found is not None:
            values = (found.p50, found.p90, found.p99, found.p999, found.maximum)
            table.add_row(name, *(f"{1000 * value:.3f}" for value in values))
    table.caption = f"intended {result.rate:,.0f} records/s, reached {result.achieved:,.0f}"
