"""Users and rights: paho over MQTT, with and without TLS, and pika over AMQP, on the same topics."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.mqtt.paho_client import PATIENCE_S, Client

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients


def treecast(daemon: DaemonProcess, *arguments: str, text: str = "") -> None:
    file = ["--file", str(daemon.data / "users.toml")]
    command = [sys.executable, "-m", "treecast.middleware.cli", *arguments, *file]
    subprocess.run(command, input=text, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[DaemonProcess]:
    """alice may write `orders.eu` and read all that begins with `orders.`, over every face."""
    flags = ["--stare", "off", "--admin", "off", "--mqtt-tls", "127.0.0.1:0"]
    flags += ["--mqtt-tls-certificate", str(certificate)]
    daemon = DaemonProcess(tmp_path_factory.mktemp("rights") / "data", flags)
    daemon.data.mkdir(mode=0o700)
    treecast(daemon, "users", "add", "root", "--admin", text="root's\n")
    treecast(daemon, "users", "add", "alice", text="alice's\n")
    treecast(daemon, "acl", "add", "alice", "write", "--topic", "orders.eu")
    treecast(daemon, "acl", "add", "alice", "read", "--topic", "orders.", "--prefixed")
    treecast(daemon, "acl", "add", "alice", "configure,write,read", "--queue", "alice.", "--prefixed")
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


Connected = Callable[..., Client]


@pytest.fixture
def connected(secured: DaemonProcess, certificate: Path, clients: list[Client]) -> Connected:
    def connect(user: str, version: int = paho.MQTTv5, face: str = "mqtt") -> Client:
        client = Client(f"{user}-{version}-{face}", version)
        clients.append(client)
        client.paho.username_pw_set(user, f"{user}'s")
        if face == "mqtt-tls":
            client.paho.tls_set(str(certificate))
            client.paho.tls_insecure_set(True)
        client.open(*secured.address(face))
        return client

    return connect


@pytest.mark.parametrize("face", ["mqtt", "mqtt-tls"])
def test_publishes_and_filters(connected: Connected, face: str) -> None:
    alice, root = connected("alice", face=face), connected("root", face=face)
    root.subscribe("#", 1)
    assert alice.publish("orders/eu", b"yes", 1) == 0
    assert alice.publish("orders/us", b"no", 1) == 0x87
    # paho sends PUBREL though PUBREC refuses, and reports what PUBCOMP says then: an unknown packet id.
    assert alice.publish("orders/us", b"no", 2) == 0x92
    alice.publish("orders/us", b"no")
    assert alice.publish("orders/eu", b"last", 1) == 0
    assert root.payloads(2) == [b"yes", b"last"]
    found = []
    for filter in ("orders/+", "orders/#", "bills", "#"):
        alice.paho.subscribe(filter, 1)
        (reason,) = alice.subscribed.get(timeout=PATIENCE_S)
        found.append(reason.value)
    assert found == [1, 0x87, 0x87, 0x87]


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
@pytest.mark.parametrize("login", [None, ("alice", "wrong"), ("nobody", "alice's")])
def test_a_wrong_log_in(secured: DaemonProcess, version: int, login: tuple[str, str] | None) -> None:
    reasons: queue.Queue[Any] = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "c", protocol=version)  # type: ignore[arg-type]
    client.on_connect = lambda client, data, flags, reason, properties: reasons.put(reason)
    if login is not None:
        client.username_pw_set(*login)
    client.connect(*secured.address("mqtt"))
    client.loop_start()
    reason = reasons.get(timeout=PATIENCE_S)
    client.loop_stop()
    client._reset_sockets()
    assert str(reason) == "Bad user name or password"


def test_pika(secured: DaemonProcess) -> None:
    """The key of `amq.topic` is the topic; queues are alice's by their prefix."""
    host, port = secured.address("amqp")

    def open_channel(user: str = "alice", password: str = "alice's") -> Any:
        login = pika.PlainCredentials(user, password)
        return pika.BlockingConnection(pika.ConnectionParameters(host, port, credentials=login)).channel()

    channel = open_channel()
    channel.confirm_delivery()
    channel.queue_declare("alice.in", durable=True)
    channel.queue_bind("alice.in", "amq.topic", "orders.*")
    channel.basic_publish("amq.topic", "orders.eu", b"by pika")
    assert channel.basic_get("alice.in", auto_ack=True)[2] == b"by pika"
    refused = (
        lambda: channel.basic_publish("amq.topic", "orders.us", b"no"),
        lambda: channel.queue_declare("other", durable=True),
        lambda: channel.queue_bind("alice.in", "amq.topic", "#"),
        lambda: channel.exchange_declare("alice.x", "fanout", durable=True),
        lambda: channel.basic_publish("amq.direct", "orders.eu", b"no"),
    )
    for operation in refused:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as wrong:
            operation()
        assert wrong.value.reply_code == 403
        channel = channel.connection.channel()
        channel.confirm_delivery()
    channel.connection.close()
    for user, password in (("alice", "wrong"), ("guest", "guest")):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            open_channel(user, password)
    open_channel("root", "root's").connection.close()


def test_a_filter_is_lost_with_its_right(
    secured: DaemonProcess, connected: Connected, until: Callable[..., Any]
) -> None:
    treecast(secured, "users", "add", "carol", text="carol's\n")
    treecast(secured, "acl", "add", "carol", "read", "--topic", "news")
    until(lambda: '"users": 3' in secured.log())
    gone: queue.Queue[Any] = queue.Queue()
    carol = connected("carol")
    carol.paho.on_disconnect = lambda client, data, flags, reason, properties: gone.put(reason)

    def subscribe() -> bool:
        carol.paho.subscribe("news", 1)
        return bool(carol.subscribed.get(timeout=PATIENCE_S)[0].value == 1)

    until(subscribe)
    treecast(secured, "acl", "remove", "carol", "read", "--topic", "news")
    assert gone.get(timeout=PATIENCE_S).value == 0x87


def test_one_right_for_all_faces(secured: DaemonProcess, connected: Connected) -> None:
    """A Kafka consumer of alice reads what MQTT has published, by the same rule."""
    options = {
        "bootstrap.servers": secured.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
    }
    root = options | {"sasl.username": "root", "sasl.password": "root's"}
    admin = AdminClient(root)
    admin.create_topics([NewTopic("orders.eu", 1)])["orders.eu"].result(PATIENCE_S)
    treecast(secured, "acl", "add", "alice", "read", "--group", "alice")
    alice = options | {"sasl.username": "alice", "sasl.password": "alice's"}
    connected("alice").publish("orders/eu", b"across", 1)
    consumer = Consumer(alice | {"group.id": "alice", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders.eu"])
    found = None
    while found is None or found.error() is not None:
        found = consumer.poll(PATIENCE_S)
        assert found is not None
    assert found.value() == b"across"
    consumer.close()
