"""Real clients beside two daemons of one cluster."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.daemon.process import DaemonProcess

aiokafka = pytest.importorskip("aiokafka")
confluent_kafka = pytest.importorskip("confluent_kafka")
kafka = pytest.importorskip("kafka")

pytestmark = pytest.mark.clients

FABRIC = ("--fabric", "127.0.0.1:0")
PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it
RECORDS = 2000
NEW_TOPICS = 20


@pytest.fixture
def hosts(start_daemon: Callable[..., DaemonProcess]) -> list[DaemonProcess]:
    first = start_daemon("--name", "a", *FABRIC)
    token = ("--join-token", f"@{first.data / 'join-token'}")
    return [first, start_daemon("--name", "b", *FABRIC, "--join", first.control, *token)]


def producer(daemon: DaemonProcess, **more: Any) -> Any:
    return confluent_kafka.Producer(
        {
            "bootstrap.servers": daemon.kafka,
            "linger.ms": 1,
            **{k.replace("_", "."): v for k, v in more.items()},
        }
    )


def consume(
    daemon: DaemonProcess, topic: str, partitions: int, count: int, **more: Any
) -> dict[int, list[tuple[int, bytes]]]:
    """Returns (offset, value) of `count` records from the beginning, by partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": daemon.kafka,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            **{key.replace("_", "."): value for key, value in more.items()},
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(partitions)])
    found: dict[int, list[tuple[int, bytes]]] = {n: [] for n in range(partitions)}
    end = time.monotonic() + PATIENCE
    left = count
    while left and time.monotonic() < end:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            found[message.partition()].append((message.offset(), message.value()))
            left -= 1
    consumer.close()
    assert not left, f"{left} records did not arrive"
    return found


def test_records_produced_at_either_host_are_the_same_at_both(hosts: list[DaemonProcess]) -> None:
    with DaemonClient(hosts[1].control) as client:
        client.create_topic("t", 4)  # each host leads two partitions
    acknowledged: list[tuple[int, int, bytes]] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        acknowledged.append((message.partition(), message.offset(), message.value()))

    producers = [producer(host, enable_idempotence=True) for host in hosts]
    for number in range(RECORDS):
        producers[number % 2].produce("t", b"%d" % number, partition=number % 4, on_delivery=delivered)
        producers[number % 2].poll(0)
    for each in producers:
        assert each.flush(PATIENCE) == 0
    assert len({(partition, offset) for partition, offset, _ in acknowledged}) == RECORDS
    at_a, at_b = (consume(host, "t", 4, RECORDS) for host in hosts)
    assert at_a == at_b
    assert sorted((p, offset, value) for p, rows in at_a.items() for offset, value in rows) == sorted(
        acknowledged
    )
    again = consume(hosts[1], "t", 4, RECORDS)  # from the replicas
    assert again == at_a


def test_a_transaction_over_partitions_of_both_hosts(hosts: list[DaemonProcess]) -> None:
    with DaemonClient(hosts[0].control) as client:
        client.create_topic("t", 2)
    writer = producer(hosts[0], transactional_id="tx")
    writer.init_transactions(PATIENCE)
    for number, commit in enumerate((True, False, True)):
        writer.begin_transaction()
        for partition in (0, 1):
            writer.produce("t", b"%d" % number, partition=partition)
        writer.flush(PATIENCE)
        (writer.commit_transaction if commit else writer.abort_transaction)(PATIENCE)
    for host in hosts:
        found = consume(host, "t", 2, 4, isolation_level="read_committed")
        assert {p: [value for _, value in rows] for p, rows in found.items()} == {
            0: [b"0", b"2"],
            1: [b"0", b"2"],
        }


async def read_from_the_first(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Returns the values that a consumer gets from offset 0 on; one told to reset goes to the end."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="latest", enable_auto_commit=False
    )
    await consumer.start()
    partition = aiokafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    found: list[bytes] = []
    try:
        async with asyncio.timeout(PATIENCE):
            while len(found) < count:
                found.append((await consumer.getone()).value)
    except TimeoutError:
        pass
    finally:
        await consumer.stop()
    return found


async def test_a_reader_of_new_topics_at_the_other_host_skips_nothing(hosts: list[DaemonProcess]) -> None:
    """The replica begins while records come: the reader is ahead of it, or behind it, or neither."""
    rng, count = random.Random(1), 4
    topics = [f"new{number}" for number in range(NEW_TOPICS)]
    with DaemonClient(hosts[0].control) as client:
        for topic in topics:
            client.create_topic(topic, 1, leaders=["a"])
    sender = aiokafka.AIOKafkaProducer(bootstrap_servers=hosts[0].kafka, acks="all")
    await sender.start()
    for topic in topics:
        reading = asyncio.create_task(read_from_the_first(hosts[1].kafka, topic, count))
        await asyncio.sleep(rng.random() * 0.12)
        for number in range(count):
            await sender.send_and_wait(topic, b"%d" % number)
            await asyncio.sleep(0.04)
        assert await reading == [b"%d" % number for number in range(count)], topic
    await sender.stop()


def stored_ends(hosts: list[DaemonProcess], topic: str) -> set[int]:
    """Returns the end of a topic's partition 0, as each host tells it."""
    consumers = [kafka.KafkaConsumer(bootstrap_servers=host.kafka) for host in hosts]
    partition = kafka.TopicPartition(topic, 0)
    ends = {consumer.end_offsets([partition])[partition] for consumer in consumers}
    for consumer in consumers:
        consumer.close()
    return ends


@pytest.mark.parametrize("compression", ["uncompressed", "snappy"])
def test_a_batch_that_the_topics_compression_makes_too_large_is_refused_at_both(
    hosts: list[DaemonProcess], compression: str
) -> None:
    config = {"max.message.bytes": "2000", "compression.type": compression}
    with DaemonClient(hosts[0].control) as client:
        client.create_topic("small", 1, config, leaders=["a"])
    for host in hosts:
        # an idempotent one gives up after a refusal
        sender = kafka.KafkaProducer(
            bootstrap_servers=host.kafka, compression_type="gzip", enable_idempotence=False
        )
        with closing(sender):
            with pytest.raises(kafka.errors.MessageSizeTooLargeError):
                sender.send("small", b"a" * 50_000).get(PATIENCE)
            sender.send("small", b"a" * 500).get(PATIENCE)
    assert stored_ends(hosts, "small") == {2}


def test_a_record_that_compression_makes_small_passes_between_hosts(hosts: list[DaemonProcess]) -> None:
    """76 MB of JSON in a batch that the topic's limit admits."""
    rng = random.Random(1)
    rows = [
        b'{"id": %d, "name": "customer %d", "state": "%s", "price": %d}'
        % (number, number, rng.choice([b"new", b"paid", b"sent"]), number % 997)
        for number in range(20_000)
    ]
    value = b"[" + b",".join([b",".join(rows)] * 55) + b"]"
    assert len(value) > 70_000_000
    with DaemonClient(hosts[0].control) as client:
        client.create_topic("large", 1, {"max.message.bytes": "20000000"}, leaders=["a"])
    for host in hosts:
        sender = kafka.KafkaProducer(
            bootstrap_servers=host.kafka, compression_type="gzip", max_request_size=200 << 20
        )
        with closing(sender):
            sender.send("large", value).get(PATIENCE)
    for host in hosts:
        reader = kafka.KafkaConsumer(
            "large", bootstrap_servers=host.kafka, auto_offset_reset="earliest", consumer_timeout_ms=60_000
        )
        with closing(reader):
            assert [next(reader).value == value for _ in hosts] == [True, True]
