"""OAUTHBEARER with unmodified clients: kafka-python, librdkafka, the Java client, and each one's refusal."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.provider import AUDIENCE, Provider

from treecast.middleware.broker.access import (
    Content,
    OAuth,
    Pattern,
    Permission,
    ResourceKind,
    Rule,
    User,
)
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.daemon.users_file import change_users

pytestmark = pytest.mark.clients
jwt = pytest.importorskip("jwt", reason="PyJWT comes with the extras `oauth` and `test`")

PATIENCE_S = 60


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider(jwt)


def everything(user: str, kind: ResourceKind) -> Rule:
    return Rule(user, Permission.ALLOW, None, kind, Pattern.LITERAL, "*")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[DaemonProcess]:
    """A daemon that takes the provider's tokens; alice may use all topics and groups."""
    flags = ["--amqp", "off", "--mqtt", "off", "--stare", "off", "--admin", "off"]
    daemon = DaemonProcess(tmp_path_factory.mktemp("oauth") / "data", flags)
    daemon.data.mkdir(mode=0o700)
    keys = daemon.data.parent / "jwks.json"
    keys.write_text(provider.jwks())
    rules = (everything("alice", ResourceKind.TOPIC), everything("alice", ResourceKind.GROUP))
    content = Content({"alice": User("alice")}, rules, oauth=OAuth(str(keys), AUDIENCE))
    change_users(daemon.data / "users.toml", lambda _: content)
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


class Provided(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's provider of tokens."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {"traceId": "7"}


def kafka_python(daemon: DaemonProcess, token: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": daemon.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provided(token),
    }


def test_kafka_python(secured: DaemonProcess, provider: Provider) -> None:
    options = kafka_python(secured, provider.token({}, now=time.time()))
    producer = KafkaProducer(**options)
    producer.send("by-token", b"value").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer("by-token", **options, group_id="g", auto_offset_reset="earliest")
    assert next(consumer).value == b"value"
    consumer.close()
    # In a process of its own: without a log-in it tries until its time is over, and leaves sockets open.
    wrong = provider.token({"aud": "another"}, now=time.time())
    script = (
        "import logging; logging.basicConfig(); from kafka import KafkaProducer;"
        "from tests.clients.test_oauth import Provided;"
        f"KafkaProducer(bootstrap_servers={secured.kafka!r}, security_protocol='SASL_PLAINTEXT',"
        f" sasl_mechanism='OAUTHBEARER', sasl_oauth_token_provider=Provided({wrong!r}),"
        " bootstrap_timeout_ms=12_000)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "SaslAuthenticationFailedError" in done.stderr, done.stderr


def librdkafka(daemon: DaemonProcess, token: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": daemon.kafka,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 600),
        "log_level": 0,
    }


def test_librdkafka(secured: DaemonProcess, provider: Provider, until: Callable[..., Any]) -> None:
    options = librdkafka(secured, provider.token({}, now=time.time()))
    producer = Producer(options)
    errors: list[KafkaError | None] = []
    producer.produce("by-token-too", b"value", on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert errors == [None]
    consumer = Consumer(options | {"group.id": "h", "auto.offset.reset": "earliest"})
    consumer.subscribe(["by-token-too"])
    found: list[Any] = []
    until(lambda: found, lambda: found.extend(consumer.consume(1, 1.0)))
    assert found[0].value() == b"value"
    consumer.close()
    lost: list[KafkaError] = []
    wrong = librdkafka(secured, provider.token({"sub": "nobody"}, now=time.time()))
    refused = Producer(wrong | {"error_cb": lost.append})
    until(lambda: any(one.code() == KafkaError._AUTHENTICATION for one in lost), lambda: refused.poll(0.1))


def test_the_java_client(secured: DaemonProcess, provider: Provider, kafka_jars: str, tmp_path: Path) -> None:
    """Its own handler of log-ins, which reads the token from a file."""
    from bench.peers.kafka.tools import tool_command

    file, config = tmp_path / "token", tmp_path / "client.properties"
    security = "org.apache.kafka.common.security.oauthbearer"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{file}\n"
        f"sasl.login.callback.handler.class={security}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.jaas.config={security}.OAuthBearerLoginModule required ;\n"
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{file}"
    options = ["--bootstrap-server", secured.kafka, "--command-config", str(config)]
    jvm = ("-Xmx256M", "-XX:+UseSerialGC", allowed, allowed.replace("urls", "files").replace("file://", ""))

    def run(token: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        file.write_text(token)
        command = tool_command("kafka-topics", [*options, *arguments], jvm)
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)

    made = run(provider.token({}, now=time.time()), "--create", "--topic", "by-java")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "by-java" in run(provider.token({}, now=time.time()), "--list").stdout.split()
    refused = run(provider.token({"aud": "another"}, now=time.time()), "--list")
    assert refused.returncode != 0
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr
