"""aio-pika, unmodified: its robust connection across a restart of the daemon, and its patterns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aio_pika
import pytest
from aio_pika.patterns import RPC

from treecast.middleware.daemon.process import DaemonProcess
from treecast.shims.amqp import connect_robust

pytestmark = pytest.mark.clients

PATIENCE_S = 45.0


async def test_publishing_and_consuming(url: str, name: Callable[[str], str]) -> None:
    async with await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(10)
        exchange = await channel.declare_exchange(name("e"), aio_pika.ExchangeType.TOPIC, durable=True)
        queue = await channel.declare_queue(name("q"), durable=True)
        await queue.bind(exchange, "orders.*")
        sent = [
            aio_pika.Message(b"%d" % number, headers={"n": number}, delivery_mode=2) for number in range(100)
        ]
        await asyncio.gather(*(exchange.publish(message, "orders.new") for message in sent))
        got = []
        async with asyncio.timeout(PATIENCE_S), queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    got.append((message.body, message.headers["n"], message.routing_key))
                if len(got) == len(sent):
                    break
        assert got == [(b"%d" % number, number, "orders.new") for number in range(100)]


async def test_the_drop_in_finds_the_daemon(
    amqp: DaemonProcess, name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREECAST_AMQP", amqp.ready["amqp"])
    async with await connect_robust() as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(name("q"), durable=True)
        await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)
        message = await queue.get(timeout=PATIENCE_S)
        assert message is not None
        assert message.body == b"x"


async def test_calls(url: str, name: Callable[[str], str]) -> None:
    """Its RPC pattern: an exclusive queue named by the server, and a dead-letter exchange."""
    async with await aio_pika.connect_robust(url) as connection:
        rpc = await RPC.create(await connection.channel(), durable=True)
        method = name("double")

        async def double(*, number: int) -> int:
            return 2 * number

        await rpc.register(method, double, auto_delete=True, durable=True)
        async with asyncio.timeout(PATIENCE_S):
            assert await rpc.call(method, {"number": 21}) == 42


async def test_a_robust_connection_goes_on_after_a_kill(start_daemon: Callable[..., DaemonProcess]) -> None:
    daemon = start_daemon("--kafka", "off", "--mqtt", "off")
    url = f"amqp://guest:guest@{daemon.ready['amqp']}/%2F"
    connection = await aio_pika.connect_robust(url, reconnect_interval=0.1)
    channel = await connection.channel()
    queue = await channel.declare_queue("q", durable=True)
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with message.process():
            got.put_nowait(message.body)

    await queue.consume(take)
    await channel.default_exchange.publish(aio_pika.Message(b"before", delivery_mode=2), "q")
    assert await asyncio.wait_for(got.get(), PATIENCE_S) == b"before"
    back = asyncio.Event()
    connection.reconnect_callbacks.add(lambda *_: back.set())
    await asyncio.to_thread(daemon.kill)
    await asyncio.to_thread(daemon.restart)
    await asyncio.wait_for(back.wait(), PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        await channel.default_exchange.publish(aio_pika.Message(b"after", delivery_mode=2), "q")
        while (body := await got.get()) == b"before":  # its acknowledgement may be lost
            pass
    assert body == b"after"
    await connection.close()
