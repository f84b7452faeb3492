"""Unmodified Kafka clients read views at two daemons of one cluster."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

import pytest

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.daemon.process import DaemonProcess

confluent_kafka = pytest.importorskip("confluent_kafka")
kafka = pytest.importorskip("kafka")

pytestmark = pytest.mark.clients

FABRIC = ("--fabric", "127.0.0.1:0")
PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it
RECORDS = 600
PARTITIONS = 2
VIEW = "orders.view.big"
FILTER = "price > 50 and headers.unit == EUR"
TOOL_OPTIONS = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@pytest.fixture
def hosts(start_daemon: Callable[..., DaemonProcess]) -> list[DaemonProcess]:
    first = start_daemon("--name", "a", *FABRIC)
    token = ("--join-token", f"@{first.data / 'join-token'}")
    return [first, start_daemon("--name", "b", *FABRIC, "--join", first.control, *token)]


def fill(daemon: DaemonProcess) -> dict[int, list[int]]:
    """Produces records to an empty topic, in order; returns the offsets of those that pass, by partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": daemon.kafka, "enable.idempotence": True})
    passing: dict[int, list[int]] = {n: [] for n in range(PARTITIONS)}
    for number in range(RECORDS):
        price, unit, partition = number % 100, "EUR" if number % 3 else "USD", number % PARTITIONS
        value = json.dumps({"price": price}).encode()
        producer.produce("orders", value, partition=partition, headers={"unit": unit})
        producer.poll(0)
        if price > 50 and unit == "EUR":
            passing[partition].append(number // PARTITIONS)
    assert producer.flush(PATIENCE) == 0
    return passing


def read(daemon: DaemonProcess, group: str, wanted: int) -> dict[int, list[int]]:
    """Returns the offsets of a view's records as kafka-python gets them, and commits the end."""
    consumer = kafka.KafkaConsumer(
        VIEW,
        bootstrap_servers=daemon.kafka,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    found: dict[int, list[int]] = {n: [] for n in range(PARTITIONS)}
    ends = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    until = time.monotonic() + PATIENCE
    position: dict[int, int] = {}
    while time.monotonic() < until and (sum(map(len, found.values())) < wanted or position != ends):
        for partition, records in consumer.poll(timeout_ms=200).items():
            found[partition.partition] += [record.offset for record in records]
        position = {one.partition: consumer.position(one) for one in consumer.assignment()}
    assert position == ends
    consumer.commit()
    consumer.close()
    return found


def create(daemon: DaemonProcess) -> None:
    with DaemonClient(daemon.control) as client:
        client.create_topic("orders", PARTITIONS)  # each host leads one
        client.alter_topic("orders", {"treecast.view.big": FILTER})


def test_both_hosts_show_the_same_and_still_do_after_a_restart(hosts: list[DaemonProcess]) -> None:
    create(hosts[0])
    passing = fill(hosts[0])
    wanted = sum(map(len, passing.values()))
    assert 0 < wanted < RECORDS
    for number, host in enumerate(hosts):
        assert read(host, f"group-{number}", wanted) == passing
    for host in hosts:
        host.restart()
    for number, host in enumerate(hosts):
        assert read(host, f"again-{number}", wanted) == passing


def test_librdkafka_gets_the_same_with_both_group_protocols(hosts: list[DaemonProcess]) -> None:
    create(hosts[1])
    passing = fill(hosts[1])
    wanted = sum(map(len, passing.values()))
    for protocol, host in zip(("classic", "consumer"), hosts, strict=True):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": host.kafka,
                "group.id": protocol,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([VIEW])
        found: dict[int, list[int]] = {n: [] for n in range(PARTITIONS)}
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and sum(map(len, found.values())) < wanted:
            for message in consumer.consume(500, 0.5):
                assert message.error() is None, message.error()
                found[message.partition()].append(message.offset())
        consumer.close()
        assert found == passing


def test_a_producer_is_told_that_it_cannot_write(hosts: list[DaemonProcess]) -> None:
    create(hosts[0])
    for host in hosts:
        producer = kafka.KafkaProducer(bootstrap_servers=host.kafka)
        with pytest.raises(kafka.errors.InvalidTopicError):
            producer.send(VIEW, b"{}", partition=0).get(PATIENCE)
        producer.close()


def test_kafkas_tool_shows_the_lag(hosts: list[DaemonProcess], kafka_jars: str) -> None:
    from bench.peers.kafka.tools import tool_command

    create(hosts[0])
    passing = fill(hosts[0])
    read(hosts[1], "readers", sum(map(len, passing.values())))
    fill(hosts[1])
    words = ["--bootstrap-server", hosts[1].kafka, "--describe", "--group", "readers"]
    command = tool_command("kafka-consumer-groups", words, TOOL_OPTIONS)
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if VIEW in line]
    half = RECORDS // PARTITIONS
    assert sorted(row[1:6] for row in rows) == [
        [VIEW, str(n), str(half), str(2 * half), str(half)] for n in range(PARTITIONS)
    ]
