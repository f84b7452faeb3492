"""paho-mqtt, unmodified: both versions, every transport, and a daemon that is killed during use."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from tests.clients.mqtt.paho_client import Client

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

VERSIONS = pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])


def exchange(publisher: Client, subscriber: Client, prefix: str) -> None:
    subscriber.subscribe(f"{prefix}/#", 2)
    for qos in (0, 1, 2):
        publisher.publish(f"{prefix}/{qos}", b"x" * (10**qos), qos)
    assert subscriber.take(3) == [(f"{prefix}/{qos}", b"x" * (10**qos), qos) for qos in (0, 1, 2)]


@VERSIONS
@pytest.mark.parametrize("transport", ["tcp", "websockets", "unix", "tls", "wss"])
def test_every_transport(
    mqtt: DaemonProcess, clients: list[Client], certificate: Path, version: int, transport: str
) -> None:
    under = {"tls": "tcp", "wss": "websockets"}.get(transport, transport)
    host, port = mqtt.address("mqtt")
    for name in ("p", "s"):
        client = Client(f"{name}-{transport}-{version}", version, under)
        clients.append(client)
        if transport in ("tls", "wss"):
            client.paho.tls_set(str(certificate), tls_version=ssl.PROTOCOL_TLS_CLIENT)
            client.open(*mqtt.address("mqtt-tls"))
        elif transport == "unix":
            client.open(str(mqtt.runtime_dir / "mqtt.sock"), 1)
        else:
            client.open(host, port)
    exchange(clients[0], clients[1], f"{transport}{version}")


@VERSIONS
def test_many_messages_of_every_qos_in_order(
    mqtt: DaemonProcess, clients: list[Client], version: int
) -> None:
    sub, pub = Client("many-s", version), Client("many-p", version)
    clients += [sub, pub]
    for client in clients:
        client.open(*mqtt.address("mqtt"))
    sub.subscribe(f"many{version}/#", 2)
    sent = []
    for number in range(900):
        qos = number % 3
        pub.paho.publish(f"many{version}/{qos}", b"%d" % number, qos)
        sent.append((f"many{version}/{qos}", b"%d" % number, qos))
    got = sub.take(900)
    for qos in (0, 1, 2):
        assert [one for one in got if one[2] == qos] == [one for one in sent if one[2] == qos]


@VERSIONS
def test_a_session_and_its_messages_outlive_a_killed_daemon(
    start_daemon: Any, clients: list[Client], version: int
) -> None:
    daemon = start_daemon("--kafka", "off", "--admin", "off", "--mqtt", "127.0.0.1:0")
    options: dict[str, Any] = {"clean_session": False} if version == paho.MQTTv311 else {}
    lasting: dict[str, Any] = {}
    if version == paho.MQTTv5:
        expiry = Properties(PacketTypes.CONNECT)
        expiry.SessionExpiryInterval = 1000
        lasting = {"clean_start": False, "properties": expiry}
    first = Client("lasting", version, **options)
    assert first.open(*daemon.address("mqtt"), **lasting) is False
    first.subscribe("q/#", 2)
    first.close()
    pub = Client("pub", version)
    clients.append(pub)
    pub.open(*daemon.address("mqtt"))
    for number in range(30):
        pub.publish("q/x", b"%d" % number, 1 + number % 2)
    pub.publish("kept", b"value", 1, retain=True)
    daemon.kill()
    daemon.restart()
    again = Client("lasting", version, **options)
    clients.append(again)
    assert again.open(*daemon.address("mqtt"), **lasting) is True
    got = again.take(30)
    for qos in (1, 2):
        expected = [b"%d" % number for number in range(30) if 1 + number % 2 == qos]
        assert [payload for _, payload, found in got if found == qos] == expected
    again.subscribe("kept", 1)
    assert again.take(1) == [("kept", b"value", 1)]


def test_what_version_5_adds(mqtt: DaemonProcess, clients: list[Client]) -> None:
    sub, pub = Client("", paho.MQTTv5), Client("", paho.MQTTv5)
    clients += [sub, pub]
    for client in clients:
        client.open(*mqtt.address("mqtt"))
    identified = Properties(PacketTypes.SUBSCRIBE)
    identified.SubscriptionIdentifier = 42
    sub.subscribe("five/#", options=SubscribeOptions(1, retainAsPublished=True), properties=identified)
    given = Properties(PacketTypes.PUBLISH)
    given.UserProperty = [("a", "1"), ("a", "2")]
    given.ContentType = "text/plain"
    given.ResponseTopic = "five/answers"
    given.CorrelationData = b"\x01"
    given.MessageExpiryInterval = 60
    pub.publish("five/x", b"text", 1, retain=True, properties=given)
    message = sub.next()
    found = message.properties
    assert found is not None
    assert message.retain
    assert found.SubscriptionIdentifier == [42]
    assert found.UserProperty == [("a", "1"), ("a", "2")]
    assert (found.ContentType, found.ResponseTopic) == ("text/plain", "five/answers")
    assert found.CorrelationData == b"\x01"
    assert 0 < found.MessageExpiryInterval <= 60


@VERSIONS
def test_a_will(mqtt: DaemonProcess, clients: list[Client], version: int) -> None:
    watcher, doomed = Client("w", version), Client("d", version)
    clients.append(watcher)
    doomed.paho.will_set(f"wills/{version}", b"gone", 1)
    watcher.open(*mqtt.address("mqtt"))
    watcher.subscribe(f"wills/{version}", 1)
    doomed.open(*mqtt.address("mqtt"))
    doomed.paho.loop_stop()
    socket = doomed.paho.socket()
    assert socket is not None
    socket.close()
    assert watcher.take(1) == [(f"wills/{version}", b"gone", 1)]
