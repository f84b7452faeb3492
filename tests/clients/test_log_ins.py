"""Log-ins and rights over Kafka, with and without TLS: kafka-python and confluent-kafka, each with its own
exception. MQTT's are in `mqtt/test_rights.py`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def treecast(daemon: DaemonProcess, *arguments: str, text: str = "") -> str:
    """Runs a command on the daemon's file of users, and returns what it prints."""
    file = ["--file", str(daemon.data / "users.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "treecast.middleware.cli", *arguments, *file],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[DaemonProcess]:
    """A daemon with an administrator, and alice, who may write `orders` and read all that begins so."""
    flags = ["--amqp", "off", "--mqtt", "off", "--stare", "off", "--admin", "off"]
    flags += ["--kafka-tls", "127.0.0.1:0", "--kafka-tls-certificate", str(certificate)]
    daemon = DaemonProcess(tmp_path_factory.mktemp("secured") / "data", flags)
    daemon.data.mkdir(mode=0o700)
    treecast(daemon, "users", "add", "root", "--admin", text="root's\n")
    treecast(daemon, "users", "add", "alice", text="alice's\n")
    treecast(daemon, "acl", "add", "alice", "write,create", "--topic", "orders")
    treecast(daemon, "acl", "add", "alice", "read", "--topic", "orders", "--prefixed")
    treecast(daemon, "acl", "add", "alice", "read", "--group", "alice.", "--prefixed")
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


@pytest.fixture(params=["SASL_PLAINTEXT", "SASL_SSL"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Librdkafka = Callable[..., dict[str, Any]]


@pytest.fixture
def librdkafka(secured: DaemonProcess, certificate: Path) -> Librdkafka:
    """Returns `librdkafka(user, protocol, mechanism, password)`, the options of a client."""

    def options(
        user: str,
        protocol: str = "SASL_PLAINTEXT",
        mechanism: str = "SCRAM-SHA-512",
        password: str | None = None,
    ) -> dict[str, Any]:
        face = "kafka-tls" if protocol == "SASL_SSL" else "kafka"
        found = {
            "bootstrap.servers": secured.ready[face],
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": f"{user}'s" if password is None else password,
            "log_level": 0,
        }
        return found | ({"ssl.ca.location": str(certificate)} if protocol == "SASL_SSL" else {})

    return options


def produced(options: dict[str, Any], topic: str) -> KafkaError | None:
    """Returns the error of one record, None if it was stored."""
    producer = Producer(options | {"message.timeout.ms": PATIENCE_S * 1000})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return errors[0]


def consumed(options: dict[str, Any], topic: str, group: str) -> Any:
    """Returns the first record of a topic, or the error."""
    consumer = Consumer(options | {"group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        while True:
            found = consumer.poll(PATIENCE_S)
            assert found is not None
            return found.error() or found.value()
    finally:
        consumer.close()


def test_each_mechanism_with_and_without_tls(librdkafka: Librdkafka, protocol: str, mechanism: str) -> None:
    options = librdkafka("alice", protocol, mechanism)
    assert produced(options, "orders") is None
    assert consumed(options, "orders", "alice.readers") == b"value"


def test_a_wrong_password(librdkafka: Librdkafka, protocol: str, mechanism: str) -> None:
    errors: list[KafkaError] = []
    options = librdkafka("alice", protocol, mechanism, "bob's")
    producer = Producer(options | {"error_cb": errors.append})
    while not errors:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "user name or password are wrong" in errors[0].str()


@pytest.mark.parametrize("user", ["nobody", "al,ice=", "ü"])
def test_an_unknown_user(librdkafka: Librdkafka, user: str, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(librdkafka(user, mechanism=mechanism) | {"error_cb": errors.append})
    while not errors:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_a_client_without_a_log_in(secured: DaemonProcess, until: Callable[..., Any]) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": secured.ready["kafka"], "log_level": 0}).list_topics(timeout=3)
    until(lambda: "before the log-in: clients have to use SASL here" in secured.log())


def test_missing_rights(librdkafka: Librdkafka) -> None:
    admin = AdminClient(librdkafka("root"))
    for name in ("orders.eu", "bills"):
        admin.create_topics([NewTopic(name, 1)])[name].result(PATIENCE_S)
    options = librdkafka("alice")
    error = produced(options, "orders.eu")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produced(librdkafka("root"), "orders.eu") is None
    assert consumed(options, "orders.eu", "alice.more") == b"value"
    refused = consumed(options, "bills", "alice.more")
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    refused = consumed(options, "orders.eu", "others")
    assert refused.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert set(AdminClient(options).list_topics(timeout=PATIENCE_S).topics) <= {"orders", "orders.eu"}


def test_kafka_python(secured: DaemonProcess, mechanism: str) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": secured.ready["kafka"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
    }
    producer = KafkaProducer(**options, sasl_plain_password="alice's")
    producer.send("orders", b"by kafka-python").get(PATIENCE_S)
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send("bills", b"x").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        **options,
        sasl_plain_password="alice's",
        group_id="others",
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    with pytest.raises(GroupAuthorizationFailedError):
        next(consumer)
    consumer.close()
    # In a process of its own: without a log-in it tries until its time is over, and leaves sockets open.
    options |= {"sasl_plain_password": "wrong", "bootstrap_timeout_ms": 12_000}
    script = (
        f"import logging; logging.basicConfig(); from kafka import KafkaProducer; KafkaProducer(**{options})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "SaslAuthenticationFailedError: user name or password are wrong" in done.stderr


def test_the_commands_of_treecast(secured: DaemonProcess, tmp_path: Path) -> None:
    """`produce` and `consume` log in; without a user, or with a wrong password, they say what is missing."""
    password = tmp_path / "password"
    password.write_text("alice's\n")
    login = ["--user", "alice", "--password-file", str(password), "--kafka", secured.kafka]

    def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "treecast.middleware.cli", *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    assert run("produce", "orders", *login, text="a line\n").returncode == 0
    done = run("consume", "orders", "--beginning", "--count", "1", *login)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "a log-in takes both" in run("consume", "orders", "--user", "alice").stderr
    password.write_text("wrong")
    assert run("produce", "orders", *login, text="x\n").returncode == 1


def test_rules_by_kafkas_calls(secured: DaemonProcess, librdkafka: Librdkafka) -> None:
    """As kafka-acls does it: a rule is created, counts at once, is found, and is deleted."""
    admin = AdminClient(librdkafka("root"))
    admin.create_topics([NewTopic("parcels.eu", 1)])["parcels.eu"].result(PATIENCE_S)
    binding = AclBinding(
        ResourceType.TOPIC,
        "parcels.",
        ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    (made,) = admin.create_acls([binding]).values()
    assert made.result(PATIENCE_S) is None
    assert produced(librdkafka("alice"), "parcels.eu") is None
    assert "parcels." in treecast(secured, "acl", "list")
    matching = AclBindingFilter(
        ResourceType.TOPIC,
        "parcels.eu",
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.describe_acls(matching).result(PATIENCE_S) == [binding]
    (gone,) = admin.delete_acls([matching]).values()
    assert gone.result(PATIENCE_S) == [binding]
    error = produced(librdkafka("alice"), "parcels.eu")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    others = AdminClient(librdkafka("alice"))
    assert others.describe_acls(matching).result(PATIENCE_S) == [], "it does not pass the error on"
    (refused,) = others.create_acls([binding]).values()
    with pytest.raises(KafkaException) as wrong:
        refused.result(PATIENCE_S)
    assert wrong.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture
def tool(secured: DaemonProcess, kafka_jars: str, tmp_path: Path) -> Callable[..., str]:
    """Returns `tool(user, "kafka-acls", ...)`: a tool of Apache Kafka, logged in as a user."""
    from bench.peers.kafka.tools import tool_command

    def run(user: str, name: str, *arguments: str, fails: bool = False) -> str:
        config = tmp_path / f"{user}.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={module} required username="{user}" password="{user}\'s";\n'
        )
        options = ["--bootstrap-server", secured.ready["kafka"], "--command-config", str(config)]
        command = tool_command(name, [*options, *arguments], ("-Xmx256M", "-XX:+UseSerialGC"))
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_kafkas_own_tools(tool: Callable[..., str], librdkafka: Librdkafka) -> None:
    """The Java client with SCRAM, and kafka-acls."""
    rule = ["--allow-principal", "User:alice", "--operation", "Write", "--topic", "tools."]
    rule += ["--resource-pattern-type", "prefixed"]
    tool("root", "kafka-topics", "--create", "--topic", "tools.eu")
    refused = tool("alice", "kafka-acls", "--add", *rule, fails=True)
    assert "ClusterAuthorizationException" in refused
    tool("root", "kafka-acls", "--add", *rule)
    listed = tool("root", "kafka-acls", "--list", "--topic", "tools.eu", "--resource-pattern-type", "match")
    assert "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in listed
    assert produced(librdkafka("alice"), "tools.eu") is None
    assert "tools.eu" in tool("alice", "kafka-topics", "--list").split()
    tool("root", "kafka-acls", "--remove", "--force", *rule)
    assert "tools.eu" not in tool("alice", "kafka-topics", "--list").split()
    assert "SaslAuthenticationException" in tool("nobody", "kafka-topics", "--list", fails=True)


def test_kafka_configs_makes_users_and_quotas(
    tool: Callable[..., str], secured: DaemonProcess, librdkafka: Librdkafka, until: Callable[..., Any]
) -> None:
    """The Java client sends no password, but what is derived from it; the user then logs in with it."""
    dave = ["--entity-type", "users", "--entity-name", "dave"]
    both = "SCRAM-SHA-256=[iterations=4096,password=dave's],SCRAM-SHA-512=[password=dave's]"
    refused = tool("alice", "kafka-configs", "--alter", *dave, "--add-config", both, fails=True)
    assert "ClusterAuthorizationException" in refused
    tool("root", "kafka-configs", "--alter", *dave, "--add-config", both)
    assert "SCRAM-SHA-256=iterations=4096" in tool("root", "kafka-configs", "--describe", *dave)
    treecast(secured, "acl", "add", "dave", "write,create", "--topic", "dave")
    until(lambda: produced(librdkafka("dave"), "dave") is None)  # the daemon has read the file again
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert produced(librdkafka("dave", mechanism=mechanism), "dave") is None
    tool("root", "kafka-configs", "--alter", *dave, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in tool("root", "kafka-configs", "--describe", *dave)
    tool("root", "kafka-configs", "--alter", *dave, "--add-config", "producer_byte_rate=1048576")
    machine = ["--entity-type", "ips", "--entity-name", "10.0.0.7"]
    tool("root", "kafka-configs", "--alter", *machine, "--add-config", "connection_creation_rate=20")
    listed = treecast(secured, "quotas", "list")
    assert "produce-bytes 1,048,576" in listed
    assert "10.0.0.7" in listed
    assert "connection_creation_rate=20.0" in tool("root", "kafka-configs", "--describe", *machine)


def test_a_change_counts_on_open_connections(
    secured: DaemonProcess, librdkafka: Librdkafka, until: Callable[..., Any]
) -> None:
    treecast(secured, "users", "add", "carol", text="carol's\n")
    treecast(secured, "acl", "add", "carol", "write,create", "--topic", "orders")
    # By a producer each, since librdkafka remembers for minutes what it may not write.
    until(lambda: produced(librdkafka("carol"), "orders") is None)
    errors: list[KafkaError | None] = []
    lost: list[KafkaError] = []
    producer = Producer(librdkafka("carol") | {"error_cb": lost.append, "linger.ms": 0})

    def send() -> None:
        try:
            producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error))
        except KafkaException as refused:  # by what it remembers of the topic
            errors.append(refused.args[0])
        producer.flush(PATIENCE_S)

    send()
    assert errors == [None]
    treecast(secured, "acl", "remove", "carol", "write", "--topic", "orders")
    until(lambda: errors[-1] is not None, send)
    assert errors[-1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    treecast(secured, "users", "delete", "carol")
    until(lambda: any(one.code() == KafkaError._AUTHENTICATION for one in lost), lambda: producer.poll(0.1))
