"""Loads of the MQTT comparison. Throughput counts deliveries, over all subscribers.

Two runs precede a throughput run: a short one that compares each received byte with the sent one, and one
that warms up and determines how many messages fill the measured time. So a load takes as long for a slow
server as for a fast one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.core.load import LoadRun, run_load
from bench.core.measure import (
    DELIVERY_P50,
    DELIVERY_P99,
    DELIVERY_WINDOW_P99,
    LAG_P99,
    LAG_WINDOW_P99,
    REACHED,
    Metric,
    Values,
    Workload,
)
from bench.core.peer import Server
from bench.workloads.mqtt_load import connect
from treecast.middleware.daemon.tuning import raise_open_files

CHECKED = 10_000  # messages of the run that checks all bytes
COMMAND = (sys.executable, "-m", "bench.workloads.mqtt_load")
SUSTAINED_P99 = 0.1  # seconds
CPU = Metric("server CPU", "µs/delivery", False)
PER_CONNECTION = Metric("memory per connection", "KiB", False, 4.0)
CPU_SINGLE = Metric("server CPU", "µs/delivery", False, 1.0)


def _bytes(size: int) -> str:
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


@dataclass
class MqttThroughput(Workload[Server]):
    """`seconds`: of the measured run. `asked`: how many times Mosquitto's rate. `single`: a packet per
    write. `filter`: of subscriptions, which passes all messages."""

    seconds: float
    asked: float | None
    size: int = 100
    qos: int = 0
    publishers: int = 1
    subscribers: int = 1
    window: int = 20_000
    single: bool = False
    filter: str = ""

    floor = True

    def __post_init__(self) -> None:
        ends = f"{self.publishers} to {self.subscribers}"
        each = ", a packet per write" if self.single else ", filtered" if self.filter else ""
        self.name = f"QoS {self.qos}, {_bytes(self.size)}, {ends}{each}"
        self.metric = Metric("delivered", "messages/s", True, self.asked)

    def run(self, peer: Server, number: int) -> Values:
        first = self._load(peer, CHECKED, check=True)
        warm = self._load(peer, self._count(first, self.seconds / 4))
        run = self._load(peer, self._count(warm, self.seconds))
        cpu = CPU_SINGLE if self.single else CPU
        rate = run.result["records"] / run.result["seconds"]
        return {self.metric: rate, cpu: run.cpu_per_record, **run.joining}

    def _count(self, before: LoadRun, seconds: float) -> int:
        """Returns the number of messages that fill `seconds` at the rate of an earlier run."""
        return max(CHECKED, int(before.result["published"] / before.result["seconds"] * seconds))

    def _load(self, peer: Server, messages: int, *, check: bool = False) -> LoadRun:
        return run_load(peer, {**_order(peer, self), "messages": messages, "check": check}, COMMAND)


def _order(peer: Server, load: Any) -> dict[str, Any]:
    names = ("size", "qos", "publishers", "subscribers", "window", "single")
    found = {name: getattr(load, name) for name in names}
    found["filter"] = getattr(load, "filter", "")
    far = getattr(peer, "far", peer.address)
    return {"host": peer.address[0], "port": peer.address[1], "far": list(far), "check": False, **found}


@dataclass
class MqttLatency(Workload[Server]):
    """A fixed rate, one publisher and one subscriber, QoS 0. `sustained`: `sustainer` just keeps up with
    it."""

    rate: int
    seconds: float
    size: int = 100
    qos: int = 0
    publishers: int = 1
    subscribers: int = 1
    window: int = 1_000
    single: bool = False
    sustained: bool = False
    sustainer: str = "Mosquitto"

    floor = True

    def __post_init__(self) -> None:
        just = f", what {self.sustainer} just sustains" if self.sustained else ""
        self.name = f"latency at {self.rate:,}/s{just}, QoS 0, {_bytes(self.size)}"

    def run(self, peer: Server, number: int) -> Values:
        self.once(peer, self.seconds / 4)  # warms up
        run = self.once(peer, self.seconds)
        return {
            DELIVERY_P50: 1000 * run.result["p50"],
            DELIVERY_P99: 1000 * run.result["p99"],
            DELIVERY_WINDOW_P99: 1000 * run.result["window_p99"],
            LAG_P99: 1000 * run.result["lag_p99"],
            LAG_WINDOW_P99: 1000 * run.result["lag_window_p99"],
            REACHED: run.result["records"] / run.result["seconds"],
            CPU: run.cpu_per_record,
            **run.joining,
        }

    def once(self, peer: Server, seconds: float) -> LoadRun:
        order = {**_order(peer, self), "rate": self.rate, "messages": int(self.rate * seconds)}
        return run_load(peer, order, COMMAND)


def sustained_rate(peer: Server, seconds: float, begin: int = 20_000) -> int:
    """Returns the highest rate of a ladder, each step a quarter above the last, that the server keeps up
    with.

    It keeps up if 99 of 100 messages arrive within 100 ms of their due time.
    """
    rate = begin
    while _sustains(peer, rate * 5 // 4, seconds):
        rate = rate * 5 // 4
    return rate


def _sustains(peer: Server, rate: int, seconds: float) -> bool:
    """Returns whether the server sustains the rate in one of two attempts: the machine may be busy during
    one.
    """
    load = MqttLatency(rate, seconds)
    return any(load.once(peer, seconds).result["p99"] < SUSTAINED_P99 for _ in range(2))


@dataclass
class MqttConnections(Workload[Server]):
    """Idle clients, each with one subscription: the growth of the server's memory per client."""

    count: int

    def __post_init__(self) -> None:
        self.name = f"{self.count:,} connections at rest"

    def run(self, peer: Server, number: int) -> Values:
        raise_open_files()
        before = peer.memory().resident
        clients = [connect(*peer.address, f"rest-{number}") for number in range(self.count)]
        try:
            for number, client in enumerate(clients):
                filter = b"rest/%d" % number
                client.sendall(bytes([0x82, 5 + len(filter), 0, 1, 0, len(filter)]) + filter + b"\0")
                client.recv(5)
            return {PER_CONNECTION: (peer.memory().resident - before) / self.count / 1024}
        finally:
            for client in clients:
                client.close()


