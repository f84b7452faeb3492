"""A steady load of all three faces, numbered and timed, as a process in a host's namespace.

    python -m tests.network.pulse send|receive '{"kafka": "127.0.0.1:9092", "mqtt": ..., "user": ...}'

Keys of the argument are those of `Place`; without `authority`, whom to trust over TLS, there is no TLS.
`send` publishes a message of each face every 20 ms, by librdkafka, paho (QoS 1) and pika (confirms).
`receive` reads them at its own host's faces. Both print `ready`, and `receive` each face that has its first
message. The end of stdin ends the program; then one line of JSON on stdout, by face: of `send` the numbers
that were acknowledged, of `receive` [number, sent, received] of each message, in seconds since 1970.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import paho.mqtt.client as mqtt
import pika
import pika.exceptions
from confluent_kafka import Consumer, Producer
from msgspec import Struct
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from treecast.middleware.daemon.process import split_address

EVERY_S = 0.02
PATIENCE_S = 60.0
SILENCE_S = 2.0  # without a message, after which a receiver that is to end has all that there is
KAFKA, MQTT, QUEUE = "pulse-kafka", "pulse/mqtt", "pulse-queue"
LOST = (pika.exceptions.AMQPError, AMQPConnectorException, OSError)
_OPEN: list[Consumer] = []  # until the process ends
MARK = b"pulse-at "  # before the time of each message, so that it is found in files


class Place(Struct, frozen=True):
    """The argument."""

    kafka: str
    mqtt: str
    amqp: str
    user: str
    password: str
    name: str = ""  # of the host: its receivers have a group and a session of their own
    authority: str = ""

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)


def text(number: int) -> bytes:
    return b"%d " % number + MARK + b"%.4f" % time.time()


class Sender(Protocol):
    acknowledged: set[int]

    def send(self, number: int) -> None: ...
    def close(self) -> None:
        """Waits for what is on the way."""


class Received:
    """The messages that a receiver has, each as [number, sent, received]. Prints the face with the first."""

    def __init__(self, face: str) -> None:
        self._face = face
        self.found: list[tuple[int, float, float]] = []
        self.last = time.monotonic()

    def take(self, value: bytes) -> None:
        number, _, sent = value.split()
        if not self.found:
            print(f"{self._face}\n", end="", flush=True)
        self.found.append((int(number), float(sent), time.time()))
        self.last = time.monotonic()


# --- Kafka


def librdkafka(place: Place) -> dict[str, Any]:
    found = {
        "bootstrap.servers": place.kafka,
        "security.protocol": "SASL_SSL" if place.authority else "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": place.user,
        "sasl.password": place.password,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    return found | ({"ssl.ca.location": place.authority} if place.authority else {})


class KafkaSender:
    def __init__(self, place: Place) -> None:
        self.acknowledged: set[int] = set()
        self._producer = Producer({**librdkafka(place), "linger.ms": 0, "enable.idempotence": True})

    def send(self, number: int) -> None:
        def told(error: object, _message: object) -> None:
            if error is None:
                self.acknowledged.add(number)

        self._producer.produce(KAFKA, text(number), on_delivery=told)
        self._producer.poll(0)

    def close(self) -> None:
        self._producer.flush(PATIENCE_S)


def receive_kafka(place: Place, received: Received, ended: threading.Event) -> None:
    settings = {
        "group.id": f"pulse-{place.name}",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": True,
    }
    consumer = Consumer({**librdkafka(place), **settings, "topic.metadata.refresh.interval.ms": 500})
    _OPEN.append(consumer)
    consumer.subscribe([KAFKA])
    while not ended.is_set():
        for message in consumer.consume(100, 0.1):
            if message.error() is None:
                received.take(message.value())
    # Its group may be out of reach: the process ends without a farewell, also without that of its end as an
    # object, which a user who is refused waits for until the session is over, 45 s.


# --- MQTT


def paho(place: Place, name: str) -> mqtt.Client:
    made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, clean_session=False, reconnect_on_failure=True)
    made.username_pw_set(place.user, place.password)
    made.reconnect_delay_set(1, 1)
    if place.authority:
        made.tls_set_context(place.context())
    return made


class MqttSender:
    def __init__(self, place: Place) -> None:
        self.acknowledged: set[int] = set()
        self._sent: dict[int, mqtt.MQTTMessageInfo] = {}
        self._client = paho(place, "pulse-sender")
        self._client.max_inflight_messages_set(1000)
        self._client.connect(*split_address(place.mqtt))
        self._client.loop_start()

    def send(self, number: int) -> None:
        self._sent[number] = self._client.publish(MQTT, text(number), 1)

    def _told(self) -> set[int]:
        return {number for number, one in self._sent.items() if one.rc == 0 and one.is_published()}

    def close(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while len(self._told()) < len(self._sent) and self._client.is_connected() and time.monotonic() < end:
            time.sleep(0.05)
        self.acknowledged = self._told()
        self._client.disconnect()
        self._client.loop_stop()


def receive_mqtt(place: Place, received: Received, ended: threading.Event, ready: Callable[[], None]) -> None:
    made = paho(place, f"pulse-receiver-{place.name}")
    made.on_connect = lambda *_: made.subscribe(MQTT, 1)  # type: ignore[assignment]
    made.on_subscribe = lambda *_: ready()
    made.on_message = lambda _client, _data, message: received.take(bytes(message.payload))
    made.connect(*split_address(place.mqtt))
    made.loop_start()
    ended.wait()
    made.loop_stop()


# --- AMQP


def pika_connection(place: Place) -> pika.BlockingConnection:
    host, port = split_address(place.amqp)
    login = pika.PlainCredentials(place.user, place.password)
    options = {"ssl_options": pika.SSLOptions(place.context(), host)} if place.authority else {}
    return pika.BlockingConnection(
        pika.ConnectionParameters(host, port, credentials=login, heartbeat=0, **options)
    )


class AmqpSender:
    """Publishes again, on a new connection, what a lost one left without its confirm."""

    def __init__(self, place: Place) -> None:
        self.acknowledged: set[int] = set()
        self._place = place
        self._connect()

    def _connect(self) -> None:
        self._connection = pika_connection(self._place)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._channel.queue_declare(QUEUE, durable=True)

    def send(self, number: int) -> None:
        properties, end = pika.BasicProperties(delivery_mode=2), time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                self._channel.basic_publish("", QUEUE, text(number), properties, mandatory=True)
                self.acknowledged.add(number)
                return
            except LOST:
                time.sleep(0.05)
                try:
                    self._connect()
                except LOST:
                    continue

    def close(self) -> None:
        self._connection.close()


def receive_amqp(place: Place, received: Received, ended: threading.Event) -> None:
    while not ended.is_set():
        try:
            connection = pika_connection(place)
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            for method, _, body in channel.consume(QUEUE, inactivity_timeout=0.1):
                if body is not None:
                    received.take(body)
                    channel.basic_ack(method.delivery_tag)
                if ended.is_set():
                    break
            connection.close()
        except LOST:
            ended.wait(0.1)


# --- both


def pulse_of(sender: Sender, ended: threading.Event) -> None:
    number, due = 0, time.monotonic()
    while not ended.is_set():
        sender.send(number)
        number, due = number + 1, max(due + EVERY_S, time.monotonic())
        ended.wait(due - time.monotonic())
    sender.close()


def send(place: Place, ended: threading.Event) -> dict[str, list[int]]:
    senders: dict[str, Sender] = {
        "kafka": KafkaSender(place),
        "mqtt": MqttSender(place),
        "amqp": AmqpSender(place),
    }
    threads = [threading.Thread(target=pulse_of, args=(one, ended)) for one in senders.values()]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()
    return {face: sorted(one.acknowledged) for face, one in senders.items()}


def receive(place: Place, asked: threading.Event) -> dict[str, list[tuple[int, float, float]]]:
    ended = threading.Event()
    received = {face: Received(face) for face in ("kafka", "mqtt", "amqp")}
    subscribed = threading.Event()
    threads = [
        threading.Thread(target=receive_kafka, args=(place, received["kafka"], ended)),
        threading.Thread(target=receive_mqtt, args=(place, received["mqtt"], ended, subscribed.set)),
        threading.Thread(target=receive_amqp, args=(place, received["amqp"], ended)),
    ]
    for thread in threads:
        thread.start()
    if not subscribed.wait(PATIENCE_S):
        sys.exit("the MQTT face accepts no subscription")
    print("ready", flush=True)
    asked.wait()
    since = time.monotonic()
    while time.monotonic() < max([since, *(one.last for one in received.values())]) + SILENCE_S:
        time.sleep(0.1)
    ended.set()
    for thread in threads:
        thread.join()
    return {face: one.found for face, one in received.items()}


class Pulse:
    """This program as a process. `start` starts a command, with pipes at its input and output."""

    def __init__(self, start: Callable[[list[str]], subprocess.Popen[bytes]], way: str, place: Place) -> None:
        words = [sys.executable, "-m", "tests.network.pulse", way, msgspec.json.encode(place).decode()]
        self._process = start(words)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", f"{way} at {place.name}"

    def flows(self, *faces: str) -> None:
        """Returns when a receiver has a message of each of these faces."""
        assert self._process.stdout is not None
        missing = set(faces)
        while missing:
            line = self._process.stdout.readline()
            assert line, f"nothing comes by {missing}"
            missing.discard(line.decode().strip())

    def end(self) -> dict[str, Any]:
        """Ends it. Returns what it has, by face."""
        out, _ = self._process.communicate(timeout=2 * PATIENCE_S)
        assert self._process.returncode == 0
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found


def main() -> None:
    place = msgspec.json.decode(sys.argv[2], type=Place)
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    print(json.dumps((send if sys.argv[1] == "send" else receive)(place, ended)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
