"""Bytes that leave a host for another one that wants 1 % of a topic, beside all of it.

.venv/bin/python -m bench.filtered_egress                      10,000 messages of 1,000 bytes

Two daemons of one cluster. A queue at the second is bound to a topic exchange, and an MQTT client there
subscribes, both without and then with `x-treecast-filter`. Messages are published at the first, which
filters. Everything counts that the first sends to the second from the first message until the second has
its own: channel and fabric, with heartbeats.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pika
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from treecast.middleware.daemon.process import DaemonProcess

EXCHANGE: Final = "orders"
KEY: Final = "orders.eu"
FILTER: Final = "n == 7"
PATIENCE: Final = 60.0  # seconds
MOST: Final = 1.5  # % of the topic's bytes: what the design wants
_SENT = re.compile(r"^treecast_(?:channel|fabric)_sent_bytes_total (\S+)$", re.MULTILINE)


def sent_bytes(daemon: DaemonProcess) -> float:
    """Returns what a daemon has sent to other hosts."""
    with urllib.request.urlopen(f"http://{daemon.admin}/metrics") as answer:  # nosec B310
        return sum(float(one) for one in _SENT.findall(answer.read().decode()))


def until(done: Callable[[], object], otherwise: str) -> None:
    """Waits. Ends the run with a message after a minute."""
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise SystemExit(otherwise)
        time.sleep(0.02)


def channel_to(daemon: DaemonProcess) -> pika.adapters.blocking_connection.BlockingChannel:
    return pika.BlockingConnection(pika.ConnectionParameters(*daemon.address("amqp"))).channel()


def bodies(count: int, size: int) -> list[bytes]:
    """Returns messages whose `n` is 0 to 99 in turn."""
    return [json.dumps({"n": n % 100, "text": "x" * (size - 25)}).encode() for n in range(count)]


def by_mqtt(hosts: list[DaemonProcess], messages: list[bytes], wanted: int, filter: str) -> float:
    """Returns the bytes that the first host sends while a client of the second gets its messages."""
    got: list[bytes] = []
    confirmed: list[object] = []
    there = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    there.on_message = lambda _client, _data, message: got.append(bytes(message.payload))
    there.on_subscribe = lambda *words: confirmed.append(words)
    here = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    for client, host in ((there, hosts[1]), (here, hosts[0])):
        client.connect(*host.address("mqtt"))
        client.loop_start()
    given = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]  # paho's has no types
    if filter:
        given.UserProperty = ("x-treecast-filter", filter)
    there.subscribe("orders/eu", qos=1, properties=given)
    until(lambda: confirmed, "the subscription is not confirmed")
    before = sent_bytes(hosts[0])
    for body in messages:
        here.publish("orders/eu", body, qos=1).wait_for_publish()
    until(lambda: len(got) >= wanted, f"of {wanted} messages some did not come to the client")
    after = sent_bytes(hosts[0])
    for client in (there, here):
        client.disconnect()
        client.loop_stop()
    if len(got) != wanted:
        raise AssertionError(f"the client has {len(got)} messages instead of {wanted}")
    return after - before


def by_amqp(hosts: list[DaemonProcess], name: str, messages: list[bytes], wanted: int, filter: str) -> float:
    """Returns the bytes that the first host sends while a queue of the second gets its messages."""
    here, there = channel_to(hosts[0]), channel_to(hosts[1])
    there.queue_declare(name, durable=True)
    arguments = {"x-treecast-filter": filter} if filter else None
    there.queue_bind(name, EXCHANGE, KEY, arguments=arguments)
    here.confirm_delivery()
    before = sent_bytes(hosts[0])
    for body in messages:
        here.basic_publish(EXCHANGE, KEY, body)

    def ready() -> int:
        return int(there.queue_declare(name, passive=True).method.message_count)

    until(lambda: ready() >= wanted, f"of {wanted} messages some did not come to queue {name}")
    after = sent_bytes(hosts[0])
    if (got := ready()) != wanted:
        raise AssertionError(f"queue {name} has {got} messages instead of {wanted}")
    there.queue_delete(name)
    here.connection.close()
    there.connection.close()
    return after - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000, help="a multiple of 100")
    parser.add_argument("--size", type=int, default=1000, help="bytes of a message")
    given = parser.parse_args()
    messages = bodies(given.messages, given.size)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        first = DaemonProcess(folder / "a", ("--name", "a", "--fabric", "127.0.0.1:0")).start()
        stack.callback(first.stop)
        token = ("--join-token", f"@{first.data / 'join-token'}")
        flags = ("--name", "b", "--fabric", "127.0.0.1:0", "--join", first.control, *token)
        second = DaemonProcess(folder / "b", flags).start()
        stack.callback(second.stop)
        channel = channel_to(first)
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        channel.connection.close()
        hosts, few = [first, second], len(messages) // 100
        tell(
            "AMQP",
            by_amqp(hosts, "all", messages, len(messages), ""),
            by_amqp(hosts, "some", messages, few, FILTER),
        )
        tell("MQTT", by_mqtt(hosts, messages, len(messages), ""), by_mqtt(hosts, messages, few, FILTER))
    print(f"the design wants at most {MOST} %")


def tell(face: str, whole: float, some: float) -> None:
    share = 100 * some / whole
    print(f"{face}, all: {whole:,.0f} bytes; a filter that passes 1 %: {some:,.0f} bytes, {share:.2f} %")


if __name__ == "__main__":
    main()
