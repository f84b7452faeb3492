"""A paho client, unmodified, as tests use it."""

from __future__ import annotations

import queue
from typing import Any, Literal

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from treecast.middleware.daemon.process import DaemonProcess

PATIENCE_S = 60.0


class Client:
    """A paho client that puts its messages into a queue."""

    def __init__(
        self, client_id: str, version: int, transport: Literal["tcp", "websockets"] = "tcp", **options: Any
    ) -> None:
        self.version = version
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.connected: queue.Queue[bool] = queue.Queue()
        self.subscribed: queue.Queue[Any] = queue.Queue()
        self.reasons: dict[int, int] = {}  # with which publishes were acknowledged, by message id
        self.paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            protocol=MQTTProtocolVersion(version),
            transport=transport,
            **options,
        )
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_connect = lambda client, data, flags, reason, properties: self.connected.put(
            flags.session_present
        )
        self.paho.on_publish = lambda client, data, mid, reason, properties: self.reasons.update(
            {mid: reason.value}
        )
        self.paho.on_subscribe = lambda client, data, mid, reasons, properties: self.subscribed.put(reasons)

    def open(self, host: str, port: int, **options: Any) -> bool:
        """Connects; returns whether the session was present."""
        self.paho.connect(host, port, **options)
        self.paho.loop_start()
        return self.connected.get(timeout=PATIENCE_S)

    def subscribe(self, filter: str, qos: int = 0, **options: Any) -> None:
        self.paho.subscribe(filter, qos, **options)
        self.subscribed.get(timeout=PATIENCE_S)

    def publish(self, topic: str, payload: bytes, qos: int = 0, **options: Any) -> int:
        """Returns when the message is acknowledged, with which reason."""
        sent = self.paho.publish(topic, payload, qos, **options)
        sent.wait_for_publish(PATIENCE_S)
        return self.reasons.pop(sent.mid)

    def next(self) -> paho.MQTTMessage:
        return self.messages.get(timeout=PATIENCE_S)

    def payloads(self, count: int) -> list[bytes]:
        return [self.next().payload for _ in range(count)]

    def take(self, count: int) -> list[tuple[str, bytes, int]]:
        found = [self.next() for _ in range(count)]
        return [(one.topic, one.payload, one.qos) for one in found]

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()
        # A thread that stops before it has sent DISCONNECT leaves its socket open, and every thread leaves
        # its wake-up socket pair. The garbage collector may find these before the client, which would close
        # them.
        self.paho._reset_sockets()


class Newer(Client):
    """An MQTT 5 client connected to `daemon`; if `lasting`, its session expires after an hour."""

    def __init__(self, daemon: DaemonProcess, name: str, *, lasting: bool = False) -> None:
        super().__init__(name, paho.MQTTv5)
        given = Properties(PacketTypes.CONNECT)
        if lasting:
            given.SessionExpiryInterval = 3600
        self.open(*daemon.address("mqtt"), clean_start=not lasting, properties=given)

    def subscribe(self, filter: str, qos: int = 2, **options: Any) -> None:
        super().subscribe(filter, options=SubscribeOptions(qos, **options))

    def publish(self, topic: str, payload: bytes, qos: int = 1, **options: Any) -> int:
        return super().publish(topic, payload, qos, **options)
