"""The second comparison: records from one host's broker to another's.

Two Treecast daemons against one, against RabbitMQ federation and against two Kafka nodes with MirrorMaker 2.
Each peer is compared with daemons of the same durability: Kafka answers from the page cache (`--fsync
never`), RabbitMQ confirms a persistent message once it is on disk (`--fsync batch`). One and two bare loops
show the machine's part of a latency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.core.chain import Chain
from bench.core.measure import (
    ACK_P50,
    DELIVERY_P50,
    DELIVERY_P99,
    DELIVERY_P999,
    LOADED_MEMORY,
    REACHED,
    SERVER_CPU,
    THROUGHPUT,
    Metric,
    Workload,
)
from bench.core.report import Row
from bench.core.versus import Versus, earlier
from bench.peers.floor_chain import FloorChain
from bench.peers.kafka.mirror import MirrorMaker
from bench.peers.rabbitmq import Federation
from bench.peers.treecast_chain import TreecastChain
from bench.workloads.chain import ChainLatency, ChainThroughput

ONE, TWO, TWO_FSYNC = "one daemon", "two daemons", "two daemons, fsync"
RABBITMQ, MIRROR = "RabbitMQ federation", "Kafka + MirrorMaker 2"
FLOOR_ONE, FLOOR_TWO = "floor, one", "floor, two"
OURS = (ONE, TWO, TWO_FSYNC)
PEERS = ("one", "two", "two-fsync", "rabbitmq-federation", "mirrormaker2", "floor-one", "floor-two")
RATES = (1_000, 5_000)
KEPT_UP = 0.98  # a peer that reached less of the rate that was asked for was overloaded

_BESIDE: dict[Metric, float | None] = {
    DELIVERY_P99: None,
    DELIVERY_P999: None,
    ACK_P50: None,
    SERVER_CPU: None,
    LOADED_MEMORY: None,
}
# At least twice the throughput, at most half the median latency of both; half the throughput of one daemon,
# at most double its median latency.
AGAINST = (
    Versus(TWO, ONE, {THROUGHPUT: 0.5, DELIVERY_P50: 2.0, **_BESIDE}, FLOOR_TWO),
    Versus(TWO_FSYNC, RABBITMQ, {THROUGHPUT: 2.0, DELIVERY_P50: 0.5, **_BESIDE}),
    Versus(TWO, MIRROR, {THROUGHPUT: 2.0, DELIVERY_P50: 0.5, **_BESIDE}),
    Versus(FLOOR_TWO, FLOOR_ONE, {THROUGHPUT: None, DELIVERY_P50: None, SERVER_CPU: None}),
)
PANELS = (THROUGHPUT, DELIVERY_P50, DELIVERY_P99, SERVER_CPU, LOADED_MEMORY)


def workloads(seconds: float, sizes: Sequence[int], rates: Sequence[int] = RATES) -> list[Workload[Any]]:
    """Returns the workloads. `seconds` is the duration of each measured run, approximate for those at full
    speed.
    """
    out: list[Workload[Any]] = [ChainThroughput(size, seconds) for size in sizes]
    out += [ChainLatency(size, rate, seconds) for size in sizes for rate in rates]
    return out


def peers(names: Sequence[str], python: str, folder: Path | None, before: str | None = None) -> list[Chain]:
    """Returns peers by their command-line names. Raises KeyError for any other.

    `before`: the Python of an earlier build, whose daemons are measured as `earlier(name)`.
    """
    known: dict[str, Chain] = {
        "one": TreecastChain(1, name=ONE, python=python, fsync="never", parent=folder),
        "two": TreecastChain(2, name=TWO, python=python, fsync="never", parent=folder),
        "two-fsync": TreecastChain(2, name=TWO_FSYNC, python=python, fsync="batch", parent=folder),
        "rabbitmq-federation": Federation(parent=folder),
        "mirrormaker2": MirrorMaker(parent=folder),
        "floor-one": FloorChain(1, name=FLOOR_ONE, parent=folder),
        "floor-two": FloorChain(2, name=FLOOR_TWO, parent=folder),
    }
    hosts = {"one": 1, "two": 2, "two-fsync": 2}
    found = [known[name] for name in names]
    if before is not None:
        found += [
            TreecastChain(
                hosts[name],
                name=earlier(known[name].name),
                python=before,
                fsync="batch" if name == "two-fsync" else "never",
                parent=folder,
            )
            for name in names
            if name in hosts
        ]
    return found


def overloaded(rows: Sequence[Row], chosen: Sequence[Workload[Any]]) -> dict[tuple[str, str], float]:
    """Returns (workload, peer) -> reached rate, for peers that did not keep up with the requested one: their
    latency only shows the growth of the queue.
    """
    rates: Mapping[str, int] = {load.name: load.rate for load in chosen if isinstance(load, ChainLatency)}
    out = {}
    for row in rows:
        if row.metric != REACHED or row.workload not in rates:
            continue
        for name, spread in row.peers.items():
            if spread.median < KEPT_UP * rates[row.workload]:
                out[row.workload, name] = spread.median
    return out
