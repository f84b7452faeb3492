"""Clients that send one message and receive it elsewhere, and do nothing else.

Ordinary clients send a new request as soon as they get a reply, and acknowledge what they receive. That is
the start of the next message's way, and would sometimes be traced with this one's.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Protocol

from pika import BasicProperties, BlockingConnection, ConnectionParameters
from pika.adapters.blocking_connection import BlockingChannel

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.load import frames
from treecast.middleware.load.connection import Connection
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec_packets import Ack, Connect, FilterRequest, Publish, Subscribe, encode
from treecast.shims.mqtt.codec_read import read_length

PAYLOAD = b"x" * 100
_WAIT_MS = 30_000  # of a fetch, so that no empty reply comes between two messages
_SECONDS = 60.0


def until(what: Callable[[], bool], reason: str) -> None:
    """Waits until `what` holds. Raises AssertionError with the reason if it does not for a long time."""
    end = time.monotonic() + _SECONDS
    while not what():
        assert time.monotonic() < end, reason
        time.sleep(0.02)


ANSWERED_AND_DELIVERED = ("", "shims/")  # A replies and sends, B delivers
AWAY_AND_BACK = ("shims/", "")  # A confirms and delivers, B sends


class Carried(Protocol):
    """A connection to each of two hosts. `ready`, then `carry`, repeatedly."""

    name: str
    writers: tuple[str, str]  # rooms of A and of B whose last write ends a host's trace

    def begun(self) -> None:
        """Waits until messages take the way that they take from then on. Called after the first ones."""
        ...

    def ready(self) -> None:
        """Does everything that precedes a message: the consumer asks, or acknowledges the last message."""
        ...

    def carry(self) -> int:
        """Sends one message; waits until it has arrived and the sender has its reply; returns that time in
        nanoseconds of the monotonic clock."""
        ...

    def close(self) -> None: ...


class KafkaRecord:
    """Produce 9 with acks=all at A, which leads the partition; a Fetch 12 waits at B, which has a replica."""

    name = "a Kafka record"
    writers = ANSWERED_AND_DELIVERED
    topic = "walk"

    def __init__(self, a: DaemonProcess, b: DaemonProcess) -> None:
        with DaemonClient(a.control) as client:
            client.create_topic(self.topic, 1, leaders=["a"])
        self._reader_host = b.control
        self._producer = Connection(*a.address("kafka"), timeout=_SECONDS)
        self._consumer = Connection(*b.address("kafka"), timeout=_SECONDS)
        self._consumer.create_topic(self.topic, 1)  # returns when B knows the topic's leader
        batch = bytes(build_batch([Record(b"key", PAYLOAD, timestamp=1_700_000_000_000)]))
        self._produce = frames.produce_request(self.topic, 0, batch, acks=-1)
        self._error_at = frames.produce_error_position(self.topic) - 4  # replies come without their length
        self._fetch = frames.FetchRequest(self.topic, 0, 1 << 20, 1, _WAIT_MS)
        self._offset = 0

    def begun(self) -> None:
        """Until B's replica has all records. Before, B asks the leader for them."""
        with DaemonClient(self._reader_host) as client:
            until(lambda: self._copied(client), f"host B has no copy of {self.topic}")

    def _copied(self, client: DaemonClient) -> bool:
        return any(one.copy and one.end == self._offset for one in client.list_partitions(self.topic))

    def ready(self) -> None:
        self._consumer.send(self._fetch.at(self._offset))

    def carry(self) -> int:
        produced = self._producer.call(self._produce)
        fetched = self._consumer.receive()
        done = time.monotonic_ns()
        assert not int.from_bytes(produced[self._error_at : self._error_at + 2], "big"), "not produced"
        if self._took(fetched):
            return done
        self.ready()  # the fetch was proxied, or empty: B follows no replica yet
        return self._again()

    def _again(self) -> int:
        while not self._took(self._consumer.receive()):
            self.ready()
        return time.monotonic_ns()

    def _took(self, answer: bytes) -> bool:
        data = len(answer).to_bytes(4, "big") + answer
        found = frames.parse_fetch_head(data)
        assert not found.error, f"Fetch was answered with error {found.error}"
        offset, count = frames.next_offset(data, found.records_at, found.records_size)
        self._offset = max(self._offset, offset)
        return count > 0

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()


