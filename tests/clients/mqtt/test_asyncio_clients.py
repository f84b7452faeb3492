"""aiomqtt, our drop-in for it, and gmqtt."""

from __future__ import annotations

import asyncio
import contextlib

import aiomqtt
import gmqtt
import pytest

from treecast.middleware.daemon.process import DaemonProcess
from treecast.shims.mqtt import Client

pytestmark = pytest.mark.clients

PATIENCE_S = 30.0


async def exchange(publisher: aiomqtt.Client, subscriber: aiomqtt.Client, prefix: str) -> None:
    await subscriber.subscribe(f"{prefix}/+", qos=2)
    for qos in (0, 1, 2):
        await publisher.publish(f"{prefix}/{qos}", f"hello {qos}", qos=qos)
    got = []
    async with asyncio.timeout(PATIENCE_S):
        async for message in subscriber.messages:
            got.append((str(message.topic), message.payload, message.qos))
            if len(got) == 3:
                break
    assert got == [(f"{prefix}/{qos}", b"hello %d" % qos, qos) for qos in (0, 1, 2)]


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])
async def test_aiomqtt(mqtt: DaemonProcess, version: aiomqtt.ProtocolVersion) -> None:
    host, port = mqtt.address("mqtt")
    async with (
        aiomqtt.Client(host, port, protocol=version) as publisher,
        aiomqtt.Client(host, port, protocol=version) as subscriber,
    ):
        await exchange(publisher, subscriber, f"aio{version.value}")


async def test_the_drop_in_client_finds_the_daemon_by_itself(
    mqtt: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TREECAST_MQTT", raising=False)
    monkeypatch.setenv("TREECAST_RUNTIME_DIR", str(mqtt.runtime_dir))
    async with Client() as publisher, Client() as subscriber:
        await exchange(publisher, subscriber, "found")
    monkeypatch.setenv("TREECAST_RUNTIME_DIR", "/nowhere")
    monkeypatch.setenv("TREECAST_MQTT", mqtt.ready["mqtt"])
    async with Client() as publisher, Client(protocol=aiomqtt.ProtocolVersion.V5) as subscriber:
        await exchange(publisher, subscriber, "told")


@pytest.mark.parametrize("version", [4, 5])
async def test_gmqtt(mqtt: DaemonProcess, version: int) -> None:
    host, port = mqtt.address("mqtt")
    got: asyncio.Queue[tuple[str, bytes, int]] = asyncio.Queue()
    subscribed = asyncio.Event()

    def on_message(client: object, topic: str, payload: bytes, qos: int, properties: object) -> int:
        got.put_nowait((topic, bytes(payload), qos))
        return 0

    publisher, subscriber = gmqtt.Client(f"gp{version}"), gmqtt.Client(f"gs{version}")
    subscriber.on_message = on_message
    subscriber.on_subscribe = lambda *_: subscribed.set()
    for client in (publisher, subscriber):
        await client.connect(host, port, version=version)
    subscriber.subscribe(f"gm{version}/#", qos=2)
    async with asyncio.timeout(PATIENCE_S):
        await subscribed.wait()
        for qos in (0, 1, 2):
            publisher.publish(f"gm{version}/{qos}", b"x", qos=qos)
        found = [await got.get() for _ in range(3)]
    assert sorted(found) == [(f"gm{version}/{qos}", b"x", qos) for qos in (0, 1, 2)]
    for client in (publisher, subscriber):
        with contextlib.suppress(ConnectionError):
            await client.disconnect()
