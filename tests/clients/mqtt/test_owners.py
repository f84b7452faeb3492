"""A client id belongs to its user, over every transport and after a kill; web pages have to be listed."""

from __future__ import annotations

import base64
import hashlib
import socket
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from tests.clients.mqtt.paho_client import Client

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

FACES = ("--kafka", "off", "--amqp", "off", "--admin", "off", "--mqtt", "127.0.0.1:0")
PATIENCE_S = 60.0


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    """A file with users whose passwords are their names."""
    file = tmp_path / "passwords"
    salt = base64.b64encode(b"salt").decode()
    digests = {name: hashlib.sha512(name.encode() + b"salt").digest() for name in ("anna", "ben", "pub")}
    lines = [f"{name}:$6${salt}${base64.b64encode(digest).decode()}\n" for name, digest in digests.items()]
    file.write_text("".join(lines))
    return file


def opened(
    daemon: DaemonProcess, clients: list[Client], user: str, client_id: str = "till", transport: Any = "tcp"
) -> tuple[Client, bool]:
    """Returns a client with a lasting session, and whether the session was there."""
    client = Client(client_id, paho.MQTTv311, transport, clean_session=False)
    clients.append(client)
    client.paho.username_pw_set(user, user)
    where = (str(daemon.runtime_dir / "mqtt.sock"), 1) if transport == "unix" else daemon.address("mqtt")
    return client, client.open(*where)


@pytest.mark.parametrize("transport", ["tcp", "websockets", "unix"])
@pytest.mark.parametrize("killed", [False, True])
def test_another_user_gets_a_session_of_its_own(
    start_daemon: Any, passwords: Path, clients: list[Client], transport: str, killed: bool
) -> None:
    daemon = start_daemon(*FACES, "--mqtt-password-file", str(passwords))
    anna, _ = opened(daemon, clients, "anna")
    anna.subscribe("pay/#", 1)
    anna.close()
    clients.remove(anna)
    publisher, _ = opened(daemon, clients, "pub", "p")
    publisher.publish("pay/1", b"secret", 1)
    if killed:
        publisher.close()
        clients.remove(publisher)
        daemon.pin_ports()
        daemon.kill()
        daemon.restart()
    ben, present = opened(daemon, clients, "ben", transport=transport)
    assert not present
    again, present = opened(daemon, clients, "anna", transport=transport)
    assert present
    assert again.payloads(1) == [b"secret"]
    ben.subscribe("own", 1)
    ben.publish("own", b"ben's", 1)
    assert ben.payloads(1) == [b"ben's"]  # first of all that it gets, and still connected


def answer(daemon: DaemonProcess, origin: str) -> bytes:
    """Returns the status line of a browser's handshake from a page of `origin`."""
    where = daemon.address("mqtt")
    head = (
        f"GET /mqtt HTTP/1.1\r\nHost: localhost:{where[1]}\r\nOrigin: {origin}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    with socket.create_connection(where, PATIENCE_S) as client:
        client.sendall(head.encode())
        return client.makefile("rb").readline()


def test_pages_of_other_origins_have_to_be_listed(start_daemon: Any) -> None:
    daemon = start_daemon(*FACES, "--mqtt-origins", "https://dash.example http://localhost:3000")
    for origin in ("https://dash.example", "http://localhost:3000"):
        assert answer(daemon, origin) == b"HTTP/1.1 101 Switching Protocols\r\n"
    for origin in ("https://attacker.example", "https://dash.example:8443", "null"):
        assert answer(daemon, origin) == b"HTTP/1.1 403 Forbidden\r\n"
