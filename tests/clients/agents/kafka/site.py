"""For tests of the agent beside a Kafka cluster: a node, two hosts, and an agent."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.core.ports import free_port
from bench.core.process import ServerProcess
from bench.peers.kafka import KafkaBroker, ensure_jars, run_tool
from bench.peers.kafka.broker import JVM, PROPERTIES
from bench.peers.kafka.jars import HERE, class_path
from bench.peers.kafka.tools import java
from kafka import KafkaConsumer
from tests.clients.agents.process import AgentProcess

from treecast.middleware.load.connection import serves

PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it


def until(condition: Callable[[], object], what: str) -> Any:
    """Returns the first true value of the condition."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


class KafkaAgent(AgentProcess):
    """An agent process beside a Kafka cluster. `kafka`: more lines of the table."""

    def __init__(self, site: str, folder: Path, bootstrap: str, join: str, token: Path, kafka: str) -> None:
        table = f'[kafka]\nbootstrap = ["{bootstrap}"]\npoll_seconds = 0.3\n{kafka}'
        super().__init__("kafka", site, folder, join, token, "", table, PATIENCE)


class Node(KafkaBroker):
    """A Kafka node whose data lasts through a kill."""

    def __init__(self, folder: Path, **properties: str) -> None:
        super().__init__(parent=folder, properties={"group.initial.rebalance.delay.ms": "0", **properties})

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def again(self) -> None:
        """Starts it again with its data and its port."""
        assert self._process is not None
        self._process = ServerProcess(self._process.command, self.log, cwd=self.folder)
        self._process.wait_until(lambda: serves(*self.address), PATIENCE)


class Reader:
    """A consumer that keeps what it reads, as (partition, offset, value)."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self._consumer = KafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings
        )
        # kafka-python 3.0.12 forgets the answer to a join that a short poll has interrupted, or that came
        # before the topic's metadata
        until(lambda: self._consumer.partitions_for_topic(topic), f"{topic} is unknown at {bootstrap}")
        self.found: list[tuple[int, int, bytes]] = []

    def read(self, count: int) -> list[tuple[int, int, bytes]]:
        """Reads until it has had `count` records in all."""
        deadline = time.monotonic() + PATIENCE
        while len(self.found) < count:
            assert time.monotonic() < deadline, f"{len(self.found)} of {count} records have come"
            for records in self._consumer.poll(timeout_ms=5000).values():
                self.found += [(one.partition, one.offset, one.value) for one in records]
        return self.found

    def __enter__(self) -> KafkaConsumer:
        return self._consumer

    def __exit__(self, *error: object) -> None:
        self._consumer.close()


def read_all(bootstrap: str, topic: str, count: int, **settings: Any) -> list[tuple[int, int, bytes]]:
    """Returns the records of a topic in the order of their places."""
    reader = Reader(bootstrap, topic, **settings)
    with reader:
        return sorted(reader.read(count))


class Cluster:
    """A Kafka cluster of a controller and two brokers, each of which can be killed and started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._controller = free_port()
        self._id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.ports = {1: free_port(), 2: free_port()}
        self._processes: dict[int, ServerProcess] = {}

    def __enter__(self) -> Cluster:
        ensure_jars()
        for node in (3, 1, 2):
            self._format(node)
            self.start(node)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def _config(self, node: int) -> Path:
        return self._folder / f"{node}.properties"

    def _format(self, node: int) -> None:
        broker = node in self.ports
        name, port = ("PLAINTEXT", self.ports[node]) if broker else ("CONTROLLER", self._controller)
        properties = {
            **PROPERTIES,
            "process.roles": "broker" if broker else "controller",
            "node.id": str(node),
            "listeners": f"{name}://127.0.0.1:{port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller}",
            "log.dirs": str(self._folder / f"logs-{node}"),
            "unclean.leader.election.enable": "true",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
        }
        if broker:
            properties["advertised.listeners"] = properties["listeners"]
        self._config(node).write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        role = [] if broker else ["--standalone"]
        run_tool("kafka-storage", "format", *role, f"--cluster-id={self._id}", "-c", str(self._config(node)))

    def start(self, node: int, *, wait: bool = True) -> None:
        heap = ("-Xmx384M", "-Xms128M")
        log4j = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        command = [java(), *heap, *JVM, log4j, "-cp", class_path(), "kafka.Kafka", str(self._config(node))]
        log = self._folder / f"{node}.log"
        process = self._processes[node] = ServerProcess(command, log, cwd=self._folder)
        if wait and node in self.ports:
            process.wait_until(lambda: serves("127.0.0.1", self.ports[node]), 2 * PATIENCE)

    def kill(self, node: int) -> None:
        self._processes.pop(node).kill()