def workloads(seconds: float, connections: int) -> list[Workload[Any]]:
    """Returns all workloads but the latencies, whose rates are determined with Mosquitto first."""
    return [
        MqttConnections(connections),  # first: memory that loads leave would hide it
        MqttThroughput(seconds, 10.0),
        MqttThroughput(seconds, 30.0, subscribers=10),
        MqttThroughput(seconds, 5.0, size=1024, window=5_000),
        MqttThroughput(seconds, 10.0, size=1024, subscribers=10, window=5_000),
        MqttThroughput(seconds, 8.0, qos=1, window=5_000),
        MqttThroughput(seconds, 1.0, publishers=100, single=True),
    ]


def latencies(
    mosquitto: Server,
    rates: Sequence[int] | None,
    seconds: float,
    only: Sequence[str] | None,
    progress: Callable[[str], None],
) -> list[Workload[Any]]:
    """Returns latency workloads at the given rates; otherwise at the rate that Mosquitto just sustains (it is
    started once for that) and half of it. Returns none if `only` excludes them.
    """
    if rates:
        return [MqttLatency(rate, seconds) for rate in rates]
    if only and not any(part.lower() in "latency" or "latency" in part.lower() for part in only):
        return []
    mosquitto.start()
    try:
        found = sustained_rate(mosquitto, min(seconds, 2.0))
    finally:
        mosquitto.stop()
    progress(f"Mosquitto just sustains {found:,} messages a second")
    return [MqttLatency(found, seconds, sustained=True), MqttLatency(found // 2, seconds)]
