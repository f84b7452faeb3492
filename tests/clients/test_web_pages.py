"""A form of a web page, sent to a face: the browser puts HTTP before the bytes that the page has chosen."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

pytestmark = pytest.mark.clients

PATIENCE_S = 60.0
# The first bytes of each protocol, as its clients send them.
CHOSEN = {
    "kafka": struct.pack(">IHHIh", 10, 18, 0, 1, -1),
    "amqp": b"AMQP\x00\x00\x09\x01",
    "mqtt": b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04evil",
    "stare": struct.pack(">IBH", 7, 1, 1) + b"evil",
}
ANSWERED = {"amqp": b"AMQP\x00\x00\x09\x01", "stare": b"a frame of "}  # others are closed without an answer


@pytest.mark.parametrize("verb", ["POST", "GET"])
def test_what_follows_http_is_not_read(start_daemon: Any, verb: str) -> None:
    faces = [text for face in ("amqp", "mqtt", "stare") for text in (f"--{face}", "127.0.0.1:0")]
    daemon = start_daemon(*faces, "--kafka", "127.0.0.1:0")
    for face, body in CHOSEN.items():
        with socket.create_connection(daemon.address(face), PATIENCE_S) as page:
            head = f"{verb} / HTTP/1.1\r\nHost: x\r\nOrigin: null\r\nContent-Length: {len(body)}\r\n\r\n"
            page.sendall(head.encode() + body)
            answer = page.makefile("rb").read()  # up to the end of the connection
        expected = ANSWERED.get(face, b"")
        assert expected in answer
        assert bool(answer) is bool(expected), face
