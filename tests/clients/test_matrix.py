"""The cells of docs/faces/matrix.md: one message of each face, as clients of the two others get it.

One daemon has all faces, and a Kafka topic exists, so the topic's partition is the only path.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pika
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.clients.mqtt.paho_client import Newer

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60.0
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PERSISTENT = pika.DeliveryMode.Persistent.value
QUOTA_EXCEEDED, PACKET_ID_NOT_FOUND = 0x97, 0x92  # reasons of MQTT
LIMIT = 20_000  # bytes of a record in the topics made here


class Got(NamedTuple):
    """A message as AMQP clients get it."""

    body: bytes
    key: str
    properties: pika.BasicProperties


class Bench:
    """A client of each face. `topic` is Kafka's name of a topic that all of them follow."""

    def __init__(self, host: DaemonProcess, topic: str, key: str = "", mqtt_topic: str = "") -> None:
        self.topic = topic
        self.key = key or topic
        self.mqtt_topic = mqtt_topic or topic.replace(".", "/")
        self.producer = Producer({"bootstrap.servers": host.kafka})
        admin = AdminClient({"bootstrap.servers": host.kafka})
        admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": str(LIMIT)})])[topic].result(
            30
        )
        settings = {"bootstrap.servers": host.kafka, "group.id": topic, "enable.auto.commit": False}
        self.consumer = Consumer(settings)
        self.consumer.assign([TopicPartition(topic, 0, 0)])
        self.connection = pika.BlockingConnection(pika.ConnectionParameters(*host.address("amqp")))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.channel.queue_declare(topic, durable=True)
        self.channel.queue_bind(topic, "amq.topic", self.key)
        self.mqtt = Newer(host, f"client-{topic}")
        self.mqtt.subscribe(self.mqtt_topic)
        self._follow()

    def close(self) -> None:
        self.connection.close()
        self.mqtt.close()
        self.consumer.close()

    def _follow(self) -> None:
        """Returns when clients of all faces get what is produced from now on, and nothing else."""
        deadline = time.monotonic() + PATIENCE_S
        while self.channel.basic_get(self.topic, auto_ack=True)[0] is None:
            assert time.monotonic() < deadline
            self.produce(b"probe")
            self.connection.process_data_events(0.05)
        self.produce(b"last probe")
        while self.by_amqp().body != b"last probe":
            pass
        while self.mqtt.next().payload != b"last probe":
            pass
        while self.by_kafka().value() != b"last probe":
            pass

    # --- sending

    def produce(self, value: bytes | None, **more: Any) -> None:
        self.producer.produce(self.topic, value, **more)
        assert self.producer.flush(PATIENCE_S) == 0

    def publish(self, body: bytes, **properties: Any) -> None:
        self.channel.basic_publish("amq.topic", self.key, body, pika.BasicProperties(**properties))

    def send(self, payload: bytes, qos: int = 1, retain: bool = False, **properties: Any) -> int:
        """Returns the reason of the acknowledgement."""
        given = Properties(PacketTypes.PUBLISH)
        for name, value in properties.items():
            setattr(given, name, value)
        return self.mqtt.publish(self.mqtt_topic, payload, qos, retain=retain, properties=given)

    # --- receiving

    def by_kafka(self) -> Message:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            record = self.consumer.poll(1)
            if record is not None and record.error() is None:
                return record
        pytest.fail("no record")

    def by_amqp(self) -> Got:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            method, properties, body = self.channel.basic_get(self.topic, auto_ack=True)
            if method is not None:
                return Got(body, method.routing_key, properties)
            self.connection.process_data_events(0.02)
        pytest.fail("no message in the queue")

    def by_mqtt(self) -> MQTTMessage:
        return self.mqtt.next()

    def bodies(self, count: int) -> Mapping[str, list[bytes]]:
        """The next bodies that clients of each face get."""
        return {
            "kafka": [self.by_kafka().value() or b"" for _ in range(count)],
            "amqp": [self.by_amqp().body for _ in range(count)],
            "mqtt": self.mqtt.payloads(count),
        }


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("matrix") / "data", ["--stare", "off"]) as daemon:
        yield daemon
        log = daemon.log()
        print(log)
    assert "Traceback" not in log


@pytest.fixture
def bench(host: DaemonProcess, unique: Callable[[str], str]) -> Iterator[Bench]:
    made = Bench(host, unique("cells") + ".x")
    yield made
    made.close()


def headers_of(record: Message) -> dict[str, bytes]:
    return dict(record.headers() or ())


def shown(properties: pika.BasicProperties) -> dict[str, object]:
    """The properties that are set."""
    return {name: value for name, value in vars(properties).items() if value is not None}


def everywhere(bodies: list[bytes]) -> Mapping[str, list[bytes]]:
    return {"kafka": bodies, "amqp": bodies, "mqtt": bodies}


