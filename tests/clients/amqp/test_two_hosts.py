"""pika at two daemons of one cluster: queues of one host, used from the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextmanager
def channel_at(daemon: DaemonProcess, prefetch: int = 0) -> Iterator[BlockingChannel]:
    where, port = daemon.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(where, port))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_qos(prefetch_count=prefetch)
        yield channel
    finally:
        if connection.is_open:
            connection.close()


@pytest.fixture
def first(hosts: list[DaemonProcess]) -> Iterator[BlockingChannel]:
    with channel_at(hosts[0]) as channel:
        yield channel


@pytest.fixture
def second(hosts: list[DaemonProcess]) -> Iterator[BlockingChannel]:
    with channel_at(hosts[1]) as channel:
        yield channel


def take(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """The bodies of so many messages, and no more are there."""
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            channel.connection.process_data_events(0.02)
        else:
            found.append(body)
    assert channel.basic_get(queue)[0] is None
    return found


def refused(what: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as info:
        what()
    return info.value.reply_code, info.value.reply_text


def test_what_is_declared_at_one_host_is_known_at_the_other(
    first: BlockingChannel, second: BlockingChannel, name: Callable[[str], str]
) -> None:
    exchange, queue = name("exchange"), name("queue")
    first.exchange_declare(exchange, "topic", durable=True)
    first.queue_declare(queue, durable=True, arguments={"x-max-length": 5})
    second.exchange_declare(exchange, "topic", passive=True)
    assert second.queue_declare(queue, passive=True).method.message_count == 0
    second.queue_bind(queue, exchange, "a.#")
    first.basic_publish(exchange, "a.b", b"routed", PERSISTENT, mandatory=True)
    assert second.queue_declare(queue, durable=True, arguments={"x-max-length": 5}).method.message_count == 1
    code, text = refused(lambda: second.queue_declare(queue, durable=True))
    assert code == 406
    assert "inequivalent arg 'x-max-length'" in text


def test_what_is_deleted_at_one_host_is_gone_at_the_other(
    first: BlockingChannel, second: BlockingChannel, name: Callable[[str], str]
) -> None:
    exchange, queue = name("exchange"), name("queue")
    first.exchange_declare(exchange, "fanout", durable=True)
    first.queue_declare(queue, durable=True)
    first.queue_bind(queue, exchange)
    for number in range(3):
        first.basic_publish(exchange, "", b"%d" % number, PERSISTENT, mandatory=True)
    assert second.queue_purge(queue).method.message_count == 3
    second.exchange_delete(exchange)
    second.queue_delete(queue)
    first.exchange_declare(exchange, "direct", durable=True)
    first.queue_declare(queue, durable=True, arguments={"x-max-length": 1})
    assert refused(lambda: second.queue_declare(name("none"), passive=True))[0] == 404


def test_an_exclusive_queue_is_locked_at_other_hosts_and_reached_by_publishers(
    first: BlockingChannel, second: BlockingChannel
) -> None:
    queue = first.queue_declare("", exclusive=True).method.queue
    second.basic_publish("", queue, b"reply", mandatory=True)
    assert take(first, queue, 1) == [b"reply"]
    assert refused(lambda: second.queue_declare(queue, passive=True))[0] == 405


@pytest.mark.parametrize("persistent", [True, False])
def test_published_at_one_host_to_a_queue_of_the_other(
    first: BlockingChannel, second: BlockingChannel, name: Callable[[str], str], persistent: bool
) -> None:
    queue = name("queue")
    first.queue_declare(queue, durable=True)
    properties = pika.BasicProperties(delivery_mode=2 if persistent else 1, headers={"h": 1}, priority=3)
    bodies = [b"%d" % number for number in range(200)]
    for body in bodies:
        second.basic_publish("", queue, body, properties, mandatory=True)
    assert take(first, queue, len(bodies)) == bodies
    big = b"x" * 3_000_000
    second.basic_publish("", queue, big, properties, mandatory=True)
    deadline = time.monotonic() + PATIENCE_S
    while (got := first.basic_get(queue, auto_ack=True))[0] is None and time.monotonic() < deadline:
        first.connection.process_data_events(0.02)
    assert got[2] == big
    assert (got[1].headers, got[1].priority) == ({"h": 1}, 3)


def test_one_publish_for_queues_of_both_hosts(
    first: BlockingChannel, second: BlockingChannel, name: Callable[[str], str]
) -> None:
    exchange, one, two = name("exchange"), name("one"), name("two")
    first.exchange_declare(exchange, "fanout", durable=True)
    first.queue_declare(one, durable=True)
    second.queue_declare(two, durable=True)
    for queue in (one, two):
        second.queue_bind(queue, exchange)
    first.basic_publish(exchange, "", b"for both", PERSISTENT, mandatory=True)
    assert take(first, one, 1) == take(second, two, 1) == [b"for both"]


def test_amq_topic_reaches_queues_of_both_hosts_once(
    first: BlockingChannel, second: BlockingChannel, name: Callable[[str], str]
) -> None:
    one, two, key = name("one"), name("two"), name("key")
    first.queue_declare(one, durable=True)
    second.queue_declare(two, durable=True)
    for queue in (one, two):
        second.queue_bind(queue, "amq.topic", f"{key}.#")
    deadline = time.monotonic() + PATIENCE_S
    found: list[bytes] = []
    while not found and time.monotonic() < deadline:  # interest is told to other hosts on its own way
        first.basic_publish("amq.topic", f"{key}.probe", b"probe", PERSISTENT, mandatory=True)
        second.connection.process_data_events(0.05)
        found = [body for _, _, body in [second.basic_get(two, auto_ack=True)] if body]
    for queue, channel in ((one, first), (two, second)):
        channel.queue_purge(queue)
    first.basic_publish("amq.topic", f"{key}.real", b"real", PERSISTENT, mandatory=True)
    assert [body for body in take(second, two, 1) if body != b"probe"] == [b"real"]
    assert take(first, one, 1) == [b"real"]
