"""Daemons with an MQTT face for all clients of a module: one, and two of one cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pair import pair

from treecast.middleware.daemon.process import DaemonProcess

if TYPE_CHECKING:
    from tests.clients.mqtt.paho_client import Client

FACES = ("--kafka", "off", "--admin", "off", "--mqtt", "127.0.0.1:0")


@pytest.fixture(scope="module")
def mqtt(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[DaemonProcess]:
    """A daemon with an MQTT face over TCP, WebSocket, TLS and a Unix socket."""
    tls = ("--mqtt-tls", "127.0.0.1:0", "--mqtt-tls-certificate", str(certificate))
    daemon = DaemonProcess(tmp_path_factory.mktemp("mqtt") / "data", [*FACES, *tls])
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[DaemonProcess]]:
    """Two daemons of one cluster, each with the Kafka and MQTT faces."""
    faces = ("--admin", "off", "--stare", "off", "--amqp", "off", "--mqtt", "127.0.0.1:0")
    with pair(tmp_path_factory.mktemp("hosts"), faces) as both:
        yield [*both]


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    """A list of clients that are closed when the test ends."""
    made: list[Client] = []
    yield made
    for client in made:
        client.close()
