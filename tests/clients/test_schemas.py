"""Unmodified clients filter by declared fields, at two daemons of one cluster and after their restarts."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.cli import main
from treecast.middleware.daemon.process import DaemonProcess

kafka = pytest.importorskip("kafka")
pika = pytest.importorskip("pika")
mqtt = pytest.importorskip("paho.mqtt.client")

pytestmark = pytest.mark.clients

PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it
FIXED = json.dumps({"from": "fixed", "versions": [{"fields": "stock:8s,price:u32"}]})
AVRO_TYPE = {"type": "record", "name": "R", "fields": [{"name": "price", "type": "long"}]}
AVRO = json.dumps(
    {"from": "avro", "versions": [{"fields": "price:i64", "schema": json.dumps(AVRO_TYPE), "ids": [7]}]}
)
VALUES = {
    "fixed": lambda price: struct.pack(">8sI", b"GOOGL", price),
    "avro": lambda price: b"\0\0\0\0\7" + bytes([price << 1 & 0x7F | 0x80, price >> 6]),
}
PRICES = range(100)
WANTED = [price for price in PRICES if price > 50]


@pytest.fixture
def hosts(start_daemon: Callable[..., DaemonProcess]) -> list[DaemonProcess]:
    first = start_daemon("--name", "a", "--fabric", "127.0.0.1:0")
    token = ("--join-token", f"@{first.data / 'join-token'}")
    return [first, start_daemon("--name", "b", "--fabric", "127.0.0.1:0", "--join", first.control, *token)]


def produce(daemon: DaemonProcess, topic: str, make: Callable[[int], bytes]) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=daemon.kafka)
    for price in PRICES:
        producer.send(topic, make(price), partition=price % 2)
        if price % 10 == 0:
            producer.send(topic, b"no order", partition=price % 2)
    producer.flush(PATIENCE)
    producer.close()


def read(daemon: DaemonProcess, topic: str, wanted: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=daemon.kafka, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([kafka.TopicPartition(topic, number) for number in range(2)])
    found: list[bytes] = []
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and len(found) < wanted:
        for records in consumer.poll(timeout_ms=200).values():
            found += [record.value for record in records]
    consumer.close()
    return sorted(found)


@pytest.mark.parametrize(("format", "setting"), [("fixed", FIXED), ("avro", AVRO)])
def test_a_view_by_declared_fields_is_the_same_everywhere(
    hosts: list[DaemonProcess], format: str, setting: str
) -> None:
    with DaemonClient(hosts[1].control) as client:
        client.create_topic("orders", 2)  # each host leads one
        client.alter_topic("orders", {"treecast.schema": setting})
        client.alter_topic("orders", {"treecast.view.big": "price > 50"})
    make = VALUES[format]
    produce(hosts[0], "orders", make)
    expected = sorted(make(price) for price in WANTED)
    for host in hosts:
        assert read(host, "orders.view.big", len(expected)) == expected
    for host in hosts:
        host.restart()
    for host in hosts:
        assert read(host, "orders.view.big", len(expected)) == expected
        assert len(read(host, "orders", 110)) == 110
        words = ["filter", "create", "bad", "prize > 5", "--topic", "orders"]
        assert main([*words, "--control", host.control]) != 0


def test_subscriptions_and_bindings_by_declared_fields(hosts: list[DaemonProcess]) -> None:
    with DaemonClient(hosts[0].control) as client:
        client.create_topic("orders", 2)
        client.alter_topic("orders", {"treecast.schema": FIXED})
    got: list[bytes] = []
    client, queue = subscribed(hosts[1], got), bound(hosts[1])
    produce(hosts[0], "orders", VALUES["fixed"])
    expected = sorted(VALUES["fixed"](price) for price in WANTED)
    consumed: list[bytes] = []
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and (len(got) < len(expected) or len(consumed) < len(expected)):
        method, _, body = queue.basic_get("cheap", auto_ack=True)
        if method is not None:
            consumed.append(body)
    client.disconnect()
    client.loop_stop()
    queue.connection.close()
    assert (sorted(got), sorted(consumed)) == (expected, expected)


def subscribed(daemon: DaemonProcess, got: list[bytes]) -> Any:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    confirmed: list[object] = []
    client.on_message = lambda _client, _data, message: got.append(message.payload)
    client.on_subscribe = lambda *words: confirmed.append(words)
    client.connect(*daemon.address("mqtt"))
    client.loop_start()
    given = Properties(PacketTypes.SUBSCRIBE)
    given.UserProperty = ("x-treecast-filter", "price > 50")
    client.subscribe("orders", qos=1, properties=given)
    until = time.monotonic() + PATIENCE
    while not confirmed and time.monotonic() < until:
        time.sleep(0.01)
    assert confirmed
    return client


def bound(daemon: DaemonProcess) -> Any:
    channel = pika.BlockingConnection(pika.ConnectionParameters(*daemon.address("amqp"))).channel()
    channel.queue_declare("cheap", durable=True)
    with_filter = {"x-treecast-filter": "price > 50"}
    channel.queue_bind("cheap", "amq.topic", "orders", arguments=with_filter)
    refused = channel.connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no field prize"):
        refused.queue_bind("cheap", "amq.topic", "orders", arguments={"x-treecast-filter": "prize > 50"})
    return channel
