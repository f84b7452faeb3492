"""A closed connection of the MQTT face leaves nothing behind."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.unit.closed import uncollected, visit
from tests.unit.mqtt.test_server import Site

OBJECTS = ("ChunkProtocol", "Connection", "Ration", "Session", "SessionState", "Visitor", "WebSocket")
CONNECT = b"\x10\x0d\0\4MQTT\4\2\0\0\0\1z"
UNFINISHED = b"\x10\xff\xff\x03" + b"\0\4MQTT\5\2\0\0" + bytes(20_000)
PUBLISH = b"\x30\xff\xff\x03" + struct.pack(">H", 1) + b"t" + bytes(20_000)
WEB = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


@pytest.mark.parametrize(
    "sent", [(), (UNFINISHED,), (CONNECT,), (CONNECT, PUBLISH), (b"GET / HTTP/1.1\r\n",), (WEB,)]
)
async def test_reference_counts_free_a_closed_connection(tmp_path: Path, sent: tuple[bytes, ...]) -> None:
    site = Site(tmp_path)
    await site.face.start()
    try:
        await visit(site.face.address, site.counters, b"GET / HTTP/1.1\r\n\r\n", times=1)  # loads modules
        async with uncollected(*OBJECTS) as more:
            site.face.hub.fold()
            await visit(site.face.address, site.counters, *sent)
            assert not more()
            visitors = site.face.listeners.visitors
            assert (len(visitors), visitors.memory.held) == (0, 0)
    finally:
        await site.close()
