"""`amq.topic` with Kafka and MQTT on one host: the same topic, each message once, by real clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pika.adapters.blocking_connection import BlockingChannel
from tests.clients.mqtt.paho_client import Newer

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 45.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon with all faces."""
    with DaemonProcess(tmp_path_factory.mktemp("faces") / "data", ["--stare", "off"]) as daemon:
        yield daemon
        print(daemon.log())


@pytest.fixture
def channel(host: DaemonProcess) -> Iterator[BlockingChannel]:
    where, port = host.address("amqp")
    with pika.BlockingConnection(pika.ConnectionParameters(where, port)) as connection:
        made = connection.channel()
        made.confirm_delivery()
        yield made


@pytest.fixture
def mqtt(host: DaemonProcess, name: Callable[[str], str]) -> Iterator[Newer]:
    client = Newer(host, name("client"))
    yield client
    client.close()


def bound(channel: BlockingChannel, name: str, key: str) -> str:
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, "amq.topic", key)
    return name


def take(channel: BlockingChannel, queue: str, count: int) -> list[tuple[bytes, str, Any]]:
    """Returns (body, routing key, properties) of exactly `count` messages."""
    found: list[tuple[bytes, str, Any]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            channel.connection.process_data_events(0.02)
        else:
            found.append((body, method.routing_key, properties))
    assert channel.basic_get(queue)[0] is None
    return found


def test_amqp_publishes_and_mqtt_subscribers_get(channel: BlockingChannel, mqtt: Newer) -> None:
    mqtt.subscribe("shop/+/new")
    own = bound(channel, "shop", "shop.#")
    properties = pika.BasicProperties(delivery_mode=2, content_type="text/plain", headers={"h": "v"})
    channel.basic_publish("amq.topic", "shop.eu.new", b"by AMQP", properties, mandatory=True)
    got = mqtt.next()
    assert (got.topic, got.payload, got.qos) == ("shop/eu/new", b"by AMQP", 1)
    assert got.properties is not None
    assert got.properties.ContentType == "text/plain"
    assert got.properties.UserProperty == [("h", "v")]
    assert [body for body, _, _ in take(channel, own, 1)] == [b"by AMQP"]


def test_mqtt_publishes_and_queues_get(channel: BlockingChannel, mqtt: Newer) -> None:
    queue = bound(channel, "sensors", "sensors.*.#")
    mqtt.publish("sensors/a.b/t", b"21")
    mqtt.publish("sensors", b"not bound")
    ((body, key, properties),) = take(channel, queue, 1)
    assert (body, key, properties.delivery_mode) == (b"21", "sensors.a-x2Eb.t", 2)


def test_a_topic_that_kafka_has_is_one_for_three_faces(
    host: DaemonProcess, channel: BlockingChannel, mqtt: Newer
) -> None:
    topic = "orders.paid"
    admin = AdminClient({"bootstrap.servers": host.kafka})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    queue = bound(channel, "orders", "orders.*")
    mqtt.subscribe("orders/paid")
    wait_until_fed(host, channel, queue, mqtt)
    channel.basic_publish("amq.topic", topic, b"by AMQP", PERSISTENT, mandatory=True)
    mqtt.publish("orders/paid", b"by MQTT")
    producer = Producer({"bootstrap.servers": host.kafka})
    producer.produce(topic, b"by Kafka", key=b"k", headers=[("h", b"v")])
    assert producer.flush(30) == 0
    expected = [b"by AMQP", b"by Kafka", b"by MQTT"]
    found = take(channel, queue, 3)
    assert sorted(body for body, _, _ in found) == expected
    assert {key for _, key, _ in found} == {topic}
    headers = {body: properties.headers for body, _, properties in found}
    assert headers[b"by Kafka"] == {"h": "v"}
    assert sorted(mqtt.payloads(3)) == expected
    assert sorted(read(host.kafka, topic, 3)) == expected


def wait_until_fed(host: DaemonProcess, channel: BlockingChannel, queue: str, mqtt: Newer) -> None:
    """Waits until the queue follows the partition; earlier messages are not delivered."""
    producer = Producer({"bootstrap.servers": host.kafka})
    deadline = time.monotonic() + PATIENCE_S
    number = 0
    while time.monotonic() < deadline:
        number += 1
        producer.produce("orders.paid", b"probe")
        producer.flush(30)
        method, _, _ = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            break
        channel.connection.process_data_events(0.05)
    last = b"last probe"
    producer.produce("orders.paid", last)
    producer.flush(30)
    body = b""
    while body != last and time.monotonic() < deadline:
        _, _, body = channel.basic_get(queue, auto_ack=True)
        channel.connection.process_data_events(0.01)
    assert body == last
    while mqtt.next().payload != last:
        pass


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Returns the latest records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len([one for one in found if b"probe" not in one]) < count and time.monotonic() < deadline:
        found += [one.value() for one in consumer.consume(100, 0.2) if one.error() is None]
    consumer.close()
    return [one for one in found if b"probe" not in one]


def test_what_was_confirmed_comes_to_a_session_that_lasts(
    start_daemon: Callable[..., DaemonProcess],
) -> None:
    """An MQTT client is away while its message is published by AMQP and the daemon is killed."""
    daemon = start_daemon("--kafka", "off", "--stare", "off")
    client = Newer(daemon, "sleepy", lasting=True)
    client.subscribe("a/b")
    client.close()
    where, port = daemon.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(where, port))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "a.b", b"kept", PERSISTENT)
    daemon.kill()
    daemon.restart()
    again = Newer(daemon, "sleepy", lasting=True)
    assert again.next().payload == b"kept"
    again.close()
