"""Quotas with unmodified clients: confluent-kafka is told the throttle time; paho and pika are read later.

No test measures a rate: that is `access/test_quotas.py`, with a clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from confluent_kafka import Consumer, Producer

from treecast.middleware.broker.access import ANY, Content, Quota, Rate
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.daemon.users_file import change_users

pytestmark = pytest.mark.clients

PATIENCE_S = 60


@pytest.fixture
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon on which the client `noisy`, and guest's connections of AMQP, have small quotas."""
    flags = ["--stare", "off", "--admin", "off"]
    daemon = DaemonProcess(tmp_path_factory.mktemp("limited") / "data", flags)
    daemon.data.mkdir(mode=0o700)
    rates = {Rate.PRODUCE: 20_000.0, Rate.FETCH: 20_000.0}
    quotas = (Quota("", "noisy", rates), Quota("guest", ANY, rates))
    change_users(daemon.data / "users.toml", lambda _: Content(quotas=quotas))
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


def test_librdkafka_is_told(limited: DaemonProcess, until: Callable[..., Any]) -> None:
    """The noisy client gets throttle times for Produce and Fetch, and all its records; another gets none."""
    throttled: list[float] = []

    def options(client: str, **more: Any) -> dict[str, Any]:
        told = {"throttle_cb": lambda event: throttled.append(event.throttle_time)}
        return {"bootstrap.servers": limited.kafka, "client.id": client, **told, **more}

    quiet = Producer(options("quiet"))
    for number in range(20):
        quiet.produce("t", b"%d" % number + bytes(4_000))
        quiet.flush(PATIENCE_S)
    quiet.poll(0)
    assert throttled == []
    noisy = Producer(options("noisy", **{"compression.type": "none"}))
    for number in range(10):
        noisy.produce("t", b"%d" % number + bytes(4_000))
        assert noisy.flush(PATIENCE_S) == 0
    until(lambda: throttled, lambda: noisy.poll(0.1))
    throttled.clear()
    consumer = Consumer(options("noisy", **{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["t"])
    found: list[Any] = []
    until(lambda: len(found) == 30, lambda: found.extend(consumer.consume(30, 1.0)))
    until(lambda: throttled, lambda: consumer.poll(0.1))
    consumer.close()
    assert all(one.error() is None for one in found)


def test_mqtt_is_read_later(limited: DaemonProcess, until: Callable[..., Any]) -> None:
    """Nothing is lost or refused, and another client goes on meanwhile."""
    got: list[bytes] = []
    reader = paho.Client(paho.CallbackAPIVersion.VERSION2, "reader", protocol=paho.MQTTv5)
    reader.on_message = lambda _client, _data, message: got.append(message.payload)
    reader.connect(*limited.address("mqtt"))
    reader.subscribe("#", 1)
    reader.loop_start()
    noisy = paho.Client(paho.CallbackAPIVersion.VERSION2, "noisy", protocol=paho.MQTTv5)
    noisy.connect(*limited.address("mqtt"))
    noisy.loop_start()
    until(lambda: reader.is_connected() and noisy.is_connected())
    for number in range(50):  # ten seconds' worth
        noisy.publish("loud", b"%d" % number + bytes(4_000), 1)
    until(lambda: len(got) == 50)
    late = noisy.publish("loud", b"late", 1)
    quiet = paho.Client(paho.CallbackAPIVersion.VERSION2, "quiet", protocol=paho.MQTTv5)
    quiet.connect(*limited.address("mqtt"))
    quiet.loop_start()
    quiet.publish("soft", b"quiet", 1).wait_for_publish(PATIENCE_S)
    late.wait_for_publish(PATIENCE_S)
    until(lambda: len(got) == 52)
    assert got[-1] == b"late", "it is read when the time is over"
    for client in (reader, noisy, quiet):
        client.disconnect()
        client.loop_stop()


def test_deliveries_of_mqtt_and_amqp_count(limited: DaemonProcess, until: Callable[..., Any]) -> None:
    """A reader above its quota gets the rest later, in order; nothing is lost, and another reader has it all
    before."""
    got: dict[str, list[bytes]] = {"noisy": [], "quiet": []}
    readers = []
    for name, found in got.items():
        reader = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
        reader.on_message = lambda _client, _data, message, found=found: found.append(message.payload)
        reader.connect(*limited.address("mqtt"))
        reader.subscribe("#", 1)
        reader.loop_start()
        readers.append(reader)
    until(lambda: all(one.is_connected() for one in readers))
    writer = paho.Client(paho.CallbackAPIVersion.VERSION2, "writer", protocol=paho.MQTTv5)
    writer.connect(*limited.address("mqtt"))
    writer.loop_start()
    sent = [b"%d" % number + bytes(4_000) for number in range(100)]  # twenty seconds' worth
    for value in sent:
        writer.publish("loud", value, 1)
    until(lambda: len(got["quiet"]) == len(sent))
    assert len(got["noisy"]) < len(sent)
    until(lambda: len(got["noisy"]) == len(sent))
    assert got["noisy"] == got["quiet"] == sent
    for client in (*readers, writer):
        client.disconnect()
        client.loop_stop()
    host, port = limited.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
    channel = connection.channel()
    channel.queue_declare("r", durable=True)
    for number in range(10):
        channel.basic_publish("", "r", b"%d" % number + bytes(4_000))
    bodies = []
    for _, _, body in channel.consume("r", auto_ack=True):
        bodies.append(body)
        if len(bodies) == 10:
            break
    assert [int(body.rstrip(b"\0")) for body in bodies] == list(range(10))
    connection.close()


def test_amqp_is_read_later(limited: DaemonProcess) -> None:
    host, port = limited.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    for number in range(15):
        channel.basic_publish("", "q", b"%d" % number + bytes(4_000))
    assert channel.queue_declare("q", durable=True, passive=True).method.message_count == 15
    connection.close()