class MqttMessage:
    """A publish of QoS 1 at A; a subscriber of QoS 1 at B. Version 5, sessions that end with their
    connection."""

    name = "an MQTT message of QoS 1"
    writers = ANSWERED_AND_DELIVERED
    topic = "walk/mqtt"

    def __init__(self, a: DaemonProcess, b: DaemonProcess) -> None:
        self._publisher = _MqttConnection(a, "publisher")
        self._subscriber = _MqttConnection(b, "subscriber")
        self._subscriber.subscribe(self.topic)
        with DaemonClient(a.control) as client:  # a busy host may hear of a subscription after its answer
            until(lambda: self._wanted(client), "host A does not know that host B wants the message")
        self._owed = 0  # the packet id that the subscriber must acknowledge
        self._packet_id = 0

    def _wanted(self, client: DaemonClient) -> bool:
        return "b" in client.explain(pb.ExplainRequest(mqtt=self.topic)).hosts

    def begun(self) -> None:
        """Does nothing: the first message takes the same way as all others."""

    def ready(self) -> None:
        if self._owed:
            self._subscriber.send(encode(Ack(codec.PUBACK, self._owed), codec.V5))
            self._owed = 0

    def carry(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        publish = Publish(self.topic.encode(), PAYLOAD, qos=1, packet_id=self._packet_id)
        self._publisher.send(encode(publish, codec.V5))
        acknowledged, _ = self._publisher.packet()
        came, body = self._subscriber.packet()
        done = time.monotonic_ns()
        assert (acknowledged, came) == (codec.PUBACK, codec.PUBLISH)
        at = 2 + int.from_bytes(body[:2], "big")
        self._owed = int.from_bytes(body[at : at + 2], "big")
        return done

    def close(self) -> None:
        self._publisher.close()
        self._subscriber.close()


class AmqpMessage:
    """A persistent message that A confirms, to a durable queue whose home is B; a consumer at A that needs to
    acknowledge nothing."""

    name = "an AMQP message with a confirm"
    writers = AWAY_AND_BACK
    queue = "walk-amqp"

    def __init__(self, a: DaemonProcess, b: DaemonProcess) -> None:
        with _amqp(b) as there:
            there.channel().queue_declare(self.queue, durable=True)
        self._publisher, self._consumer = _amqp(a), _amqp(a)
        self._published = self._publisher.channel()
        self._published.confirm_delivery()
        self._read = 0
        consumed = self._consumer.channel()
        until(lambda: self._found(consumed), "host A does not know of the queue at host B")
        consumed.basic_consume(self.queue, lambda *_: self._took(), auto_ack=True)

    def _found(self, channel: BlockingChannel) -> bool:
        channel.queue_declare(self.queue, durable=True)
        return True

    def _took(self) -> None:
        self._read += 1

    def begun(self) -> None:
        """Does nothing: the first message takes the same way as all others."""

    def ready(self) -> None:
        """Does nothing: the consumer acknowledges nothing."""

    def carry(self) -> int:
        wanted, persistent = self._read + 1, BasicProperties(delivery_mode=2)
        self._published.basic_publish("", self.queue, PAYLOAD, persistent)
        while self._read < wanted:
            self._consumer.process_data_events(time_limit=_SECONDS)
        return time.monotonic_ns()

    def close(self) -> None:
        self._publisher.close()
        self._consumer.close()


def _amqp(daemon: DaemonProcess) -> BlockingConnection:
    host, port = daemon.address("amqp")
    return BlockingConnection(ConnectionParameters(host, port, heartbeat=0))


class _MqttConnection:
    def __init__(self, daemon: DaemonProcess, client_id: str) -> None:
        self._socket = socket.create_connection(daemon.address("mqtt"), _SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self.send(encode(Connect(codec.V5, client_id, True, 0, None), codec.V5))
        assert self.packet()[0] == codec.CONNACK

    def subscribe(self, filter: str) -> None:
        self.send(encode(Subscribe(1, (FilterRequest(filter.encode(), 1),)), codec.V5))
        assert self.packet()[0] == codec.SUBACK

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def packet(self) -> tuple[int, bytes]:
        """Returns the kind of the next packet, and its body."""
        while True:
            data = self._buffer
            size, body = read_length(data, 0, len(data))
            if size >= 0 and len(data) >= body + size:
                self._buffer = data[body + size :]
                return data[0] >> 4, data[body : body + size]
            more = self._socket.recv(1 << 16)
            assert more, "the daemon closed the connection"
            self._buffer += more

    def close(self) -> None:
        self._socket.close()