def test_a_record_becomes_a_message_of_a_queue(bench: Bench) -> None:
    headers = [("h", b"v"), ("traceparent", TRACE.encode()), ("mqtt.content-type", b"text/plain")]
    bench.produce(b"v", key=b"key", headers=headers, timestamp=1_700_000_000_000)
    got = bench.by_amqp()
    assert (got.body, got.key) == (b"v", bench.topic)
    assert shown(got.properties) == {  # no key, no timestamp
        "content_type": "text/plain",
        "headers": {"h": "v", "traceparent": TRACE},
        "delivery_mode": PERSISTENT,
    }
    bench.produce(None, key=b"key")
    assert bench.by_amqp().body == b""


def test_a_record_becomes_an_mqtt_message(bench: Bench) -> None:
    headers = [("h", b"v"), ("traceparent", TRACE.encode()), ("mqtt.content-type", b"text/plain")]
    bench.produce(b"v", key=b"key", headers=headers, timestamp=1_700_000_000_000)
    got = bench.by_mqtt()
    assert (got.topic, got.payload, got.qos, got.retain) == (bench.mqtt_topic, b"v", 1, False)
    assert got.properties is not None
    assert got.properties.UserProperty == [("h", "v"), ("traceparent", TRACE)]
    assert got.properties.ContentType == "text/plain"


def test_a_message_of_amqp_becomes_a_record(bench: Bench) -> None:
    before = time.time() * 1000
    bench.publish(
        b"v",
        content_type="text/plain",
        correlation_id="c",
        headers={"h": "v", "n": 7, "traceparent": TRACE, "table": {"left": "out"}},
        delivery_mode=PERSISTENT,
        expiration="3600000",
        timestamp=1_600_000_000,
        message_id="m",
        priority=3,
    )
    record = bench.by_kafka()
    headers = headers_of(record)
    assert (record.key(), record.value()) == (None, b"v")
    assert before + 3_000_000 < int(headers.pop("mqtt.expires")) <= time.time() * 1000 + 3_600_000
    assert headers.pop("mqtt.client").endswith(b"/amq.topic")
    assert headers == {
        "mqtt.content-type": b"text/plain",
        "mqtt.correlation-data": b"c",
        "mqtt.qos": b"1",
        "h": b"v",
        "n": b"7",
        "traceparent": TRACE.encode(),
    }
    assert before - 1 <= record.timestamp()[1] <= time.time() * 1000  # the time of the publish
    bench.publish(b"transient")
    assert headers_of(bench.by_kafka()).keys() == {"mqtt.client"}


def test_a_message_of_amqp_becomes_one_of_mqtt(bench: Bench) -> None:
    bench.publish(
        b"v",
        content_type="text/plain",
        correlation_id="c",
        headers={"h": "v", "n": 7, "traceparent": TRACE, "table": {"left": "out"}},
        delivery_mode=PERSISTENT,
        expiration="3600000",
        timestamp=1_600_000_000,
    )
    got = bench.by_mqtt()
    assert (got.topic, got.payload, got.qos, got.retain) == (bench.mqtt_topic, b"v", 1, False)
    assert got.properties is not None
    assert got.properties.UserProperty == [("h", "v"), ("n", "7"), ("traceparent", TRACE)]
    assert (got.properties.ContentType, got.properties.CorrelationData) == ("text/plain", b"c")
    assert 3_500 < got.properties.MessageExpiryInterval <= 3_600
    bench.publish(b"transient")
    assert bench.by_mqtt().qos == 0


def test_a_message_of_mqtt_becomes_one_of_a_queue(bench: Bench) -> None:
    user = [("h", "v"), ("h", "w"), ("traceparent", TRACE)]
    more = {"ContentType": "text/plain", "CorrelationData": b"c", "ResponseTopic": "r"}
    bench.send(b"v", 2, UserProperty=user, MessageExpiryInterval=3600, **more)
    got = bench.by_amqp()
    assert (got.body, got.key) == (b"v", bench.topic)
    found = shown(got.properties)
    headers = found.pop("headers")
    assert isinstance(headers, dict)
    assert headers["traceparent"] == TRACE
    assert headers["h"] in ("v", "w")  # a table has one value for a name, and clients choose
    assert found == {"content_type": "text/plain", "correlation_id": "c", "delivery_mode": PERSISTENT}
    bench.send(b"transient", 0)
    assert "delivery_mode" not in shown(bench.by_amqp().properties)


def test_a_message_of_mqtt_becomes_a_record(bench: Bench) -> None:
    bench.send(b"v", 1, UserProperty=[("h", "v"), ("traceparent", TRACE)], ContentType="text/plain")
    record = bench.by_kafka()
    headers = headers_of(record)
    assert (record.key(), record.value()) == (None, b"v")
    assert (headers["h"], headers["traceparent"]) == (b"v", TRACE.encode())
    assert (headers["mqtt.content-type"], headers["mqtt.qos"]) == (b"text/plain", b"1")


