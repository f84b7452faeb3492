"""pika's tables with fields of all types, in headers exchanges: over a kill, and at two daemons."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.clients.amqp.conftest import FACES, two_hosts

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 30.0
VALUES: tuple[object, ...] = (
    Decimal("1.5"),
    Decimal(-3),
    Decimal("0.01"),
    datetime(2024, 1, 1),
    b"\xff\x00",
    b"text",
    [1, "a", Decimal("1.5"), [b""]],
    {"k": Decimal("2.5"), "t": datetime(2024, 1, 1)},
    True,
    1,
    1 << 40,
    -5,
    "é",
    "",
    [],
    {},
    None,
)


@contextmanager
def channel_at(daemon: DaemonProcess) -> Iterator[BlockingChannel]:
    where, port = daemon.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(where, port, heartbeat=0))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        if connection.is_open:
            connection.close()


def bind(channel: BlockingChannel, queue: str, value: object) -> None:
    channel.queue_bind(queue, "headers", arguments={"x-match": "all", "v": value})


def publish(channel: BlockingChannel, value: object) -> None:
    channel.basic_publish("headers", "", b"x", pika.BasicProperties(headers={"v": value}, delivery_mode=2))


def come(channel: BlockingChannel, queue: str) -> int:
    """Returns how many messages there are, once there are any, and takes them."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if channel.queue_declare(queue, passive=True).method.message_count:
            break
        channel.connection.process_data_events(0.02)
    return channel.queue_purge(queue).method.message_count


def test_bindings_with_all_values_match_after_a_kill(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path / "data", FACES) as daemon:
        with channel_at(daemon) as channel:
            channel.exchange_declare("headers", "headers", durable=True, arguments={"x-mine": VALUES[0]})
            for number, value in enumerate(VALUES):
                channel.queue_declare(f"q{number}", durable=True, arguments={"x-mine": value})
                bind(channel, f"q{number}", value)
        for _ in range(2):
            daemon.kill()
            daemon.restart()
            with channel_at(daemon) as channel:
                for number, value in enumerate(VALUES[:-1]):  # None matches any value
                    publish(channel, value)
                    assert come(channel, f"q{number}") == 1, value
        with channel_at(daemon) as channel:
            for number, value in enumerate(VALUES):
                channel.queue_unbind(f"q{number}", "headers", arguments={"x-match": "all", "v": value})
            for value in VALUES:
                publish(channel, value)
            left = [channel.queue_purge(f"q{number}").method.message_count for number in range(len(VALUES))]
            assert left == [0] * (len(VALUES) - 1) + [2 * (len(VALUES) - 1)]


def test_bindings_with_all_values_match_at_every_host(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as hosts, ExitStack() as stack:
        both = [stack.enter_context(channel_at(host)) for host in hosts]
        both[0].exchange_declare("headers", "headers", durable=True)
        for home, other in (both, both[::-1]):
            home.queue_declare("q", durable=True)
            for value in VALUES:
                bind(home, "q", value)
                for origin in both:
                    publish(origin, value)
                    assert come(home, "q") == 1, value
                other.queue_unbind("q", "headers", arguments={"x-match": "all", "v": value})
                for origin in both:
                    publish(origin, value)
            other.queue_declare("last", durable=True)
            bind(other, "last", True)
            for channel in both:  # what would still match is there before the last one is
                publish(channel, True)
                assert come(other, "last") == 1
            assert home.queue_delete("q").method.message_count == 0
            home.queue_delete("last")
