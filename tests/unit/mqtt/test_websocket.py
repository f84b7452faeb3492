"""MQTT over WebSocket is for clients that are no browsers, pages of this address, and listed ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.mqtt.test_server import PATIENCE_S, Site

from treecast.middleware.model.web_callers import WebCallers
from treecast.shims.mqtt.websocket import WebSocket

FOREIGN = "https://attacker.example"
DASHBOARD = "https://dash.example"


def handshake(host: str = "localhost:1883", **headers: str) -> bytes:
    """Returns a request. An underscore in the name of a header stands for a hyphen."""
    lines = ["GET /mqtt HTTP/1.1"]
    given = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    given |= {"Host": host, "Sec_WebSocket_Version": "13", "Sec_WebSocket_Protocol": "mqtt", **headers}
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
    return "\r\n".join((*lines, "", "")).encode()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (handshake(), 101),
        (handshake("127.0.0.1:1883"), 101),
        (handshake(Origin="https://localhost:1883"), 101),
        (handshake(Origin=DASHBOARD), 101),
        (handshake("shop.example", Origin="https://shop.example"), 101),
        (handshake(Origin=FOREIGN), 403),
        (handshake(Origin=FOREIGN, Sec_Fetch_Site="cross-site"), 403),
        (handshake(Origin="http://localhost:3000"), 403),
        (handshake(Origin="null"), 403),
        (handshake(Origin=f"{DASHBOARD}\r\nOrigin: {FOREIGN}"), 403),
        (handshake("attacker.example:1883", Origin="http://attacker.example:1883"), 421),
        (handshake("attacker.example:1883"), 421),
    ],
)
def test_a_handshake(request_: bytes, status: int) -> None:
    web = WebSocket(1024, WebCallers(("shop.example",), (DASHBOARD,)), "127.0.0.1")
    assert web.receive(request_ + b"\x82\x82\0\0\0\0\xc0\0") == ([b"\xc0\0"] if status == 101 else [])
    answer = b"".join(web.send([]))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert (web.closed, web.refusal != "") == (status != 101, status != 101)
    assert web.receive(b"\x82\x82\0\0\0\0\xc0\0") == ([b"\xc0\0"] if status == 101 else [])
    for setting, shown in (("--mqtt-origins", 403), ("--mqtt-names", 421)):
        assert (setting.encode() in answer) is (status == shown)


def test_no_browser_reaches_a_unix_socket() -> None:
    web = WebSocket(1024, WebCallers(), "")
    web.receive(handshake("anything", Origin=FOREIGN))
    assert b"".join(web.send([])).startswith(b"HTTP/1.1 101 ")


async def test_a_foreign_page_is_answered_counted_and_closed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.face.start()
    reader, writer = await asyncio.open_connection(*site.face.address)
    writer.write(handshake(Origin=FOREIGN))
    async with asyncio.timeout(PATIENCE_S):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 403 ")
    writer.close()
    await site.close()
    assert site.counters.protocol_errors == {"a WebSocket from a foreign web page": 1}
