"""Client certificates as log-ins of Kafka, MQTT and AMQP: each client's own exception for what is wrong."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from tests.authority import Authority
from tests.clients.test_log_ins import produced, treecast

from treecast.middleware.broker.access import Content
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.daemon.users_file import change_users

pytestmark = pytest.mark.clients

PATIENCE_S = 60
WRONG = ("expired", "stranger")


class Site:
    """A daemon with users of certificates, and the files of clients: `alice` has a user, `mallory` has none,
    `expired` has ended, and another authority has signed `stranger`."""

    def __init__(self, folder: Path, openssl: str) -> None:
        self.authority = authority = Authority(folder, openssl)
        served = authority.signs("server", "/CN=server", "IP:127.0.0.1,DNS:localhost")
        self.clients = {
            "alice": authority.signs("alice", "/O=shop/CN=Alice"),
            "mallory": authority.signs("mallory", "/O=shop/CN=Mallory"),
            "expired": authority.signs("expired", "/O=shop/CN=Alice", days=-1),
            "stranger": Authority(folder, openssl, "other").signs("stranger", "/O=shop/CN=Alice"),
        }
        flags = ["--stare", "off", "--admin", "off"]
        for face in ("kafka", "mqtt", "amqp"):
            flags += [f"--{face}-tls", "127.0.0.1:0", f"--{face}-tls-certificate", str(served)]
            flags += [f"--{face}-tls-authority", str(authority.path)]
        self.daemon = DaemonProcess(folder / "data", flags)
        self.daemon.data.mkdir(mode=0o700)
        mapping = ("RULE:^CN=([^,]+),O=shop$/$1/L",)
        change_users(self.daemon.data / "users.toml", lambda _: Content(certificates=mapping))
        treecast(self.daemon, "users", "add", "alice", "--certificate")
        treecast(self.daemon, "users", "add", "bob", text="bob's\n")
        treecast(self.daemon, "acl", "add", "alice", "write,create", "--topic", "orders")
        treecast(self.daemon, "acl", "add", "bob", "write,create", "--topic", "bobs")

    def context(self, client: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.load_cert_chain(self.clients[client])
        return context


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, require_tool: Callable[[str], str]) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("certificates"), require_tool("openssl"))
    try:
        made.daemon.start()
        yield made
    finally:
        if made.daemon.running:
            made.daemon.stop()
        print(made.daemon.clean_up())


def librdkafka(site: Site, client: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": site.daemon.ready["kafka-tls"],
        "security.protocol": "SSL",
        "ssl.ca.location": str(site.authority.path),
        "ssl.certificate.location": str(site.clients[client]),
        "ssl.key.location": str(site.clients[client]),
        "log_level": 0,
    }


def test_librdkafka(site: Site) -> None:
    assert produced(librdkafka(site, "alice"), "orders") is None
    for client, topic in (("alice", "bills"), ("mallory", "orders")):
        error = produced(librdkafka(site, client), topic)
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("client", WRONG)
def test_librdkafka_with_a_wrong_certificate(site: Site, client: str, until: Callable[..., Any]) -> None:
    errors: list[KafkaError] = []
    producer = Producer(librdkafka(site, client) | {"error_cb": errors.append})
    until(lambda: errors, lambda: producer.poll(0.1))
    said = " ".join([f"{one.name()} {one.str()}" for one in errors])
    assert {"expired": "certificate expired", "stranger": "unknown ca"}[client] in said


def test_kafka_python(site: Site) -> None:
    def producer(client: str) -> Any:
        return KafkaProducer(
            bootstrap_servers=site.daemon.ready["kafka-tls"],
            security_protocol="SSL",
            ssl_context=site.context(client),
        )

    own = producer("alice")
    own.send("orders", b"x").get(PATIENCE_S)
    own.close()
    other = producer("mallory")
    with pytest.raises(TopicAuthorizationFailedError):
        other.send("orders", b"x").get(PATIENCE_S)
    other.close()


def test_a_password_over_a_connection_with_a_certificate(site: Site) -> None:
    """As in Kafka, the log-in says who it is, not the certificate of the connection."""
    options = librdkafka(site, "mallory") | {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "bob",
        "sasl.password": "bob's",
    }
    assert produced(options, "bobs") is None


def mqtt(site: Site, client: str, version: paho.MQTTProtocolVersion = paho.MQTTv5, **credentials: str) -> int:
    """Returns the reason code of CONNACK. Raises ssl.SSLError."""
    codes: list[int] = []
    one = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=version)
    one.tls_set_context(site.context(client))
    if credentials:
        one.username_pw_set(**credentials)
    one.on_connect = lambda *given: codes.append(given[3].value)
    try:
        one.connect(*site.daemon.address("mqtt-tls"))
        while not codes:
            if (failed := one.loop(1.0)) != paho.MQTT_ERR_SUCCESS and not codes:
                raise ConnectionError(paho.error_string(failed))
        return codes[0]
    finally:
        one.disconnect()
        one.loop(0.1)


def test_paho(site: Site) -> None:
    assert mqtt(site, "alice") == 0
    assert mqtt(site, "alice", username="alice") == 0
    assert mqtt(site, "alice", username="bob") == 0x87
    assert mqtt(site, "alice", username="bob", password="bob's") == 0
    assert mqtt(site, "mallory") == 0x87
    assert mqtt(site, "mallory", paho.MQTTv311) == 0x87, "paho translates 5"


@pytest.mark.parametrize("client", WRONG)
def test_mosquitto_pub_with_a_wrong_certificate(
    site: Site, client: str, require_tool: Callable[[str], str]
) -> None:
    host, port = site.daemon.address("mqtt-tls")
    files = ["--cafile", str(site.authority.path), "--cert", str(site.clients[client])]
    command = [require_tool("mosquitto_pub"), "-h", host, "-p", str(port), *files]
    command += ["--key", str(site.clients[client]), "-t", "orders", "-m", "x", "-q", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode != 0
    right = [str(site.clients["alice"]) if one == str(site.clients[client]) else one for one in command]
    subprocess.run(right, capture_output=True, timeout=PATIENCE_S, check=True)


def amqp(site: Site, client: str) -> None:
    host, port = site.daemon.address("amqp-tls")
    options = pika.SSLOptions(site.context(client), host)
    credentials = pika.credentials.ExternalCredentials()
    parameters = pika.ConnectionParameters(host, port, credentials=credentials, ssl_options=options)
    pika.BlockingConnection(parameters).close()


def test_pika(site: Site) -> None:
    amqp(site, "alice")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        amqp(site, "mallory")


@pytest.mark.parametrize("client", WRONG)
def test_pika_with_a_wrong_certificate(site: Site, client: str, until: Callable[..., Any]) -> None:
    with pytest.raises((ssl.SSLError, pika.exceptions.AMQPConnectionError)):
        amqp(site, client)
    said = {"expired": "certificate has expired", "stranger": "unable to get local issuer"}[client]
    until(lambda: said in site.daemon.log())


def test_a_deleted_user(site: Site, until: Callable[..., Any]) -> None:
    """Its open connections end, and its certificate opens nothing more."""
    treecast(site.daemon, "users", "add", "mallory", "--certificate")
    until(lambda: mqtt(site, "mallory") == 0)
    lost: list[KafkaError] = []
    producer = Producer(librdkafka(site, "mallory") | {"error_cb": lost.append})
    producer.list_topics(timeout=PATIENCE_S)
    treecast(site.daemon, "users", "delete", "mallory")
    until(lambda: lost, lambda: producer.poll(0.1))
    assert mqtt(site, "mallory") == 0x87


def test_the_audit_log(site: Site, until: Callable[..., Any]) -> None:
    """It says who did what over each face, without payloads: equal publishes are one row with a count."""

    def rows() -> list[dict[str, Any]]:
        log = site.daemon.data / "audit.log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def noted(**wanted: object) -> list[dict[str, Any]]:
        return [one for one in rows() if all(one[name] == value for name, value in wanted.items())]

    producer = Producer(librdkafka(site, "alice") | {"linger.ms": 0})
    for _ in range(20):
        producer.produce("orders", b"secret-payload")
        producer.flush(PATIENCE_S)
    amqp(site, "alice")
    mqtt(site, "mallory")
    mqtt(site, "alice", username="bob", password="bob's")
    produced(librdkafka(site, "alice"), "bills")
    until(lambda: sum(one["count"] for one in noted(face="kafka", resource="topic orders")) >= 20)
    (rule,) = {
        one["rule"] for one in noted(face="kafka", action="write", resource="topic orders", allowed=True)
    }
    assert rule == "allow alice write on topic literal 'orders'"
    until(lambda: noted(face="kafka", principal="alice", action="log-in", allowed=True, proof="certificate"))
    until(lambda: noted(face="amqp", principal="alice", action="log-in", allowed=True, rule="EXTERNAL"))
    until(lambda: noted(face="mqtt", principal="mallory", action="log-in", allowed=False))
    until(lambda: noted(face="mqtt", principal="bob", action="log-in", allowed=True, proof="password"))
    until(lambda: noted(face="kafka", principal="alice", resource="topic bills", allowed=False))
    text = (site.daemon.data / "audit.log").read_text()
    assert "secret-payload" not in text
    assert "bob's" not in text
