"""Kafka over TLS, with and without client certificates: confluent-kafka, kafka-python and kcat."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60
COUNT = 2_000
VALUE = bytes(range(256)) * 4


@pytest.fixture(scope="module", params=["without client certificates", "with client certificates"])
def secured(
    tmp_path_factory: pytest.TempPathFactory, certificate: Path, request: pytest.FixtureRequest
) -> Iterator[DaemonProcess]:
    flags = ["--amqp", "off", "--mqtt", "off", "--stare", "off", "--admin", "off"]
    flags += ["--kafka-tls", "127.0.0.1:0", "--kafka-tls-certificate", str(certificate)]
    if request.param == "with client certificates":
        flags += ["--kafka-tls-authority", str(certificate)]
    daemon = DaemonProcess(tmp_path_factory.mktemp("secured") / "data", flags)
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


def asks(daemon: DaemonProcess) -> bool:
    return "--kafka-tls-authority" in daemon.flags


@pytest.fixture
def librdkafka(secured: DaemonProcess, certificate: Path) -> dict[str, Any]:
    known = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}
    return {
        "bootstrap.servers": secured.ready["kafka-tls"],
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificate),
        **(known if asks(secured) else {}),
    }


def test_what_is_written_over_tls_is_read_over_tls(librdkafka: dict[str, Any]) -> None:
    """Answers come from memory and, being large, from files: nothing may go past TLS."""
    producer = Producer(librdkafka | {"compression.type": "none", "linger.ms": 20})
    for number in range(COUNT):
        producer.produce("orders", VALUE, key=b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(librdkafka | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = []
    while len(found) < COUNT:
        got = consumer.consume(500, PATIENCE_S)
        assert got, f"{len(found)} of {COUNT}"
        found += [one for one in got if one.error() is None]
    consumer.close()
    assert [one.key() for one in found] == [b"%d" % number for number in range(COUNT)]
    assert {one.value() for one in found} == {VALUE}


def test_clients_are_told_the_address_with_tls(secured: DaemonProcess, librdkafka: dict[str, Any]) -> None:
    brokers = AdminClient(librdkafka).list_topics(timeout=PATIENCE_S).brokers.values()
    assert [f"{one.host}:{one.port}" for one in brokers] == [secured.ready["kafka-tls"]]


def test_kafka_python_and_the_listener_without_tls(secured: DaemonProcess, certificate: Path) -> None:
    files = {"ssl_certfile": str(certificate), "ssl_keyfile": str(certificate)} if asks(secured) else {}
    producer = KafkaProducer(
        bootstrap_servers=secured.ready["kafka-tls"],
        security_protocol="SSL",
        ssl_cafile=str(certificate),
        ssl_check_hostname=False,
        **files,
    )
    producer.send("both", b"hello").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "both",
        bootstrap_servers=secured.ready["kafka"],
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    assert next(consumer).value == b"hello"
    consumer.close()


def test_a_client_without_a_certificate(
    secured: DaemonProcess,
    certificate: Path,
    require_tool: Callable[[str], str],
    until: Callable[..., Any],
) -> None:
    """kcat's own message is that of TLS' alert; the daemon's log says what to do."""
    kcat = [require_tool("kcat"), "-b", secured.ready["kafka-tls"], "-X", "security.protocol=SSL", "-L"]
    found = subprocess.run(
        [*kcat, "-X", f"ssl.ca.location={certificate}", "-m", "10"],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (found.returncode == 0) is not asks(secured)
    if asks(secured):
        until(lambda: "the client gave no certificate, and this listener asks for one" in secured.log())


def test_a_client_without_tls_at_the_listener_with_it(
    secured: DaemonProcess, until: Callable[..., Any]
) -> None:
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": secured.ready["kafka-tls"], "error_cb": errors.append})
    until(lambda: (producer.poll(0.1), errors)[1])
    until(lambda: "the client does not speak TLS" in secured.log())
