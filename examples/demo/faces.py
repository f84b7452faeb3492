"""The demo's last part: the same order by a client of each face beside one host, and what clients get beside
the other.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable
from typing import Any

import pika
from confluent_kafka import Consumer, Producer
from kafka import KafkaAdminClient
from paho.mqtt.client import Client, MQTTMessage, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from treecast.middleware.daemon.process import DaemonProcess

from .clients import PATIENCE_S, Amiss

TOPIC = "orders.new"  # MQTT's orders/new
FACES = ("Kafka", "AMQP", "MQTT")
PROBE = b"probe"
Wait = Callable[[Callable[[], bool], str], None]


class MqttClient:
    """paho's client. `got` holds the payloads of what it subscribed to."""

    def __init__(self, daemon: DaemonProcess, name: str) -> None:
        self.got: queue.Queue[bytes] = queue.Queue()
        self.subscribed = False
        self._client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTv5)
        self._client.on_message = self._arrived
        self._client.on_subscribe = self._granted
        host, port = daemon.address("mqtt")
        self._client.connect(host, port)
        self._client.loop_start()

    def _arrived(self, _: Client, __: object, message: MQTTMessage) -> None:
        self.got.put(bytes(message.payload))

    def _granted(self, *_: Any) -> None:
        self.subscribed = True

    def subscribe(self, topic: str) -> None:
        self._client.subscribe(topic, qos=1)

    def publish(self, topic: str, payload: bytes) -> None:
        self._client.publish(topic, payload, qos=1).wait_for_publish(PATIENCE_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Subscribers:
    """A client of each face beside one host. `got` counts the bodies for each face."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.got: dict[str, Counter[bytes]] = {face: Counter() for face in FACES}
        settings = {"bootstrap.servers": daemon.kafka, "group.id": "orders", "auto.offset.reset": "earliest"}
        self._kafka = Consumer(settings)
        self._kafka.subscribe([TOPIC])
        self._connection = pika.BlockingConnection(pika.ConnectionParameters(*daemon.address("amqp")))
        self._channel = self._connection.channel()
        self._channel.queue_declare("orders", durable=True)
        self._channel.queue_bind("orders", "amq.topic", TOPIC)
        self.mqtt = MqttClient(daemon, "orders-subscriber")
        self.mqtt.subscribe(TOPIC.replace(".", "/"))

    def take(self) -> None:
        """Takes what has arrived."""
        for record in self._kafka.consume(1000, 0.05):
            if record.error() is None:
                self.got["Kafka"][record.value()] += 1
        while (found := self._channel.basic_get("orders", auto_ack=True))[0] is not None:
            self.got["AMQP"][found[2]] += 1
        while not self.mqtt.got.empty():
            self.got["MQTT"][self.mqtt.got.get()] += 1

    def all_got(self, body: bytes) -> bool:
        self.take()
        return all(got[body] for got in self.got.values())

    def close(self) -> None:
        self._kafka.close()
        self._connection.close()
        self.mqtt.close()


class Publishers:
    """A client of each face beside one host."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._kafka = Producer({"bootstrap.servers": daemon.kafka})
        self._connection = pika.BlockingConnection(pika.ConnectionParameters(*daemon.address("amqp")))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._mqtt = MqttClient(daemon, "orders-publisher")

    def publish(self, face: str, body: bytes) -> None:
        """Publishes by one face, and waits until it is acknowledged."""
        if face == "Kafka":
            self._kafka.produce(TOPIC, body)
            if self._kafka.flush(PATIENCE_S):
                raise Amiss("the order by Kafka was not acknowledged")
        elif face == "AMQP":
            persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent.value)
            self._channel.basic_publish("amq.topic", TOPIC, body, persistent)
        else:
            self._mqtt.publish(TOPIC.replace(".", "/"), body)

    def close(self) -> None:
        self._connection.close()
        self._mqtt.close()


def order_by(face: str) -> bytes:
    return b'{"order": 42, "by": "%s"}' % face.encode()


def exchange(north: DaemonProcess, south: DaemonProcess, wait: Wait) -> dict[str, dict[str, int]]:
    """Publishes the order by each face beside `north`.

    Returns how often clients beside `south` got it: by face of the publisher, then of the subscriber.
    """
    with KafkaAdminClient(bootstrap_servers=north.kafka) as admin:
        admin.create_topics({TOPIC: {"num_partitions": 1}})
    subscribers, publishers = Subscribers(south), Publishers(north)
    try:
        wait(lambda: subscribers.mqtt.subscribed, "the MQTT subscription")

        def reached() -> bool:
            publishers.publish("Kafka", PROBE)
            return subscribers.all_got(PROBE)

        wait(reached, "all faces beside south to follow the topic")
        for face in FACES:
            publishers.publish(face, order_by(face))
        orders = [order_by(face) for face in FACES]
        wait(lambda: all(subscribers.all_got(order) for order in orders), "the orders beside south")
        publishers.publish("Kafka", last := b"last " + PROBE)
        wait(
            lambda: subscribers.all_got(last), "the end of the topic"
        )  # a second copy would have come before
        return {by: {at: subscribers.got[at][order_by(by)] for at in FACES} for by in FACES}
    finally:
        subscribers.close()
        publishers.close()
