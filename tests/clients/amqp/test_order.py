"""pika: what consumers have not settled when they end comes to the next one before what is behind it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.clients.amqp.conftest import two_hosts

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60.0
NUMBERS = [str(number) for number in range(8)]
HELD = 3  # messages that the first consumer has not settled
Got = list[tuple[str, bool]]


@contextmanager
def channel_at(daemon: DaemonProcess) -> Iterator[BlockingChannel]:
    where, port = daemon.address("amqp")
    connection = pika.BlockingConnection(pika.ConnectionParameters(where, port, heartbeat=0))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        with suppress(pika.exceptions.AMQPError):
            if connection.is_open:
                connection.close()


def consume(channel: BlockingChannel, queue: str, *, settles: bool) -> Got:
    """Consumes with a small prefetch. Returns what will come: (body, redelivered)."""
    got: Got = []

    def come(at: BlockingChannel, method: pika.spec.Basic.Deliver, _: object, body: bytes) -> None:
        got.append((body.decode(), method.redelivered))
        if settles:
            at.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=HELD)
    channel.basic_consume(queue, come)
    return got


def wait_for(channel: BlockingChannel, got: Got, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < deadline:
        channel.connection.process_data_events(0.05)


def close(channel: BlockingChannel) -> None:
    channel.connection.close()


def drop(channel: BlockingChannel) -> None:
    channel.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)


def fail_over(
    home: BlockingChannel,
    first: BlockingChannel,
    second: BlockingChannel,
    kind: str,
    ends: Callable[[BlockingChannel], object],
) -> None:
    """The second consumer gets all messages in order after `ends`."""
    queue = f"{kind}-{ends.__name__}"
    arguments = {"x-single-active-consumer": True, "x-queue-type": kind}
    home.queue_declare(queue, durable=True, arguments=arguments)
    held = consume(first, queue, settles=False)
    got = consume(second, queue, settles=True)
    for number in NUMBERS:
        home.basic_publish("", queue, number.encode(), pika.BasicProperties(delivery_mode=2))
    wait_for(first, held, HELD)
    assert held == [(number, False) for number in NUMBERS[:HELD]]
    ends(first)
    wait_for(second, got, len(NUMBERS))
    assert got == [(number, at < HELD) for at, number in enumerate(NUMBERS)]


KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


@KINDS
@pytest.mark.parametrize("ends", [close, drop])
def test_a_single_active_consumer_ends(
    amqp: DaemonProcess, kind: str, ends: Callable[[BlockingChannel], object]
) -> None:
    with channel_at(amqp) as home, channel_at(amqp) as first, channel_at(amqp) as second:
        fail_over(home, first, second, kind, ends)


@KINDS
@pytest.mark.parametrize("ends", [close, drop])
def test_a_single_active_consumer_of_another_host_ends(
    hosts: list[DaemonProcess], kind: str, ends: Callable[[BlockingChannel], object]
) -> None:
    a, b = hosts
    with channel_at(a) as home, channel_at(b) as first, channel_at(a) as second:
        fail_over(home, first, second, kind, ends)


def test_the_host_of_a_single_active_consumer_is_killed(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (a, b):
        for kind in ("classic", "quorum"):
            with channel_at(a) as home, channel_at(b) as first, channel_at(a) as second:

                def kill(_: BlockingChannel) -> None:
                    b.kill()

                fail_over(home, first, second, kind, kill)
            b.restart()


def test_an_exclusive_consumer_of_a_queue_with_a_single_active_one_is_refused(
    hosts: list[DaemonProcess],
) -> None:
    with channel_at(hosts[0]) as home:
        home.queue_declare("sac", durable=True, arguments={"x-single-active-consumer": True})
    for host in hosts:
        with channel_at(host) as channel, pytest.raises(pika.exceptions.ChannelClosedByBroker) as info:
            channel.basic_consume("sac", lambda *_: None, exclusive=True)
        assert info.value.reply_code == 403


@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("at", [0, 1])
def test_a_multiple_return_into_a_full_queue_keeps_its_limit(
    hosts: list[DaemonProcess], length: int, at: int
) -> None:
    queue = f"limit-{length}-{at}"
    with channel_at(hosts[0]) as home, channel_at(hosts[at]) as channel:
        home.queue_declare(queue, durable=True, arguments={"x-max-length": length})
        for _ in range(length):
            home.basic_publish("", queue, b"old")
        tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(length)]
        for _ in range(length):
            home.basic_publish("", queue, b"new")
        channel.basic_nack(tags[0], multiple=False, requeue=True)
        if length > 1:
            channel.basic_nack(tags[-1], multiple=True, requeue=True)
        assert channel.queue_declare(queue, passive=True).method.message_count == length
        assert channel.basic_get(queue)[2] == b"new"


def is_there(daemon: DaemonProcess, queue: str) -> bool:
    """Looks without renewing it."""
    with channel_at(daemon) as channel:
        try:
            channel.queue_purge(queue)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        return True


@pytest.mark.parametrize("at", [0, 1])
def test_passive_declarations_keep_a_queue_that_expires(hosts: list[DaemonProcess], at: int) -> None:
    """A pause between two of them may be long on a busy machine: what counts is that the queue lives longer
    than its lease, and not without them."""
    queue = f"lease-{at}"
    with channel_at(hosts[0]) as home, channel_at(hosts[at]) as channel:
        home.queue_declare(queue, durable=True, arguments={"x-expires": 4000})
        for _ in range(28):
            channel.queue_declare(queue, passive=True)
            channel.connection.process_data_events(0.25)
        deadline = time.monotonic() + PATIENCE_S
        while is_there(hosts[1 - at], queue):
            assert time.monotonic() < deadline
            channel.connection.process_data_events(0.25)
