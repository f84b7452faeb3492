"""pika, unmodified: its blocking connection, and its connections on select and asyncio."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.select_connection import SelectConnection
from pika.exceptions import ChannelClosedByBroker, NackError, ProbableAuthenticationError, UnroutableError

from treecast.middleware.daemon.process import DaemonProcess
from treecast.shims.amqp import BlockingConnection

pytestmark = pytest.mark.clients

PATIENCE_S = 45.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def channel(parameters: pika.ConnectionParameters) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(parameters) as connection:
        yield connection.channel()


def take(
    channel: BlockingChannel, queue: str, count: int, *, ack: bool = True
) -> list[tuple[bytes, Any, Any]]:
    """Returns (body, method, properties) of `count` messages."""
    found: list[tuple[bytes, Any, Any]] = []
    for method, properties, body in channel.consume(queue, auto_ack=False, inactivity_timeout=PATIENCE_S):
        if method is None:
            pytest.fail(f"only {len(found)} of {count} messages came")
        found.append((body, method, properties))
        if ack:
            channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_confirms_returns_and_consuming(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    queue = name("q")
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish("", queue, b"%d" % number, PERSISTENT, mandatory=True)
    with pytest.raises(UnroutableError):
        channel.basic_publish("", name("nowhere"), b"x", mandatory=True)
    properties = pika.BasicProperties(
        content_type="text/plain",
        headers={"n": 1, "nested": {"list": [1, "two", None, True]}},
        correlation_id="c",
        priority=3,
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
    )
    channel.basic_publish("", queue, bytes(300_000), properties)
    found = take(channel, queue, 51)
    assert [body for body, _, _ in found[:50]] == [b"%d" % number for number in range(50)]
    assert found[50][0] == bytes(300_000)
    assert vars(found[50][2]) == vars(properties)


def test_exchanges_of_all_types(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    keys = {"direct": "k", "topic": "a.*.#", "fanout": "", "headers": ""}
    for kind, key in keys.items():
        exchange, queue = name(kind), name("q")
        channel.exchange_declare(exchange, kind)
        channel.queue_declare(queue, durable=True)
        arguments = {"x-match": "all", "h": "v"} if kind == "headers" else None
        channel.queue_bind(queue, exchange, key, arguments)
        headers = pika.BasicProperties(headers={"h": "v"})
        channel.basic_publish(exchange, {"direct": "k", "topic": "a.b.c.d"}.get(kind, "any"), b"yes", headers)
        channel.basic_publish(exchange, {"topic": "b.a"}.get(kind, "none"), b"no", pika.BasicProperties())
        found = [body for body, _, _ in take(channel, queue, 2 if kind == "fanout" else 1)]
        assert found == ([b"yes", b"no"] if kind == "fanout" else [b"yes"])
        assert channel.queue_declare(queue, passive=True).method.message_count == 0


def test_dead_letters_say_why(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    dead, queue = name("dead"), name("q")
    channel.queue_declare(dead, durable=True)
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(queue, durable=True, arguments={**to_dead, "x-max-length": 2, "x-message-ttl": 300})
    for number in range(3):
        channel.basic_publish("", queue, b"%d" % number, PERSISTENT)
    method, _, body = channel.basic_get(queue)
    assert body == b"1"
    channel.basic_reject(method.delivery_tag, requeue=False)
    found = {
        body: properties.headers["x-death"][0]["reason"] for body, _, properties in take(channel, dead, 3)
    }
    assert found == {b"0": "maxlen", b"1": "rejected", b"2": "expired"}


def test_a_full_queue_refuses(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    queue = name("q")
    channel.queue_declare(queue, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"first")
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"second")


def test_a_transaction(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    queue = name("q")
    channel.queue_declare(queue, durable=True)
    channel.tx_select()
    channel.basic_publish("", queue, b"rolled back")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"committed")
    assert channel.basic_get(queue)[0] is None
    channel.tx_commit()
    assert channel.basic_get(queue)[2] == b"committed"
    channel.tx_commit()


def test_direct_replies(parameters: pika.ConnectionParameters, name: Callable[[str], str]) -> None:
    queue = name("rpc")
    with pika.BlockingConnection(parameters) as asking, pika.BlockingConnection(parameters) as answering:
        server, client = answering.channel(), asking.channel()
        server.queue_declare(queue, durable=True)

        def answer(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            channel.basic_publish("", properties.reply_to, body * 2)

        server.basic_consume(queue, answer, auto_ack=True)
        got: list[bytes] = []
        client.queue_declare("amq.rabbitmq.reply-to", passive=True)  # as FastStream does
        client.basic_consume("amq.rabbitmq.reply-to", lambda *given: got.append(given[3]), auto_ack=True)
        client.basic_publish("", queue, b"x", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
        for _ in range(450):
            answering.process_data_events(0.05)
            asking.process_data_events(0.05)
            if got:
                break
        assert got == [b"xx"]


def test_refusals(parameters: pika.ConnectionParameters, name: Callable[[str], str]) -> None:
    queue = name("q")
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        for code, refuse in (
            (404, lambda on: on.queue_declare(name("missing"), passive=True)),
            (406, lambda on: on.queue_declare(queue, durable=True, arguments={"x-max-length": 1})),
            (403, lambda on: on.queue_declare("amq.mine", durable=True)),
            (403, lambda on: on.exchange_delete("amq.topic")),
        ):
            with pytest.raises(ChannelClosedByBroker) as refused:
                refuse(connection.channel())
            assert refused.value.reply_code == code
    wrong = pika.PlainCredentials("guest", "wrong")
    with pytest.raises(ProbableAuthenticationError):
        pika.BlockingConnection(
            pika.ConnectionParameters(parameters.host, parameters.port, credentials=wrong)
        )


class Exchange:
    """A client with callbacks: publishes `COUNT` messages with confirms, consumes them, and closes."""

    COUNT = 100

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.confirmed = 0
        self.got: list[bytes] = []
        self.closed = ""
        self.ended: Callable[[], None] = lambda: None

    def opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self.on_channel)

    def on_channel(self, channel: Any) -> None:
        self.channel = channel
        channel.queue_declare(self.queue, durable=True, callback=self.on_declared)

    def on_declared(self, _: Any) -> None:
        self.channel.confirm_delivery(self.on_confirm, callback=self.on_confirming)

    def on_confirming(self, _: Any) -> None:
        self.channel.basic_qos(prefetch_count=7)
        self.channel.basic_consume(self.queue, self.on_message)
        for number in range(self.COUNT):
            self.channel.basic_publish("", self.queue, b"%d" % number, PERSISTENT)

    def on_confirm(self, frame: Any) -> None:
        self.confirmed = max(self.confirmed, frame.method.delivery_tag)
        self.finish()

    def on_message(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        self.got.append(body)
        channel.basic_ack(method.delivery_tag)
        self.finish()

    def finish(self) -> None:
        if self.confirmed == self.COUNT and len(self.got) == self.COUNT:
            self.channel.connection.close()

    def on_closed(self, _: Any, reason: Any) -> None:
        self.closed = str(reason)
        self.ended()

    def check(self) -> None:
        assert self.got == [b"%d" % number for number in range(self.COUNT)]
        assert "200" in self.closed


def test_select_connection(parameters: pika.ConnectionParameters, name: Callable[[str], str]) -> None:
    exchange = Exchange(name("q"))
    connection = SelectConnection(
        parameters, on_open_callback=exchange.opened, on_close_callback=exchange.on_closed
    )
    exchange.ended = connection.ioloop.stop
    watchdog = threading.Timer(
        PATIENCE_S, functools.partial(connection.ioloop.add_callback_threadsafe, connection.ioloop.stop)
    )
    watchdog.start()
    connection.ioloop.start()
    watchdog.cancel()
    exchange.check()


async def test_asyncio_connection(parameters: pika.ConnectionParameters, name: Callable[[str], str]) -> None:
    exchange = Exchange(name("q"))
    ended = asyncio.Event()
    exchange.ended = ended.set
    AsyncioConnection(parameters, on_open_callback=exchange.opened, on_close_callback=exchange.on_closed)
    await asyncio.wait_for(ended.wait(), PATIENCE_S)
    exchange.check()


def test_the_drop_in_finds_the_daemon(
    amqp: DaemonProcess, name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREECAST_AMQP", amqp.ready["amqp"])
    with BlockingConnection() as connection:
        channel, queue = connection.channel(), name("q")
        channel.queue_declare(queue, durable=True)
        channel.basic_publish("", queue, b"x")
        assert take(channel, queue, 1)[0][0] == b"x"


def test_what_was_confirmed_is_there_after_a_kill(start_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = start_daemon("--kafka", "off", "--mqtt", "off")
    host, port = daemon.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("e", "topic", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "e", "#")
    for number in range(200):
        channel.basic_publish("e", "k", b"%d" % number, PERSISTENT)
    channel.basic_qos(prefetch_count=20)
    handed = take(channel, "q", 20, ack=False)
    channel.basic_ack(handed[9][1].delivery_tag, multiple=True)
    channel.queue_declare("q", passive=True)  # the reply shows that everything sent before is done
    daemon.kill()
    daemon.restart()
    host, port = daemon.address("amqp")
    with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as again:
        channel = again.channel()
        found = take(channel, "q", 190)
        assert [body for body, _, _ in found] == [b"%d" % number for number in range(10, 200)]
        assert all(method.redelivered for _, method, _ in found[:10])
        assert not found[-1][1].redelivered
        channel.basic_publish("e", "k", b"after", PERSISTENT)
        assert take(channel, "q", 1)[0][0] == b"after"
