"""Loads of the MQTT comparison. Throughput counts deliveries, over all subscribers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from bench.core.load import run_load
from bench.core.measure import DELIVERY_P50, DELIVERY_P99, REACHED, Metric, Values, Workload
from bench.core.peer import Server
from bench.workloads.mqtt_load import connect
from treecast.middleware.daemon.tuning import raise_open_files

COMMAND = (sys.executable, "-m", "bench.workloads.mqtt_load")
CPU = Metric("server CPU", "µs/delivery", False)
PER_CONNECTION = Metric("memory per connection", "KiB", False, 4.0)
CPU_SINGLE = Metric("server CPU", "µs/delivery", False, 1.0)


def _bytes(size: int) -> str:
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


@dataclass
class MqttThroughput(Workload[Server]):
    """`asked`: how many times Mosquitto's rate. `single`: a packet per write."""

    messages: int
    asked: float
    size: int = 100
    qos: int = 0
    publishers: int = 1
    subscribers: int = 1
    window: int = 20_000
    single: bool = False

    def __post_init__(self) -> None:
        ends = f"{self.publishers} to {self.subscribers}"
        each = ", a packet per write" if self.single else ""
        self.name = f"QoS {self.qos}, {_bytes(self.size)}, {ends}{each}"
        self.metric = Metric("delivered", "messages/s", True, self.asked)

    def run(self, peer: Server, number: int) -> Values:
        self._load(peer, self.messages // 4)
        run = self._load(peer, self.messages)
        cpu = CPU_SINGLE if self.single else CPU
        return {self.metric: run.result["records"] / run.result["seconds"], cpu: run.cpu_per_record}

    def _load(self, peer: Server, messages: int) -> Any:
        return run_load(peer, {**_order(peer, self), "messages": messages}, COMMAND)


def _order(peer: Server, load: Any) -> dict[str, Any]:
    names = ("size", "qos", "publishers", "subscribers", "window", "single")
    return {"host": peer.address[0], "port": peer.address[1], **{name: getattr(load, name) for name in names}}


@dataclass
class MqttLatency(Workload[Server]):
    """A fixed rate, one publisher and one subscriber, QoS 0."""

    rate: int
    seconds: float
    size: int = 100
    qos: int = 0
    publishers: int = 1
    subscribers: int = 1
    window: int = 1_000
    single: bool = False

    def __post_init__(self) -> None:
        self.name = f"latency at {self.rate:,}/s, QoS 0, {_bytes(self.size)}"

    def run(self, peer: Server, number: int) -> Values:
        order = {**_order(peer, self), "rate": self.rate, "messages": int(self.rate * self.seconds)}
        run = run_load(peer, order, COMMAND)
        return {
            DELIVERY_P50: 1000 * run.result["p50"],
            DELIVERY_P99: 1000 * run.result["p99"],
            REACHED: run.result["records"] / run.result["seconds"],
        }


@dataclass
class MqttConnections(Workload[Server]):
    """Clients at rest, each with one subscription: what the server's memory grows by for each."""

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


def workloads(messages: int, rates: tuple[int, ...], seconds: float) -> list[Workload[Any]]:
    """`messages` is for 100 bytes to one subscriber; heavier loads have fewer."""
    return [
        MqttConnections(min(10_000, messages // 40)),  # first: memory that loads leave would hide it
        MqttThroughput(messages, 10.0),
        MqttThroughput(messages // 4, 30.0, subscribers=10),
        MqttThroughput(messages // 4, 5.0, size=1024, window=5_000),
        MqttThroughput(messages // 16, 10.0, size=1024, subscribers=10, window=5_000),
        MqttThroughput(messages // 4, 8.0, qos=1, window=5_000),
        MqttThroughput(messages // 8, 1.0, publishers=100, single=True),
        *(MqttLatency(rate, seconds) for rate in rates),
    ]
