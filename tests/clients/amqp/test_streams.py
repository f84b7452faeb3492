"""Stream queues: pika reads and writes them, Kafka's clients too, and they are there again after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pika
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ConnectionClosedByBroker, NackError
from tests.clients.amqp.conftest import two_hosts

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60.0
STREAM = {"x-queue-type": "stream"}


class Message(NamedTuple):
    body: bytes
    offset: int
    method: Any
    properties: Any


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon with the AMQP and Kafka faces."""
    flags = ["--stare", "off", "--mqtt", "off", "--admin", "off"]
    with DaemonProcess(tmp_path_factory.mktemp("streams") / "data", flags) as daemon:
        yield daemon
        print(daemon.log())
        assert "Traceback" not in daemon.log()


def dial(daemon: DaemonProcess) -> pika.BlockingConnection:
    where, port = daemon.address("amqp")
    return pika.BlockingConnection(pika.ConnectionParameters(where, port))


@pytest.fixture
def channel(host: DaemonProcess) -> Iterator[BlockingChannel]:
    connection = dial(host)
    made = connection.channel()
    made.confirm_delivery()
    made.basic_qos(prefetch_count=10)
    yield made
    if connection.is_open:
        connection.close()


def declare(channel: BlockingChannel, name: str, **arguments: object) -> str:
    channel.queue_declare(name, durable=True, arguments={**STREAM, **arguments})
    return name


