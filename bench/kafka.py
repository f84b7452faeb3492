"""The first comparison: Treecast's Kafka face and Apache Kafka, with the bare loop as the floor."""

from __future__ import annotations

from typing import Any

from bench.core.measure import Workload
from bench.workloads.java import JavaConsume, JavaPaced, JavaProduce
from bench.workloads.librdkafka import LibrdkafkaConsume, LibrdkafkaProduce
from bench.workloads.many import ManyClients
from bench.workloads.raw import Latency, RawFetch, RawProduce
from treecast.middleware.load.bench import BenchOptions

KIB = 1024
PASSES = 24  # over the data of a fetch run: about a second
SECONDS = 3  # of a produce run


def workloads(records: int, sizes: tuple[int, ...], quick: bool) -> list[Workload[Any]]:
    """Returns the workloads. `records` is for 100-byte records; larger ones are fewer, so that every load
    moves as many bytes.
    """
    out: list[Workload[Any]] = []
    for size in sizes:
        count = max(1000, records * 100 // size)
        small = BenchOptions(records=count, size=size, batch_bytes=16 * KIB)
        wide = BenchOptions(records=count, size=size, batch_bytes=16 * KIB, connections=4)
        large = BenchOptions(records=count, size=size, batch_bytes=256 * KIB, window=4)
        out += [RawProduce(small, 0 if quick else SECONDS), RawFetch(small, 1 if quick else PASSES)]
        if not quick:
            out += [RawProduce(wide, SECONDS), RawProduce(large, SECONDS), RawFetch(wide, PASSES)]
    seconds = 2 if quick else 15
    single = BenchOptions(rate=5_000, size=100)
    out.append(Latency(single, seconds))
    if not quick:
        out.append(Latency(BenchOptions(rate=20_000, size=100, batch_records=10), seconds))
        out.append(Latency(BenchOptions(rate=50_000, size=KIB), 4))  # a request for each record
    perf = records // (10 if quick else 2)
    out += [LibrdkafkaProduce(perf, 100), LibrdkafkaConsume(perf, 100)]
    out.append(JavaProduce(perf, 100))
    if not quick:
        out += [JavaProduce(5_000 * seconds, 100, rate=5_000), JavaConsume(perf, 100)]
        out += [JavaPaced(20_000, 1024, 20), JavaPaced(5_000, 1024, 20, groups=8)]
        out.append(ManyClients(100, 1_000, 2_000, 100, 10))
    return out
