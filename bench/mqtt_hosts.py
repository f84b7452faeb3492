"""MQTT from one host to another: a publisher beside A, a subscriber beside B.

Two Treecast daemons against one, against two Mosquittos that are joined by Mosquitto's bridge, and beside one
and two bare loops that do the same system calls on the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.core.measure import DELIVERY_P50, DELIVERY_P99, REACHED, Metric, Workload
from bench.core.peer import Server
from bench.core.report import Row
from bench.core.versus import Versus, earlier
from bench.peers.floor_mqtt import FloorMqtt
from bench.peers.mosquitto import MosquittoPeer, TreecastMqttPeer
from bench.peers.mqtt_pairs import FloorPair, MosquittoBridge, TreecastPair
from bench.workloads.mqtt import CPU, MqttLatency, MqttThroughput, sustained_rate

ONE, TWO = "one daemon", "two daemons"
MOSQUITTO, BRIDGE = "Mosquitto", "Mosquitto's bridge"
TELEMETRY = "two daemons, telemetry"
FLOOR_ONE, FLOOR_TWO, FLOOR_TAGGED = "floor", "floor, two", "floor, two, tagged"
OURS = (ONE, TWO)
PEERS = ("one", "two", "bridge", "mosquitto", "floor-one", "floor-two", "floor-tagged", "telemetry")
# Ten records of telemetry where a daemon by its defaults writes one, in runs shorter than its interval.
TELEMETRY_FLAGS = ("--telemetry", "plain", "--telemetry-interval-ms", "1000")
# With telemetry, each message that a filter judges is counted too.
FILTER = "n < 5"  # passes all messages of the load
FILTERING = ("one", "two", "telemetry")  # peers whose subscriptions take filters
USUAL = ("one", "two", "bridge", "floor-two")
KEPT_UP = 0.98  # a peer that reached less of the rate that was asked for was overloaded

DELIVERED = Metric("delivered", "messages/s", True)
# At least half of one daemon's rate, five times the bridge's; at its highest steady rate half of its p99.
AGAINST = (
    Versus(TWO, ONE, {DELIVERED: 0.5, CPU: None, DELIVERY_P50: None, DELIVERY_P99: None}, FLOOR_TWO),
    Versus(TWO, BRIDGE, {DELIVERED: 5.0, CPU: None, DELIVERY_P50: None, DELIVERY_P99: 0.5}),
    Versus(TWO, MOSQUITTO, {DELIVERED: None, CPU: None}),
    Versus(FLOOR_TWO, FLOOR_ONE, {DELIVERED: None, CPU: None}),
    Versus(FLOOR_TAGGED, ONE, {DELIVERED: None, CPU: None}),
    Versus(TWO, FLOOR_TAGGED, {DELIVERED: None, CPU: None}),
    Versus(TELEMETRY, TWO, {CPU: 1.03, DELIVERED: None}),
)
PANELS = (DELIVERED, DELIVERY_P50, DELIVERY_P99, CPU)


def workloads(seconds: float, *, filtered: bool = False) -> list[Workload[Any]]:
    """Returns the loads at full rate; `filtered`: those whose subscriptions have a filter."""
    if filtered:
        return [MqttThroughput(seconds, None, size=size, window=2_000, filter=FILTER) for size in (100, 1024)]
    return [
        MqttThroughput(seconds, None, size=size, qos=qos, window=window)
        for qos, size, window in ((0, 100, 20_000), (0, 1024, 5_000), (1, 100, 5_000), (1, 1024, 5_000))
    ]


def latencies(
    bridge: Server,
    rates: Sequence[int] | None,
    seconds: float,
    only: Sequence[str] | None,
    progress: Callable[[str], None],
) -> list[Workload[Any]]:
    """Returns latencies at the given rates, else at the rate that the bridge just sustains."""
    if rates:
        return [MqttLatency(rate, seconds, sustainer=BRIDGE) for rate in rates]
    if only and not any(part.lower() in "latency" or "latency" in part.lower() for part in only):
        return []
    bridge.start()
    try:
        found = sustained_rate(bridge, min(seconds, 2.0))
    finally:
        bridge.stop()
    progress(f"{BRIDGE} just sustains {found:,} messages a second")
    return [MqttLatency(found, seconds, sustained=True, sustainer=BRIDGE)]


def peers(names: Sequence[str], python: str, folder: Path, before: str | None) -> list[Server]:
    """By the names that the command line knows. Raises KeyError for any other."""
    known: dict[str, Server] = {
        "one": TreecastMqttPeer(python=python, parent=folder, name=ONE),
        "two": TreecastPair(name=TWO, python=python, parent=folder),
        "bridge": MosquittoBridge(name=BRIDGE, parent=folder),
        "mosquitto": MosquittoPeer(folder),
        "floor-one": FloorMqtt(folder),
        "floor-two": FloorPair(name=FLOOR_TWO, parent=folder),
        "telemetry": TreecastPair(name=TELEMETRY, python=python, parent=folder, flags=TELEMETRY_FLAGS),
        "floor-tagged": FloorPair(name=FLOOR_TAGGED, parent=folder, tagged=True),
    }
    found = [known[name] for name in names]
    if before is not None:
        found.append(TreecastMqttPeer(python=before, parent=folder, name=earlier(ONE)))
        found.append(TreecastPair(name=earlier(TWO), python=before, parent=folder))
    return found


def overloaded(rows: Sequence[Row], chosen: Sequence[Workload[Any]]) -> dict[tuple[str, str], float]:
    """(workload, peer) -> the rate reached, where a peer did not keep up with the one asked for."""
    rates: Mapping[str, int] = {load.name: load.rate for load in chosen if isinstance(load, MqttLatency)}
    return {
        (row.workload, name): spread.median
        for row in rows
        if row.metric == REACHED and row.workload in rates
        for name, spread in row.peers.items()
        if spread.median < KEPT_UP * rates[row.workload]
    }
