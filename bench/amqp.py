"""AMQP on one host against RabbitMQ, and from one host to another against RabbitMQ federation.

On one host beside a bare loop that does the same system calls on the same bytes. Between hosts the publisher
is beside A, the queue and its consumer beside B, with one daemon for comparison. Both sides promise the same:
a persistent message is confirmed once it is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.core.measure import DELIVERY_P50, DELIVERY_P99, REACHED, Metric, Workload
from bench.core.peer import Peer, Server
from bench.core.report import Row
from bench.core.versus import Versus, earlier
from bench.peers.amqp_pairs import FederatedPair, TreecastAmqpPair
from bench.peers.floor_amqp import FloorAmqp
from bench.peers.rabbitmq.broker import RabbitPeer, TreecastAmqpPeer
from bench.workloads import perf_test
from bench.workloads.amqp import AmqpLatency, AmqpThroughput, latencies, workloads

OURS, THEIRS = "Treecast", "RabbitMQ"
USUAL = "treecast,rabbitmq,floor"

ONE, TWO, FEDERATION = "one daemon", "two daemons", "RabbitMQ federation"
HOSTS_OURS = (ONE, TWO)
HOSTS = ("one", "two", "federation")
KEPT_UP = 0.98  # a peer that reached less of the rate that was asked for was overloaded
DELIVERED = Metric("delivered", "messages/s", True)
HOSTS_CPU = Metric("server CPU", "µs/message", False, 1 / 3)
AGAINST = (
    Versus(TWO, ONE, {DELIVERED: None, HOSTS_CPU: None, DELIVERY_P50: None, DELIVERY_P99: None}),
    Versus(TWO, FEDERATION, {DELIVERED: 5.0, HOSTS_CPU: None, DELIVERY_P50: 0.5, DELIVERY_P99: None}),
)
PANELS = (DELIVERED, DELIVERY_P50, DELIVERY_P99, HOSTS_CPU)


def peers(names: Sequence[str], python: str, folder: Path, before: str | None) -> list[Peer]:
    """By the names that the command line knows. Raises KeyError for any other."""
    known: dict[str, Peer] = {
        "treecast": TreecastAmqpPeer(python=python, parent=folder),
        "rabbitmq": RabbitPeer(folder),
        "floor": FloorAmqp(folder),
    }
    found = [known[name] for name in names]
    if before is not None:
        found.append(TreecastAmqpPeer(python=before, parent=folder, name=earlier(OURS)))
    return found


def loads(
    folder: Path,
    seconds: float,
    queued: int,
    rates: Sequence[int] | None,
    only: Sequence[str] | None,
    class_path: str,
    progress: Callable[[str], None],
) -> list[Workload[Any]]:
    """Returns all workloads of one host. RabbitMQ is started once, to find the rates that it sustains."""
    found = [*workloads(seconds, queued), *latencies(RabbitPeer(folder), rates, seconds, only, progress)]
    return [*found, *perf_test.loads(seconds, class_path)]


def host_peers(names: Sequence[str], python: str, folder: Path, before: str | None) -> list[Server]:
    """As `peers`, for two hosts."""
    known: dict[str, Server] = {
        "one": TreecastAmqpPeer(python=python, parent=folder, name=ONE),
        "two": TreecastAmqpPair(name=TWO, python=python, parent=folder),
        "federation": FederatedPair(name=FEDERATION, parent=folder),
    }
    found = [known[name] for name in names]
    if before is not None:
        found.append(TreecastAmqpPair(name=earlier(TWO), python=before, parent=folder))
    return found


def host_loads(
    folder: Path,
    seconds: float,
    rates: Sequence[int] | None,
    only: Sequence[str] | None,
    progress: Callable[[str], None],
) -> list[Workload[Any]]:
    """Returns all workloads of two hosts. Federation is started once, to find the rates that it sustains."""
    found: list[Workload[Any]] = [
        AmqpThroughput(seconds, None, size, persistent)
        for persistent in (False, True)
        for size in (100, 1024)
    ]
    federation = FederatedPair(name=FEDERATION, parent=folder)
    return [*found, *latencies(federation, rates, seconds, only, progress, FEDERATION)]


def overloaded(rows: Sequence[Row], chosen: Sequence[Workload[Any]]) -> dict[tuple[str, str], float]:
    """(workload, peer) -> the rate reached, where a peer did not keep up with the one asked for."""
    rates: Mapping[str, int] = {load.name: load.rate for load in chosen if isinstance(load, AmqpLatency)}
    return {
        (row.workload, name): spread.median
        for row in rows
        if row.metric == REACHED and row.workload in rates
        for name, spread in row.peers.items()
        if spread.median < KEPT_UP * rates[row.workload]
    }
