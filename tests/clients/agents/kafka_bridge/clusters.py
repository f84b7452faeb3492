"""For tests of the agent that joins Kafka clusters: the agent, and what clients read and write."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tests.clients.agents.process import AgentProcess

PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it
Place = tuple[int, int]  # partition and offset


class BridgeAgent(AgentProcess):
    """`ways`: the TOML of the tables [[kafka-bridge.ways]]. `log_ins`: more lines of a cluster's table."""

    def __init__(self, name: str, folder: Path, clusters: dict[str, str], ways: str, **log_ins: str) -> None:
        tables = "".join(
            f'[kafka-bridge.clusters.{alias}]\nbootstrap = ["{bootstrap}"]\npoll_seconds = 0.3\n'
            f"{log_ins.get(alias, '')}"
            for alias, bootstrap in clusters.items()
        )
        table = f"[kafka-bridge]\ngroups_seconds = 0.3\nheartbeat_seconds = 0.5\n{tables}{ways}"
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__("kafka-bridge", name, folder, "", Path(), "", table, PATIENCE)
        lines = self.config.read_text().splitlines(keepends=True)
        self.config.write_text("".join(one for one in lines if not one.startswith("join")))


def way(source: str, target: str, topics: str, more: str = "") -> str:
    return f'[[kafka-bridge.ways]]\nfrom = "{source}"\nto = "{target}"\ntopics = ["{topics}"]\n{more}\n'


def write(bootstrap: str, topic: str, values: Iterable[bytes], **fields: Any) -> None:
    """Writes each value with itself as key."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for value in values:
        producer.send(topic, value, key=value, **fields)
    producer.flush(PATIENCE)
    producer.close()


class Found:
    """The records of a partition or all of a topic, from its beginning: `read` returns them once there are
    so many."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        places = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer.assign(places)
        self._consumer.seek_to_beginning(*places)
        self.records: list[Any] = []

    def read(self, count: int, seconds: float = PATIENCE) -> list[Any]:
        deadline = time.monotonic() + seconds
        while len(self.records) < count and time.monotonic() < deadline:
            for found in self._consumer.poll(timeout_ms=500).values():
                self.records += found
        return self.records

    def close(self) -> None:
        self._consumer.close()


def records(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Any]:
    """Returns `count` records, and those that come within a moment after them."""
    found = Found(bootstrap, topic, partitions)
    try:
        found.read(count)
        return found.read(count + 1, 1.0)
    finally:
        found.close()
