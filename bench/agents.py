"""Our agents against the means of the brokers' own projects, each joining two brokers that stand.

Beside Mosquitto, two agents against Mosquitto's own bridge. Between two Apache Kafka nodes, our bridge
against MirrorMaker 2. Asked for: better in rate, CPU per message and p99.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bench import fabric, mqtt_hosts
from bench.core.chain import Chain
from bench.core.measure import (
    DELIVERY_P50,
    DELIVERY_P99,
    JOINING_CPU,
    SERVER_CPU,
    THROUGHPUT,
    Metric,
    Workload,
)
from bench.core.peer import Server
from bench.core.versus import Versus, earlier
from bench.peers.agents import AgentsBetweenMosquittos, BridgedMosquittos, KafkaBridge, MirroredKafka
from bench.workloads.chain import ChainLatency, ChainThroughput
from bench.workloads.mqtt import CPU, MqttThroughput

AGENTS: Final = "Treecast's agents"
BRIDGE: Final = "Mosquitto's bridge"
KAFKA_BRIDGE: Final = "Treecast's bridge"
MIRROR: Final = "MirrorMaker 2"
MQTT_PEERS: Final = ("agents", "bridge")
KAFKA_PEERS: Final = ("bridge", "mirrormaker2")
RATES: Final = (1_000,)

_ASKED: Final[dict[Metric, float | None]] = {DELIVERY_P99: 1.0, JOINING_CPU: 1.0, DELIVERY_P50: None}
MQTT_AGAINST: Final = (Versus(AGENTS, BRIDGE, {mqtt_hosts.DELIVERED: 1.0, **_ASKED, CPU: None}),)
KAFKA_AGAINST: Final = (Versus(KAFKA_BRIDGE, MIRROR, {THROUGHPUT: 1.0, **_ASKED, SERVER_CPU: None}),)
MQTT_PANELS: Final = (mqtt_hosts.DELIVERED, JOINING_CPU, DELIVERY_P99)
KAFKA_PANELS: Final = (THROUGHPUT, JOINING_CPU, DELIVERY_P99)

overloaded_mqtt = mqtt_hosts.overloaded
overloaded_kafka = fabric.overloaded


def mqtt_peers(names: Sequence[str], python: str, folder: Path, before: str | None) -> list[Server]:
    """By the names that the command line knows. Raises KeyError for any other."""
    known: dict[str, Server] = {
        "agents": AgentsBetweenMosquittos(name=AGENTS, python=python, parent=folder),
        "bridge": BridgedMosquittos(name=BRIDGE, parent=folder),
    }
    found = [known[name] for name in names]
    if before is not None:
        found.append(AgentsBetweenMosquittos(name=earlier(AGENTS), python=before, parent=folder))
    return found


def mqtt_loads(
    folder: Path,
    seconds: float,
    rates: Sequence[int] | None,
    only: Sequence[str] | None,
    progress: Callable[[str], None],
) -> list[Workload[Any]]:
    """Returns all loads; latencies at the given rates, else at what Mosquitto's bridge just sustains."""
    bridge = BridgedMosquittos(name=BRIDGE, parent=folder)
    found: list[Workload[Any]] = [
        MqttThroughput(seconds, None, size=size, qos=qos, window=window)
        for qos, size, window in ((0, 100, 20_000), (1, 100, 5_000), (1, 1024, 5_000))
    ]
    return [*found, *mqtt_hosts.latencies(bridge, rates, seconds, only, progress)]


def kafka_peers(names: Sequence[str], python: str, folder: Path, before: str | None) -> list[Chain]:
    """By the names that the command line knows. Raises KeyError for any other."""
    known: dict[str, Chain] = {
        "bridge": KafkaBridge(name=KAFKA_BRIDGE, python=python, parent=folder),
        "mirrormaker2": MirroredKafka(name=MIRROR, parent=folder),
    }
    found = [known[name] for name in names]
    if before is not None:
        found.append(KafkaBridge(name=earlier(KAFKA_BRIDGE), python=before, parent=folder))
    return found


def kafka_loads(seconds: float, sizes: Sequence[int], rates: Sequence[int]) -> list[Workload[Any]]:
    found: list[Workload[Any]] = [ChainThroughput(size, seconds) for size in sizes]
    return [*found, *(ChainLatency(100, rate, seconds) for rate in rates)]
