"""The new group protocol (KIP-848) by the Java client and the tools of Apache Kafka, unmodified."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.quick_groups import quick_groups

pytestmark = pytest.mark.clients
PARTITIONS = 6
OPTIONS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    # On a loaded machine, a JVM may not send for seconds: a member that expires loses its partitions.
    with quick_groups(tmp_path_factory.mktemp("groups"), session_timeout_ms=45_000) as daemon:
        yield daemon.kafka


@pytest.fixture(scope="module")
def migrate(kafka_jars, require_tool, tmp_path_factory):
    """Compiles java/Migrate.java; returns a function that runs it and returns its output."""
    folder = tmp_path_factory.mktemp("migrate")
    source = Path(__file__).parent / "java" / "Migrate.java"
    subprocess.run(
        [require_tool("javac"), "-encoding", "UTF-8", "-cp", kafka_jars, "-d", str(folder), str(source)],
        check=True,
        capture_output=True,
    )

    def run(*words):
        command = ["java", *OPTIONS, "-cp", f"{folder}:{kafka_jars}", "Migrate", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()  # the client's log has other lines
        return [line.removeprefix("result ") for line in lines if line.startswith("result ")]

    return run


@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_a_group_migrates_up_and_down_under_load(address, unique, migrate, assignor):
    topic, group = unique("t"), unique("g")
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    up, down, account, matched = migrate(address, topic, str(PARTITIONS), group, assignor)
    assert up == "Consumer Stable 3"
    assert down == "Classic Stable 3"
    sent, read, twice, lost = map(int, account.split())
    assert (read, twice, lost) == (sent, 0, 0)
    assert int(matched) == PARTITIONS


def test_the_tool_describes_a_group(address, unique, kafka_jars, until):
    from bench.peers.kafka.tools import tool_command
    from confluent_kafka import Consumer

    topic, group = unique("t"), unique("g")
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, 2)])[topic].result(30)
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "group.protocol": "consumer"})
    try:
        consumer.subscribe([topic])
        until(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(0.1), "its partitions")

        def tool(*arguments):
            words = ["--bootstrap-server", address, *arguments]
            command = tool_command("kafka-consumer-groups", words, OPTIONS)
            return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout

        listed = tool("--list", "--type")
        assert next(line.split()[1] for line in listed.splitlines() if line.startswith(group)) == "Consumer"
        state = tool("--describe", "--group", group, "--state", "--verbose")
        assert "uniform" in state
        assert "Stable" in state
        members = tool("--describe", "--group", group, "--members", "--verbose")
        assert f"{topic}:0,1" in members
    finally:
        consumer.close()
