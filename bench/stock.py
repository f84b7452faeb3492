"""Stock clients with one message at a time at a constant rate, against the peer of each protocol.

The loads are those of OpenMessaging Benchmark's drivers, by the client libraries that applications use. Both
sides take their turns on a quiet machine, each on a server of its own for each load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.core import report
from bench.core.measure import (
    ACK_P50,
    ACK_P99,
    DELIVERY_P50,
    DELIVERY_P99,
    DELIVERY_P999,
    Metric,
)
from bench.core.peer import Server
from bench.core.report import Row
from bench.core.rounds import Rounds
from bench.peers.kafka import KafkaBroker
from bench.peers.kafka import missing_tools as kafka_missing
from bench.peers.mosquitto import INSTALL, MosquittoPeer, TreecastMqttPeer, program
from bench.peers.rabbitmq import missing as rabbitmq_missing
from bench.peers.rabbitmq.broker import RabbitPeer, TreecastAmqpPeer
from bench.peers.treecast import TreecastPeer
from bench.workloads.stock import CPU, StockLoad

OURS = "Treecast"
FACES = ("kafka", "amqp", "mqtt")
QUICK_RATE = 500
PANELS = (CPU, ACK_P99, DELIVERY_P50, DELIVERY_P99)

_KAFKA: dict[Metric, float] = {CPU: 0.6, ACK_P99: 1, DELIVERY_P50: 1, DELIVERY_P99: 1, DELIVERY_P999: 1}
_AMQP: dict[Metric, float] = {CPU: 1, ACK_P50: 1, ACK_P99: 1}
_MQTT: dict[Metric, float] = {CPU: 1, ACK_P99: 1, DELIVERY_P99: 1}


@dataclass(frozen=True)
class Face:
    """A protocol: the loads, our server and the peer's. `missing`: what to install for the peer, if any."""

    name: str
    theirs: str
    loads: Sequence[StockLoad]
    peers: Callable[[str, Path], tuple[Server, Server]]  # from our Python and the folder for data
    missing: Callable[[], str]


def faces(names: Sequence[str], seconds: float, warm_up: float, rate: int | None) -> list[Face]:
    """By the names of `FACES`; `rate` overrides that of every load. Raises KeyError for any other name."""

    def load(client: str, usual: int, readers: int, label: str, targets: dict[Metric, float]) -> StockLoad:
        return StockLoad(client, rate or usual, 1024, readers, seconds, warm_up, label, targets)

    known = {
        "kafka": Face(
            "kafka",
            "Apache Kafka",
            [
                load("kafka", 20_000, 1, "Kafka client", _KAFKA),
                load("kafka", 5_000, 8, "Kafka client", _KAFKA),
                load("kafka36", 20_000, 1, "Kafka client 3.6", _KAFKA),
            ],
            lambda python, folder: (
                TreecastPeer(python=python, fsync="never", parent=folder),
                KafkaBroker(parent=folder),
            ),
            lambda: " and ".join(kafka_missing()),
        ),
        "amqp": Face(
            "amqp",
            "RabbitMQ",
            [load("amqp", 5_000, 1, "RabbitMQ client, persistent, confirms", _AMQP)],
            lambda python, folder: (TreecastAmqpPeer(python=python, parent=folder), RabbitPeer(folder)),
            rabbitmq_missing,
        ),
        "mqtt": Face(
            "mqtt",
            "Mosquitto",
            [load("mqtt", 5_000, 1, "HiveMQ client, MQTT 5, QoS 1", _MQTT)],
            lambda python, folder: (TreecastMqttPeer(python=python, parent=folder), MosquittoPeer(folder)),
            lambda: "" if program() else INSTALL,
        ),
    }
    return [known[name] for name in names]


def summarise(run: Rounds, theirs: str) -> list[Row]:
    """Returns medians, ranges and ratios of the valid rounds."""
    return report.summarise(run.samples, OURS, theirs)