def fill(channel: BlockingChannel, stream: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        channel.basic_publish("", stream, b"%d" % number)


def read(channel: BlockingChannel, stream: str, count: int, start: object = "first") -> list[Message]:
    """Returns `count` messages. That is also the prefetch, since pika rejects what it has not passed on when
    a consumer is cancelled."""
    other = channel.connection.channel()
    other.basic_qos(prefetch_count=count)
    found: list[Message] = []
    arguments = {"x-stream-offset": start} if start is not None else {}
    for method, properties, body in other.consume(stream, arguments=arguments, inactivity_timeout=PATIENCE_S):
        assert method is not None, f"only {len(found)} of {count} messages came"
        found.append(Message(body, properties.headers["x-stream-offset"], method, properties))
        if len(found) == count:
            break
    other.cancel()
    other.close()
    return found


def bodies(found: list[Message]) -> list[int]:
    return [int(one.body) for one in found]


def test_a_stream_is_read_again_and_again(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    stream = declare(channel, name("s"))
    fill(channel, stream, 50)
    for _ in range(2):
        found = read(channel, stream, 50)
        assert bodies(found) == list(range(50))
        assert [one.offset for one in found] == list(range(50))


def test_properties_come_as_they_were(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    stream = declare(channel, name("s"))
    channel.exchange_declare(exchange := name("x"), "topic")
    channel.queue_bind(stream, exchange, "a.#")
    given = pika.BasicProperties(
        content_type="text/plain",
        headers={"n": 1, "nested": {"list": [1, "two", None, True]}},
        message_id="m",
        timestamp=1_700_000_000,
        delivery_mode=2,
    )
    channel.basic_publish(exchange, "a.b", b"body", given)
    channel.basic_publish(exchange, "b.a", b"not routed")
    channel.basic_publish("", stream, b"plain")
    first, second = read(channel, stream, 2)
    method, properties = first.method, first.properties
    assert (method.exchange, method.routing_key, first.body) == (exchange, "a.b", b"body")
    assert (second.method.exchange, second.method.routing_key, second.body) == ("", stream, b"plain")
    assert not method.redelivered
    assert properties.headers == {**given.headers, "x-stream-offset": 0}
    assert (properties.content_type, properties.message_id) == ("text/plain", "m")
    assert (properties.timestamp, properties.delivery_mode) == (1_700_000_000, 2)


def test_where_a_consumer_starts(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    stream = declare(channel, name("s"))
    fill(channel, stream, 5)
    time.sleep(1.1)  # AMQP's timestamps are in seconds
    between = datetime.now(UTC)
    time.sleep(1.1)
    fill(channel, stream, 5, 5)
    assert bodies(read(channel, stream, 3, 7)) == [7, 8, 9]
    assert bodies(read(channel, stream, 5, between)) == [5, 6, 7, 8, 9]
    assert bodies(read(channel, stream, 10, datetime.now(UTC) - timedelta(hours=1))) == list(range(10))
    assert bodies(read(channel, stream, 10, "1h")) == list(range(10))
    assert bodies(read(channel, stream, 1, "last")) == [9]
    for start in ("next", None, 1_000_000):
        consumed = channel.consume(
            stream, arguments={"x-stream-offset": start} if start else {}, inactivity_timeout=0.2
        )
        assert next(consumed)[0] is None
        before = read_one_more(channel, stream, consumed)
        assert before == b"later"
        channel.cancel()


def read_one_more(channel: BlockingChannel, stream: str, consumed: Any) -> bytes:
    """Publishes one message, and returns what a consumer that waits at the end then gets."""
    channel.basic_publish("", stream, b"later")
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        method, _, body = next(consumed)
        if method is not None:
            channel.basic_ack(method.delivery_tag)
            return body
    raise AssertionError("nothing came")


def test_acknowledgements_give_credit(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    stream = declare(channel, name("s"))
    fill(channel, stream, 30)
    got: list[int] = []
    tags: list[int] = []

    def take(_: object, method: Any, __: object, body: bytes) -> None:
        got.append(int(body))
        tags.append(method.delivery_tag)

    channel.basic_consume(stream, take, arguments={"x-stream-offset": "first"})
    until(channel, lambda: len(got) == 10)
    channel.connection.process_data_events(0.3)
    assert got == list(range(10))
    channel.basic_ack(tags[3], multiple=True)
    until(channel, lambda: len(got) == 14)
    channel.basic_ack(tags[-1], multiple=True)
    until(channel, lambda: len(got) == 24)
    assert got == list(range(24))


def until(channel: BlockingChannel, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        channel.connection.process_data_events(0.02)


def code_of(attempt: Callable[[], object], connection: pika.BlockingConnection) -> int:
    """Returns the reply code with which the daemon refuses."""
    end = time.monotonic() + PATIENCE_S
    try:
        attempt()
        while time.monotonic() < end:
            connection.process_data_events(0.02)
    except (ChannelClosedByBroker, ConnectionClosedByBroker) as refused:
        return int(refused.reply_code)
    return 0


@pytest.mark.parametrize(
    ("code", "attempt"),
    [
        (406, lambda c, q: c.basic_qos(prefetch_count=0) or c.basic_consume(q, print)),
        (406, lambda c, q: c.basic_consume(q, print, arguments={"x-stream-offset": "soon"})),
        (406, lambda c, q: c.basic_consume(q, print, arguments={"x-stream-offset": -1})),
        (540, lambda c, q: c.basic_consume(q, print, auto_ack=True)),
        (540, lambda c, q: c.basic_get(q)),
        (540, lambda c, q: c.queue_purge(q)),
        (540, lambda c, q: c.queue_delete(q, if_empty=True)),
        (540, lambda c, q: c.queue_delete(q, if_unused=True)),
        (406, lambda c, q: c.queue_declare(q, durable=True)),
        (406, lambda c, q: c.queue_declare(q + "x", durable=True, exclusive=True, arguments=STREAM)),
        (406, lambda c, q: c.queue_declare(q + "x", durable=True, auto_delete=True, arguments=STREAM)),
        (406, lambda c, q: c.queue_declare(q + "x", durable=False, arguments=STREAM)),
        (406, lambda c, q: c.queue_declare("", durable=True, arguments=STREAM)),
        (406, lambda c, q: declare(c, q + "x", **{"x-max-priority": 3})),
        (406, lambda c, q: declare(c, q + "x", **{"x-message-ttl": 3})),
        (406, lambda c, q: declare(c, q + "x", **{"x-max-length": 3})),
        (406, lambda c, q: declare(c, q + "x", **{"x-max-age": "soon"})),
    ],
)
def test_what_streams_refuse(
    host: DaemonProcess,
    name: Callable[[str], str],
    code: int,
    attempt: Callable[[BlockingChannel, str], object],
) -> None:
    connection = dial(host)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    stream = declare(channel, name("s"))
    assert code_of(lambda: attempt(channel, stream), connection) == code
    if connection.is_open:
        connection.close()


def test_a_nack_is_not_for_streams(host: DaemonProcess, name: Callable[[str], str]) -> None:
    connection = dial(host)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    channel.confirm_delivery()
    stream = declare(channel, name("s"))
    fill(channel, stream, 1)
    method, _, _ = next(channel.consume(stream, arguments={"x-stream-offset": "first"}))
    assert code_of(lambda: channel.basic_nack(method.delivery_tag), connection) == 540


# --- Kafka


def test_kafka_reads_what_amqp_writes(
    host: DaemonProcess, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    stream = declare(channel, name("s"), **{"x-max-age": "7D", "x-max-length-bytes": 10_000_000})
    headers = pika.BasicProperties(content_type="text/plain", headers={"n": 1})
    channel.basic_publish("", stream, b"of amqp", headers)
    consumer = Consumer(
        {"bootstrap.servers": host.kafka, "group.id": name("g"), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([stream])
    record = consumer.poll(PATIENCE_S)
    while record is not None and record.error():
        record = consumer.poll(PATIENCE_S)
    consumer.close()
    assert record is not None
    assert (record.value(), record.key(), record.offset(), record.partition()) == (b"of amqp", None, 0, 0)
    shown = dict(record.headers())
    assert (shown["amqp.key"], shown["amqp.exchange"]) == (stream.encode(), b"")
    assert (shown["mqtt.content-type"], shown["n"]) == (b"text/plain", b"1")


def test_amqp_reads_what_kafka_writes(
    host: DaemonProcess, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    topic = name("t")
    admin = AdminClient({"bootstrap.servers": host.kafka})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": host.kafka})
    for number in range(100):
        producer.produce(topic, b"%d" % number, b"key", headers={"h": b"v"})
    assert producer.flush(PATIENCE_S) == 0
    declare(channel, topic)
    found = read(channel, topic, 100)
    assert bodies(found) == list(range(100))
    assert found[7].properties.headers == {"h": "v", "x-stream-offset": 7}
    channel.queue_delete(topic)
    assert topic in AdminClient({"bootstrap.servers": host.kafka}).list_topics(topic, PATIENCE_S).topics


def test_a_stream_takes_its_topic_with_it(
    host: DaemonProcess, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    stream = declare(channel, name("s"))
    fill(channel, stream, 3)
    cancelled: list[object] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume(stream, print)
    other = dial(host)
    other.channel().queue_delete(stream)
    other.close()
    until(channel, lambda: bool(cancelled))
    admin = AdminClient({"bootstrap.servers": host.kafka})
    until(channel, lambda: stream not in admin.list_topics(timeout=PATIENCE_S).topics)
    declare(channel, stream)
    fill(channel, stream, 1, 9)
    assert bodies(read(channel, stream, 1)) == [9]


def test_a_topic_with_partitions_is_no_stream(
    host: DaemonProcess, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    topic = name("t")
    admin = AdminClient({"bootstrap.servers": host.kafka})
    admin.create_topics([NewTopic(topic, 2)])[topic].result()
    with pytest.raises(ChannelClosedByBroker) as refused:
        declare(channel, topic)
    assert refused.value.reply_code == 406
    assert "has 2 partitions" in refused.value.reply_text


def test_what_amq_topic_routes_into_a_stream_is_there_once(
    host: DaemonProcess, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    """Also where the stream's own topic matches the binding, and another stream's."""
    first, second = declare(channel, name("s")), declare(channel, name("s"))
    for stream in (first, second):
        channel.queue_bind(stream, "amq.topic", "#")
    channel.basic_publish("amq.topic", first, b"1")
    channel.basic_publish("amq.topic", name("other"), b"2")
    channel.basic_publish("", first, b"3")
    assert sorted(bodies(read(channel, first, 3))) == [1, 2, 3]
    assert sorted(bodies(read(channel, second, 2))) == [1, 2]
    for stream in (first, second):
        consumed = channel.consume(stream, inactivity_timeout=0.5)
        assert next(consumed)[0] is None
        channel.cancel()


def test_after_a_topic_is_gone_publishes_are_refused(
    host: DaemonProcess, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    stream = declare(channel, name("s"))
    admin = AdminClient({"bootstrap.servers": host.kafka})
    admin.delete_topics([stream])[stream].result()
    with pytest.raises(NackError):
        channel.basic_publish("", stream, b"x")
    declare(channel, stream)
    fill(channel, stream, 1)


# --- restarts and other hosts


@pytest.mark.parametrize("kill", [False, True])
def test_a_stream_outlives_its_daemon(tmp_path, name: Callable[[str], str], kill: bool) -> None:
    flags = ["--kafka", "off", "--stare", "off", "--mqtt", "off", "--admin", "off"]
    with DaemonProcess(tmp_path / "data", flags) as daemon:
        connection = dial(daemon)
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel, "s")
        fill(channel, "s", 100)
        if kill:
            daemon.kill()
            with suppress(AMQPConnectionError):
                connection.close()
        else:
            connection.close()
            daemon.stop()
        daemon.start()
        connection = dial(daemon)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=7)
        channel.queue_declare("s", passive=True)
        fill(channel, "s", 10, 100)
        assert bodies(read(channel, "s", 110)) == list(range(110))
        assert bodies(read(channel, "s", 10, 100)) == list(range(100, 110))
        connection.close()


def test_a_stream_of_another_host(tmp_path) -> None:
    with two_hosts(tmp_path) as (first, second):
        connection = dial(first)
        declare(connection.channel(), "s")
        other = dial(second)
        channel = other.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=5)
        declare(channel, "s")  # as RabbitAdmin of Spring does at each start
        fill(channel, "s", 40)
        assert bodies(read(channel, "s", 40)) == list(range(40))
        assert bodies(read(channel, "s", 10, 30)) == list(range(30, 40))
        connection.close()
        other.close()
