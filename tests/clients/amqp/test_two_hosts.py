"""pika at two daemons of one cluster: queues of one host, used from the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel
from tests.clients.amqp.conftest import two_hosts
from tests.fault.amqp_wire import Wire, content, method

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.v1 import daemon_pb2 as pb
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


class Consumed:
    """A consumer. `got`: (delivery tag, body, redelivered) of each delivery."""

    def __init__(self, channel: BlockingChannel, queue: str, no_ack: bool = False) -> None:
        self.channel = channel
        self.got: list[tuple[int, bytes, bool]] = []
        self.tag = channel.basic_consume(queue, self._take, auto_ack=no_ack)

    def _take(self, channel: object, method: pika.spec.Basic.Deliver, _: object, body: bytes) -> None:
        self.got.append((method.delivery_tag, body, method.redelivered))

    def wait(self, count: int) -> list[bytes]:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.got) < count and time.monotonic() < deadline:
            self.channel.connection.process_data_events(0.02)
        assert len(self.got) >= count
        return [body for _, body, _ in self.got]

    def rest(self) -> None:
        """Lets come what comes, up to the answer of another call."""
        self.channel.connection.process_data_events(0.1)


def filled(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    channel.queue_declare(queue, durable=True)
    bodies = [b"%d" % number for number in range(count)]
    for body in bodies:
        channel.basic_publish("", queue, body, PERSISTENT, mandatory=True)
    return bodies


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_consumer_at_the_other_host(
    first: BlockingChannel, second: BlockingChannel, name: Callable[[str], str], no_ack: bool
) -> None:
    queue = name("queue")
    bodies = filled(first, queue, 3000)
    consumed = Consumed(second, queue, no_ack)
    assert consumed.wait(len(bodies)) == bodies
    assert first.queue_declare(queue, passive=True).method.consumer_count == 1
    if not no_ack:
        second.basic_ack(consumed.got[-1][0], multiple=True)
    second.basic_cancel(consumed.tag)
    assert second.queue_declare(queue, passive=True).method.message_count == 0
    second.queue_delete(queue, if_empty=True)


def test_prefetch_holds_across_hosts(
    hosts: list[DaemonProcess], first: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("queue")
    bodies = filled(first, queue, 10)
    with channel_at(hosts[1], prefetch=3) as far:
        consumed = Consumed(far, queue)
        assert consumed.wait(3) == bodies[:3]
        consumed.rest()
        assert len(consumed.got) == 3
        assert first.queue_declare(queue, passive=True).method.message_count == 7
        far.basic_ack(consumed.got[0][0])
        assert consumed.wait(4) == bodies[:4]
        far.basic_nack(consumed.got[1][0], requeue=True)
        consumed.wait(5)
        assert consumed.got[4][1:] == (bodies[1], True)
        far.basic_reject(consumed.got[2][0], requeue=False)
        consumed.wait(6)
        consumed.rest()
        assert len(consumed.got) == 6
    assert take(first, queue, 8) == [bodies[1], *bodies[3:]]


def test_what_a_lost_consumer_had_comes_again_flagged(
    hosts: list[DaemonProcess], first: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("queue")
    bodies = filled(first, queue, 5)
    with channel_at(hosts[1]) as far:
        assert Consumed(far, queue).wait(5) == bodies
    again = Consumed(first, queue)
    assert again.wait(5) == bodies
    assert all(redelivered for _, _, redelivered in again.got)
    first.basic_ack(0, multiple=True)
    first.queue_delete(queue)


def test_a_consumer_is_cancelled_when_its_queue_is_deleted(
    first: BlockingChannel, second: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("queue")
    filled(first, queue, 1)
    consumed = Consumed(second, queue)
    consumed.wait(1)
    cancelled: list[object] = []
    second.add_on_cancel_callback(cancelled.append)
    first.queue_delete(queue)
    deadline = time.monotonic() + PATIENCE_S
    while not cancelled and time.monotonic() < deadline:
        second.connection.process_data_events(0.02)
    assert cancelled


def test_get_ack_and_reject_across_hosts(
    first: BlockingChannel, second: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("queue")
    bodies = filled(first, queue, 3)
    method, _, body = second.basic_get(queue)
    assert (body, method.message_count, method.redelivered) == (bodies[0], 2, False)
    second.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = second.basic_get(queue)
    assert (body, method.redelivered) == (bodies[0], True)
    second.basic_ack(method.delivery_tag)
    assert take(second, queue, 2) == bodies[1:]
    assert take(first, queue, 0) == []


def test_a_get_in_the_same_chunk_as_a_nack_returns_the_message_again(
    hosts: list[DaemonProcess], first: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("queue")
    bodies = filled(first, queue, 2)
    get = method(commands.Basic.Get(queue=queue))
    wire = Wire(hosts[1].address("amqp")).open()
    wire.send(get)
    got, body = wire.get()
    assert (body, got.redelivered) == (bodies[0], False)
    wire.send(method(commands.Basic.Nack(got.delivery_tag)) + get)
    got, body = wire.get()
    assert (body, got.redelivered) == (bodies[0], True)
    wire.close()


def test_a_queue_whose_home_is_away(tmp_path: Path, name: Callable[[str], str]) -> None:
    """Publishers go on and are confirmed; consumers are refused, and cancelled; all comes when it is back."""
    with two_hosts(tmp_path) as (home, origin):
        queue = name("queue")
        home.pin_ports()
        with channel_at(home) as channel:
            bodies = filled(channel, queue, 3)
        with channel_at(origin) as channel:
            consumed = Consumed(channel, queue)
            consumed.wait(3)
            cancelled: list[object] = []
            channel.add_on_cancel_callback(cancelled.append)
            home.kill()
            deadline = time.monotonic() + PATIENCE_S
            while not cancelled and time.monotonic() < deadline:
                channel.connection.process_data_events(0.02)
            assert cancelled
            more = [b"spooled %d" % number for number in range(500)]
            for body in more:
                channel.basic_publish("", queue, body, PERSISTENT, mandatory=True)
            with channel_at(origin) as other:
                code, text = refused(lambda: other.queue_declare(queue, passive=True))
            assert (code, "is down or inaccessible" in text) == (404, True)
        origin.kill()  # the spool is on disk
        origin.restart()
        home.restart()
        with channel_at(home) as channel:
            again = Consumed(channel, queue)
            assert again.wait(503) == bodies + more
            assert [redelivered for _, _, redelivered in again.got] == [True] * 3 + [False] * 500
            channel.basic_ack(0, multiple=True)


def test_which_host_gets_a_message(
    hosts: list[DaemonProcess], second: BlockingChannel, name: Callable[[str], str]
) -> None:
    exchange, queue = name("exchange"), name("queue")
    second.exchange_declare(exchange, "headers", durable=True)
    second.queue_declare(queue, durable=True)
    second.queue_bind(queue, exchange, "", {"x-match": "all", "colour": "blue"})
    with DaemonClient(hosts[0].ready["control"]) as client:

        def to(**message: Any) -> list[tuple[list[str], str, str, str]]:
            found = client.explain(pb.ExplainRequest(**message)).ways
            return [(list(way.hosts), way.carrier, way.address, way.why) for way in found]

        other = (["b"], "channel", hosts[1].ready["fabric"], f"queues: {queue}")
        assert to(exchange=exchange) == []
        assert to(exchange=exchange, headers={"colour": "red"}) == []
        assert to(exchange=exchange, headers={"colour": "blue"}) == [other]
        assert to(exchange="", key=queue) == [other]


CHEAP = "price < 50 and headers.unit == EUR"
PRICES = [(40, "EUR"), (60, "EUR"), (30, "USD"), (20, "EUR")]


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers", "amq.topic"])
@pytest.mark.parametrize("publisher", [0, 1])
def test_a_binding_with_a_filter_passes_exactly_its_messages(
    hosts: list[DaemonProcess], name: Callable[[str], str], kind: str, publisher: int
) -> None:
    """Also of those that come in one chunk, and beside a binding without a filter."""
    with channel_at(hosts[0]) as home, channel_at(hosts[publisher]) as channel:
        exchange, key = name("exchange"), name("key").replace(".", "-")
        if kind == "amq.topic":
            exchange = kind
        else:
            home.exchange_declare(exchange, kind, durable=True)
        some, every = name("some"), name("every")
        for queue, arguments in ((some, {"x-treecast-filter": CHEAP}), (every, {})):
            home.queue_declare(queue, durable=True)
            home.queue_bind(queue, exchange, key, arguments)
        for price, unit in PRICES:
            properties = pika.BasicProperties(delivery_mode=2, headers={"unit": unit})
            channel.basic_publish(exchange, key, b'{"price": %d}' % price, properties, mandatory=True)
        assert take(home, every, 4) == [b'{"price": %d}' % price for price, _ in PRICES]
        assert take(home, some, 2) == [b'{"price": 40}', b'{"price": 20}']
        home.queue_unbind(some, exchange, key, {"x-treecast-filter": CHEAP})
        channel.basic_publish(exchange, key, b'{"price": 1}', properties)
        assert take(home, every, 1) == [b'{"price": 1}']
        assert take(home, some, 0) == []


def test_a_chunk_of_publishes_is_filtered_message_by_message(
    hosts: list[DaemonProcess], first: BlockingChannel, name: Callable[[str], str]
) -> None:
    """One whose filter no binding passes is unroutable, and comes back to who wants to know."""
    exchange, queue = name("exchange"), name("queue")
    first.exchange_declare(exchange, "direct", durable=True)
    first.queue_declare(queue, durable=True)
    first.queue_bind(queue, exchange, "k", {"x-treecast-filter": "n < 50"})
    bodies = [b'{"n": %d}' % number for number in (10, 60, 20, 70)]
    asked = commands.Basic.Publish(exchange=exchange, routing_key="k", mandatory=True)
    wire = Wire(hosts[1].address("amqp")).open()
    wire.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
    wire.send(b"".join([method(asked) + content(body, delivery_mode=2) for body in bodies]))
    for body in (bodies[1], bodies[3]):
        assert wire.expect(commands.Basic.Return).reply_code == 312
        assert wire.content() == body
    confirm = wire.expect(commands.Basic.Ack)
    assert (confirm.delivery_tag, confirm.multiple) == (4, True)
    wire.close()
    assert take(first, queue, 2) == [bodies[0], bodies[2]]


def test_a_filter_that_cannot_be_read_is_refused(first: BlockingChannel, name: Callable[[str], str]) -> None:
    exchange, queue = name("exchange"), name("queue")
    first.exchange_declare(exchange, "direct", durable=True)
    first.queue_declare(queue, durable=True)
    code, text = refused(
        lambda: first.queue_bind(queue, exchange, "k", {"x-treecast-filter": "price <"}),
    )
    assert code == 406
    assert "x-treecast-filter" in text
