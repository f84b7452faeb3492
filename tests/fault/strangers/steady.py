"""The steady pairs: a real client of each face sends to itself and notes how long each message takes.

    python -m tests.fault.strangers.steady '{"kafka": "127.0.0.1:9092", "amqp": "...", "mqtt": "..."}'

A line on stdin ends a window. The answer is one line of JSON: {face: {"times": [seconds], "problem": ""}}.
The end of stdin ends the program. The pairs are a process of their own: the strangers' work must not delay
their clocks.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import Queue
from typing import Any, Protocol

import paho.mqtt.client as mqtt
import pika
from confluent_kafka import Consumer, Producer, TopicPartition

from treecast.middleware.daemon.process import split_address

EVERY_S = 0.02  # between the messages of a pair
PATIENCE_S = 60.0  # after which a message counts as lost
# A name for each face: a publish to the MQTT topic of a Kafka topic's name is a record of it as well.
KAFKA, AMQP, MQTT = "steady-kafka", "steady-amqp", "steady-mqtt"


class Pair(Protocol):
    def exchange(self) -> None:
        """Sends a message, and returns when it has come back. Raises if it does not."""


class KafkaPair:
    """A producer and a consumer of one partition, by librdkafka without its delays."""

    def __init__(self, address: str) -> None:
        common = {"bootstrap.servers": address, "topic.metadata.refresh.interval.ms": -1}
        self._producer = Producer({**common, "linger.ms": 0, "socket.nagle.disable": True})
        self._producer.produce(KAFKA, b"first")
        self._producer.flush(PATIENCE_S)
        self._consumer = Consumer(
            {**common, "group.id": KAFKA, "enable.auto.commit": False, "fetch.wait.max.ms": 500}
        )
        self._consumer.assign([TopicPartition(KAFKA, 0, 0)])
        self._take()

    def exchange(self) -> None:
        self._producer.produce(KAFKA, b"x" * 100)
        self._producer.poll(0)
        self._take()

    def _take(self) -> None:
        message = self._consumer.poll(PATIENCE_S)
        if message is None or message.error() is not None:
            raise RuntimeError(f"no record: {message.error() if message is not None else 'waited in vain'}")


class AmqpPair:
    """A publisher and a consumer of one queue, on one connection of pika."""

    def __init__(self, address: str) -> None:
        host, port = split_address(address)
        self._connection = pika.BlockingConnection(pika.ConnectionParameters(host, port, heartbeat=0))
        self._channel = self._connection.channel()
        self._channel.queue_declare(AMQP, exclusive=True)
        self._come = 0
        self._channel.basic_consume(AMQP, self._took, auto_ack=True)

    def _took(self, *_: object) -> None:
        self._come += 1

    def exchange(self) -> None:
        before, deadline = self._come, time.monotonic() + PATIENCE_S
        self._channel.basic_publish("", AMQP, b"x" * 100)
        while self._come == before:
            if time.monotonic() > deadline:
                raise RuntimeError("no message: waited in vain")
            self._connection.process_data_events(1.0)


class MqttPair:
    """A client of MQTT 5 that publishes with QoS 1 to its own subscription."""

    def __init__(self, address: str) -> None:
        host, port = split_address(address)
        self._come: Queue[None] = Queue()
        ready = threading.Event()
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, MQTT, protocol=mqtt.MQTTv5)
        self._client.username_pw_set("guest", "guest")
        self._client.on_message = lambda *_: self._come.put(None)
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.connect(host, port, keepalive=0)
        plain = self._client.socket()
        assert isinstance(plain, socket.socket)
        # paho leaves Nagle's algorithm on: each PUBLISH would wait for the kernel's late acknowledgement of
        # the PUBACK before it, about 24 ms that are not the daemon's.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client.loop_start()
        self._client.subscribe(MQTT, 1)
        if not ready.wait(PATIENCE_S):
            raise RuntimeError("no SUBACK: waited in vain")

    def exchange(self) -> None:
        self._client.publish(MQTT, b"x" * 100, 1)
        self._come.get(timeout=PATIENCE_S)


PAIRS: Mapping[str, Callable[[str], Pair]] = {"kafka": KafkaPair, "amqp": AmqpPair, "mqtt": MqttPair}


class Steady(threading.Thread):
    """One pair, for ever."""

    def __init__(self, face: str, address: str) -> None:
        super().__init__(daemon=True)
        self._pair = PAIRS[face](address)
        self._times: list[float] = []
        self._began = 0.0
        self.problem = ""

    def run(self) -> None:
        try:
            while True:
                self._began = time.monotonic()
                self._pair.exchange()
                self._times.append(time.monotonic() - self._began)
                time.sleep(EVERY_S)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"

    def window(self) -> dict[str, Any]:
        """Returns the times since the last call. One that is on its way counts with what it has taken."""
        times, self._times = self._times, []
        on_way = time.monotonic() - self._began
        if on_way > max(times, default=0.0) + EVERY_S:
            times = [*times, on_way]
        return {"times": times, "problem": self.problem}


def main() -> None:
    pairs = {face: Steady(face, address) for face, address in json.loads(sys.argv[1]).items()}
    for pair in pairs.values():
        pair.start()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps({face: pair.window() for face, pair in pairs.items()}), flush=True)


if __name__ == "__main__":
    main()