def test_retained_messages_are_mqtts_own(bench: Bench, host: DaemonProcess) -> None:
    """Queues and consumers get them once, as they are published; a later binding does not get them."""
    bench.send(b"retained", 1, retain=True)
    assert bench.by_amqp().body == b"retained"
    assert "mqtt.retain" in headers_of(bench.by_kafka())
    later = Newer(host, "later")
    later.subscribe(bench.mqtt_topic)
    kept = later.next()
    later.close()
    assert (kept.payload, kept.retain) == (b"retained", True)
    bench.channel.queue_declare("later", durable=True)
    bench.channel.queue_bind("later", "amq.topic", bench.topic)
    bench.publish(b"not retained", delivery_mode=PERSISTENT)
    assert bench.by_amqp().body == b"not retained"
    assert bench.channel.basic_get("later", auto_ack=True)[2] in (None, b"not retained")


@pytest.mark.parametrize("face", ["kafka", "amqp", "mqtt"])
def test_the_order_is_that_of_the_partition(bench: Bench, face: str) -> None:
    bodies = [b"%d" % number for number in range(50)]
    for body in bodies:
        if face == "kafka":
            bench.producer.produce(bench.topic, body)
        elif face == "amqp":
            bench.publish(body, delivery_mode=PERSISTENT)
        else:
            bench.send(body)
    bench.producer.flush(PATIENCE_S)
    assert bench.bodies(50) == everywhere(bodies)


@pytest.mark.parametrize(("qos", "shown"), [(1, QUOTA_EXCEEDED), (2, PACKET_ID_NOT_FOUND)])
def test_mqtt_is_told_what_is_larger_than_the_topic_takes(bench: Bench, qos: int, shown: int) -> None:
    """paho sends a PUBREL after a negative PUBREC, too, and shows the reason of the PUBCOMP."""
    assert bench.send(bytes(LIMIT), qos) == shown
    assert bench.send(b"small enough", qos) == 0
    assert bench.bodies(1) == everywhere([b"small enough"])


@pytest.mark.parametrize("mode", [PERSISTENT, 1])
def test_what_the_topic_does_not_take_is_never_confirmed(bench: Bench, mode: int) -> None:
    with pytest.raises(pika.exceptions.NackError):
        bench.publish(bytes(LIMIT), delivery_mode=mode)
    bench.publish(b"small enough", delivery_mode=mode)  # the channel goes on
    assert bench.bodies(1) == everywhere([b"small enough"])


def test_a_message_that_just_fits_is_confirmed_and_recorded(bench: Bench) -> None:
    """The limit is that of the record batch, as Kafka counts it."""
    fits, too_large = 0, LIMIT
    while too_large - fits > 1:
        size = (fits + too_large) // 2
        try:
            bench.publish(bytes(size))
            assert len(bench.by_kafka().value() or b"") == size, size
            fits = size
        except pika.exceptions.NackError:
            too_large = size
    assert LIMIT - 200 < fits < LIMIT
    assert len(bench.by_amqp().body) == len(bench.by_mqtt().payload) == LIMIT // 2


def test_each_channel_has_a_partition_of_its_own(host: DaemonProcess, unique: Callable[[str], str]) -> None:
    """Messages of one channel are in one partition, in order; channels are spread over all."""
    topic = unique("spread")
    admin = AdminClient({"bootstrap.servers": host.kafka})
    admin.create_topics([NewTopic(topic, 4)])[topic].result(30)
    with pika.BlockingConnection(pika.ConnectionParameters(*host.address("amqp"))) as connection:
        channels = [connection.channel() for _ in range(32)]
        for number in range(3):
            for channel in channels:
                channel.basic_publish("amq.topic", topic, b"%d %d" % (channel.channel_number, number))
        consumer = Consumer({"bootstrap.servers": host.kafka, "group.id": topic})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
        found: dict[tuple[int, bytes], list[bytes]] = {}
        while sum(map(len, found.values())) < 3 * len(channels):
            record = consumer.poll(PATIENCE_S)
            assert record is not None
            assert record.error() is None
            whose, number_sent = (record.value() or b"").split()
            found.setdefault((record.partition() or 0, whose), []).append(number_sent)
        consumer.close()
    assert sorted(whose for _, whose in found) == sorted(b"%d" % one.channel_number for one in channels)
    assert all(numbers == [b"0", b"1", b"2"] for numbers in found.values())
    assert {partition for partition, _ in found} == {0, 1, 2, 3}


def test_bodies_up_to_the_limit_arrive_whole(bench: Bench) -> None:
    for face, send in (("kafka", bench.produce), ("amqp", bench.publish), ("mqtt", bench.send)):
        body = face[:1].encode() * (LIMIT - 1000)
        send(body)
        assert bench.bodies(1) == everywhere([body])


def test_each_face_spells_a_name_its_own_way(host: DaemonProcess, unique: Callable[[str], str]) -> None:
    first = unique("cells")
    topic, key, mqtt_topic = f"{first}.a-x2Eb.caf-xC3-xA9", f"{first}.a-x2Eb.café", f"{first}/a.b/café"
    bench = Bench(host, topic, key, mqtt_topic)
    try:
        for send in (bench.produce, bench.publish, bench.send):
            send(b"x")
            names = (bench.by_kafka().topic(), bench.by_amqp().key, bench.by_mqtt().topic)
            assert names == (topic, key, mqtt_topic)
    finally:
        bench.close()
