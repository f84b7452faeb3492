"""Queues of a host whose AMQP face is off: clients of other hosts use them as before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.clients.mqtt.paho_client import Newer
from tests.pair import pair

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)
FLAGS = ("--kafka", "off", "--admin", "off", "--stare", "off")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    with pair(tmp_path, FLAGS) as both:
        yield both


def channel_at(daemon: DaemonProcess) -> BlockingChannel:
    channel = pika.BlockingConnection(pika.ConnectionParameters(*daemon.address("amqp"))).channel()
    channel.confirm_delivery()
    return channel


def take(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """The bodies of so many messages. Their home may still be on its way up."""
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        try:
            method, _, body = channel.basic_get(queue, auto_ack=True)
        except pika.exceptions.ChannelClosedByBroker:
            channel = channel.connection.channel()
            method, body = None, b""
        if method is None:
            channel.connection.process_data_events(0.05)
        else:
            found.append(body)
    return found


def bind_lights(home: DaemonProcess) -> None:
    """Declares a durable queue `lights` there, which gets what is published below `light`."""
    there = channel_at(home)
    there.queue_declare("lights", durable=True)
    there.queue_bind("lights", "amq.topic", "light.#")
    there.connection.close()


def stopped(home: DaemonProcess, *flags: str) -> DaemonProcess:
    """Ends a host in order. It starts with these flags too."""
    assert home.stop() == 0
    home.flags += flags
    return home


def test_a_home_without_the_face_hands_out_takes_in_and_lets_expire(
    hosts: tuple[DaemonProcess, DaemonProcess],
) -> None:
    here, home = hosts
    there = channel_at(home)
    there.queue_declare("kept", durable=True)
    dead = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "kept"}
    there.queue_declare("brief", durable=True, arguments=dead)
    there.basic_publish("", "kept", b"before", PERSISTENT)
    there.connection.close()
    stopped(home, "--amqp", "off").start()
    channel = channel_at(here)
    assert take(channel, "kept", 1) == [b"before"]
    channel.connection.close()
    channel = channel_at(here)  # `take` may have lost the first one
    channel.basic_publish("", "kept", b"after", PERSISTENT)
    channel.basic_publish("", "brief", b"died", PERSISTENT)
    assert sorted(take(channel, "kept", 2)) == [b"after", b"died"]
    channel.connection.close()


def test_what_the_other_faces_of_such_a_home_publish_is_queued(
    hosts: tuple[DaemonProcess, DaemonProcess],
) -> None:
    here, home = hosts
    bind_lights(home)
    stopped(home, "--amqp", "off").start()
    client = Newer(home, "sensor")
    client.publish("light/kitchen", b"on", qos=1)
    client.close()
    channel = channel_at(here)
    assert take(channel, "lights", 1) == [b"on"]
    channel.connection.close()


def test_a_home_that_ends_in_order_gets_what_was_published_while_it_was_away(
    hosts: tuple[DaemonProcess, DaemonProcess],
) -> None:
    here, home = hosts
    bind_lights(home)
    client = Newer(here, "sensor")
    client.publish("light/kitchen", b"there", qos=1)
    stopped(home)
    client.publish("light/kitchen", b"away", qos=1)
    home.start()
    client.publish("light/kitchen", b"back", qos=1)
    client.close()
    channel = channel_at(here)
    assert take(channel, "lights", 3) == [b"there", b"away", b"back"]
    channel.connection.close()
