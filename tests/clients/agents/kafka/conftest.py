"""Fixtures of the Kafka follower's tests: a node, two hosts and an agent for a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from bench.peers.kafka import missing_tools
from tests.clients.agents.kafka.site import KafkaAgent, Node
from tests.pair import pair

from treecast.middleware.daemon.process import DaemonProcess

_FACES_OFF = [word for face in ("amqp", "mqtt", "stare", "admin") for word in (f"--{face}", "off")]

# An application of Kafka Streams has one name for its group and for topics.
FOLLOWED = 'topics = ["followed.*"]\nnot_topics = ["followed.not.*"]\ngroups = ["g.*", "followed.*"]'


@pytest.fixture(scope="session")
def java(require: Callable[[object, str], None]) -> None:
    """Skips where Kafka cannot run."""
    missing = missing_tools()
    require(not missing, f"Apache Kafka needs {' and '.join(missing)}")


@pytest.fixture(scope="module")
def node(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    started = Node(tmp_path_factory.mktemp("kafka"), **{"log.cleaner.backoff.ms": "200"})
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    with pair(tmp_path_factory.mktemp("hosts"), [*_FACES_OFF, "--kafka", "127.0.0.1:0"]) as both:
        yield both


@pytest.fixture(scope="module")
def agent(
    node: Node, hosts: tuple[DaemonProcess, DaemonProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaAgent]:
    first = hosts[0]
    made = KafkaAgent(
        "kafka-site",
        tmp_path_factory.mktemp("agent"),
        node.bootstrap,
        first.ready["control"],
        first.data / "join-token",
        FOLLOWED,
    )
    try:
        yield made.start()
    finally:
        made.clean_up()
        print(made.log.read_text())
    assert "Traceback" not in made.log.read_text()
