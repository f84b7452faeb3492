"""Strangers at a daemon's ports: they hold little, and what they hold comes back."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import urllib.request

import pytest

from treecast.middleware.daemon.process import DaemonProcess, split_address

pytestmark = pytest.mark.fault
OPEN_FILES = 256  # of the fixture `limited`

MIB = 1 << 20
BUDGET = 24 * MIB
UNFINISHED = struct.pack(">ihhi", 90 * MIB, 0, 7, 1)
PATIENCE_S = 60


def resident(daemon: DaemonProcess) -> int:
    with open(f"/proc/{daemon.pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Stranger:
    """Sends an unfinished request, as far as the daemon reads it."""

    def __init__(self, address: str, size: int) -> None:
        self.client = socket.create_connection(split_address(address), PATIENCE_S)
        self.client.settimeout(0.2)
        self.sent = 0
        with contextlib.suppress(OSError):
            self.client.sendall(UNFINISHED)
            while self.sent < size:
                self.sent += self.client.send(bytes(64 * 1024))

    def close(self) -> None:
        self.client.close()


@pytest.fixture
def held():
    """Connections that are closed at the end."""
    made = []
    yield made
    for one in made:
        one.close()


def test_unfinished_requests_hold_bounded_memory_and_small_ones_go_on(
    start_daemon, held, wire_client, until, read_values
):
    daemon = start_daemon("--unfinished-request-bytes", str(BUDGET))
    wire = wire_client
    held.append(connection := wire.Connection(daemon.kafka))
    connection.insist("CreateTopics", wire.create_topic("t", 1, {}), wire.first_topic_code)
    before = resident(daemon)
    held += [Stranger(daemon.kafka, 60 * MIB) for _ in range(12)]
    assert resident(daemon) - before < 2 * BUDGET + 100 * MIB  # the first of them may go on
    batch = wire.build_batch([(b"k", bytes(900_000))])
    assert wire.produced(connection.ask(wire.produce("t", 0, batch)))[0] == 0
    for one in held:
        one.close()
    until(lambda: resident(daemon) - before < BUDGET + 64 * MIB, "the memory to come back")
    assert len(read_values(daemon.kafka, "t")) == 1


@pytest.mark.parametrize("face", ["admin", "control", "mqtt", "kafka"])
def test_connections_to_one_address_take_no_descriptors_of_others(limited, held, wire_client, face):
    wire, daemon = wire_client, limited
    held.append(connection := wire.Connection(daemon.kafka))
    connection.insist("CreateTopics", wire.create_topic("t", 1, {}), wire.first_topic_code)
    for _ in range(300):
        client = socket.create_connection(daemon.address(face), PATIENCE_S)
        with contextlib.suppress(OSError):
            client.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" if face == "admin" else b"\x10")
        held.append(client)
    for number in range(10):  # each takes descriptors for a log
        connection.insist("CreateTopics", wire.create_topic(f"t{number}", 1, {}), wire.first_topic_code)
        batch = wire.build_batch([(b"k", b"v")])
        assert wire.produced(connection.ask(wire.produce(f"t{number}", 0, batch)))[0] == 0
    with urllib.request.urlopen(f"http://{daemon.ready['admin']}/healthz", timeout=PATIENCE_S) as answer:
        assert answer.status == 200
