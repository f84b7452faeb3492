"""The MQTT face without sockets: routing time per publish, and time per delivery.

Routing is measured with few and with very many wildcard subscriptions that do not match; a delivery from a
publisher's chunk to a subscriber's bytes and back.
"""

from __future__ import annotations

import random
import statistics
import struct
import time
from collections.abc import Callable
from typing import Any

from treecast.middleware.broker.pubsub import PubSub, PubSubSettings, Subscriber, Subscription
from treecast.middleware.model.counters import PubSubCounters
from treecast.shims.mqtt.session import Session
from treecast.shims.mqtt.session_output import Outputs
from treecast.shims.mqtt.session_publishing import MqttCounting
from treecast.shims.mqtt.sessions import Sessions
from treecast.shims.mqtt.settings import MqttSettings

FEW, MANY = 50, 50_000
_TOPICS = [b"site/%d/line/%d/temperature" % (number % 40, number) for number in range(2_000)]

CHUNK = 1_000  # publishes that are handed to a session at once
_CHUNKS = 20
_QOS_0, _QOS_1, _AGAIN = 0x30, 0x32, 0x3A


def hub(subscriptions: int) -> PubSub:
    """Returns a hub with wildcard subscriptions, ten of which match the routed topics."""
    made = PubSub(PubSubSettings(), PubSubCounters())
    for number in range(subscriptions):
        if number < 10:
            filter = (b"site/+/line/#", b"site/+/+/+/temperature")[number % 2]
        else:
            filter = (b"plant/%d/+/state", b"site/%d/door/#", b"+/%d/x")[number % 3] % (number + 1000)
        made.subscribe(Subscription(Subscriber(made.routes.next_serial()), filter))
    return made


def routing_ns(found: PubSub, remembered: bool) -> float:
    """Nanoseconds per look-up: of topics that are remembered, or of new ones."""
    look_up = found.routes.targets if remembered else found.routes.look_up
    began = time.perf_counter()
    for topic in _TOPICS:
        look_up(topic)
    return 1e9 * (time.perf_counter() - began) / len(_TOPICS)


class Pair:
    """A publisher and a subscriber of one topic, version 3.1.1, in memory."""

    def __init__(self, qos: int) -> None:
        self.outputs = Outputs(lambda: None)
        hub = PubSub(PubSubSettings(), PubSubCounters())
        sessions = Sessions(hub, MqttSettings(), random.Random(1))
        counting = MqttCounting()
        self.publisher, self.subscriber = (Session(sessions, self.outputs, counting, 0.0) for _ in range(2))
        for name, session in ((b"p", self.publisher), (b"s", self.subscriber)):
            session.receive(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01" + name, 0.0)
        self.subscriber.receive(b"\x82\x07\0\x01\0\x02a/" + bytes([qos]), 0.0)
        self.sent()

    def sent(self) -> bytes:
        """Returns the bytes sent to the subscriber in this turn."""
        sent = {output: b"".join(output.take()) for output in self.outputs.take()}
        return sent.get(self.subscriber.output, b"")


def delivery_ns(first: int) -> float:
    """Returns nanoseconds of CPU time per delivery of 100 B. Publishes arrive in chunks with the first byte
    `first`; QoS 1 is acknowledged chunk by chunk.
    """
    qos = first >> 1 & 3
    pair = Pair(qos)
    body = b"\0\x02a/%s" + b"x" * 100
    packet = [body % (struct.pack(">H", number + 1) if qos else b"") for number in range(CHUNK)]
    data = b"".join(bytes([first, len(one)]) + one for one in packet)
    spent = 0.0
    for _ in range(_CHUNKS):
        began = time.process_time()
        pair.publisher.receive(data, 0.0)
        came = pair.sent()
        spent += time.process_time() - began
        if not qos:
            continue
        acks = bytearray(b"\x40\x02\0\0" * CHUNK)
        acks[2::4], acks[3::4] = came[6 :: len(came) // CHUNK], came[7 :: len(came) // CHUNK]
        began = time.process_time()
        pair.subscriber.receive(bytes(acks), 0.0)
        spent += time.process_time() - began
    return 1e9 * spent / _CHUNKS / CHUNK


DELIVERIES: dict[str, Callable[[], float]] = {
    "QoS 0": lambda: delivery_ns(_QOS_0),
    "QoS 1": lambda: delivery_ns(_QOS_1),
    "QoS 1, message by message": lambda: delivery_ns(_AGAIN),  # as duplicates are taken
}


def rounds(count: int) -> dict[str, Any]:
    """Medians over `count` rounds, in which all take turns."""
    hubs = {FEW: hub(FEW), MANY: hub(MANY)}
    taken: dict[tuple[int, bool], list[float]] = {}
    deliveries: dict[str, list[float]] = {}
    for _ in range(count):
        for size, found in hubs.items():
            for remembered in (False, True):
                taken.setdefault((size, remembered), []).append(routing_ns(found, remembered))
        for name, measure in DELIVERIES.items():
            deliveries.setdefault(name, []).append(measure())
    medians = {key: statistics.median(values) for key, values in taken.items()}
    return {
        "few": FEW,
        "many": MANY,
        "new topic, ns": {str(size): medians[size, False] for size in hubs},
        "remembered topic, ns": {str(size): medians[size, True] for size in hubs},
        "ratio": medians[MANY, False] / medians[FEW, False],
        "delivery, ns": {name: statistics.median(values) for name, values in deliveries.items()},
    }
