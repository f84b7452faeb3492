"""An Apache Kafka node joined with a daemon's Kafka face, and MirrorMaker 2's client library at both."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.peers.kafka import missing_tools
from bench.peers.kafka.jars import class_path
from bench.peers.kafka.tools import java
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata
from tests.clients.agents.kafka.site import Node
from tests.clients.agents.kafka_bridge.clusters import BridgeAgent, records, way, write

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def node(require: Callable[[object, str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    missing = missing_tools()
    require(not missing, f"Apache Kafka needs {' and '.join(missing)}")
    started = Node(tmp_path_factory.mktemp("kafka"))
    try:
        started.start()
        yield started
    finally:
        started.stop()


def translated(bootstrap: str, source: str, group: str) -> str:
    """Returns what `RemoteClusterUtils` says at a cluster."""
    source_file = str(HERE / "Translated.java")
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", class_path(), source_file, bootstrap, source, group]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=120)
    return done.stdout


def test_a_node_and_a_daemon_and_the_tools_of_mirrormaker(
    node: Node, clusters: dict[str, str], start: Callable[..., BridgeAgent], tmp_path: Path
) -> None:
    both = {"apache": node.bootstrap, "here": clusters["lisbon"]}
    admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    admin.create_topics(
        [NewTopic("bills", 2, 1), NewTopic("kept", 1, 1, topic_configs={"cleanup.policy": "compact"})]
    )
    ways = way("apache", "here", "*") + way("here", "apache", "back-*")
    agent = start(BridgeAgent("node", tmp_path, both, ways))
    for number in range(2):
        write(node.bootstrap, "bills", [b"%d" % one for one in range(number, 200, 2)], partition=number)
    assert len(records(both["here"], "apache.bills", 200, 2)) == 200
    write(node.bootstrap, "kept", [b"%d" % one for one in range(50)])
    assert len(records(both["here"], "apache.kept", 50)) == 50
    backward = KafkaAdminClient(bootstrap_servers=both["here"])
    backward.create_topics([NewTopic("back-1", 1, 1)])
    backward.close()
    write(both["here"], "back-1", [b"%d" % one for one in range(100)])
    assert [one.value for one in records(node.bootstrap, "here.back-1", 100)] == [
        b"%d" % n for n in range(100)
    ]

    reader = KafkaConsumer(bootstrap_servers=node.bootstrap, group_id="clerks", enable_auto_commit=False)
    reader.commit({TopicPartition("bills", 0): OffsetAndMetadata(40, "", -1)})
    reader.close()
    agent.until(lambda found: found["ways"]["apache->here"]["groups"] == 1, "the group is not translated")
    said = translated(both["here"], "apache", "clerks")
    place = re.search(r"apache\.bills-0 (\d+)", said)
    assert place is not None
    came = {one.offset: one.value for one in records(both["here"], "apache.bills", 100)}
    assert came[int(place[1])] == b"80"  # the record at 40 of the source
    assert "upstream [apache]" in said
    assert "hops 1" in said
    assert "upstream [here]" in translated(node.bootstrap, "here", "clerks")
    found = records(node.bootstrap, "mm2-offset-syncs.here.internal", 3)
    assert {one.key[2:-4] for one in found} >= {b"bills", b"kept"}
    admin.close()
    agent.kill()
    agent.start()
    write(node.bootstrap, "bills", [b"more"], partition=0)
    assert len(records(both["here"], "apache.bills", 201, 2)) == 201
