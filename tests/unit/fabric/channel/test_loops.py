"""The same tests on asyncio's loop and uvloop's, which differ in how they read, write and close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop
from tests.unit.fabric.channel.hosts import Host, connected, until

from treecast.middleware.fabric.channel import Answer, ChannelError

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


def handle(host: int, method: int, head: bytes, body: memoryview) -> Answer | asyncio.Future[Answer]:
    if method == 62:
        return asyncio.get_running_loop().create_future()
    return Answer(head, body)


async def traffic(a: Host, b: Host) -> None:
    bodies = [bytes([n]) * size for n, size in enumerate((0, 1, 20_000, 300_000, 2_000_000, 16_384, 1 << 20))]
    for host, other in ((a, b), (b, a)):
        calls = [
            host.channels.call(other.host_id, 41, b"%d" % n, bodies[n % 7], timeout=60) for n in range(35)
        ]
        small = [host.channels.call(other.host_id, 21, b"%d" % n, timeout=60) for n in range(500)]
        for number, answer in enumerate(await asyncio.gather(*calls)):
            assert answer.head == b"%d" % number
            same = answer.body == bodies[number % 7]
            assert same, number
        await asyncio.gather(*small)
        assert all(host.channels.notify(other.host_id, 61, b"", bytes(1000)) for _ in range(1000))
        await until(lambda o=other: sum(method == 61 for _, method, _ in o.seen) == 1000)


async def scenario() -> None:
    a, b, c = Host(1, handle), Host(2, handle), Host(2, handle, incarnation=2)
    try:
        await lives(await a.start(), await b.start(), c)
    finally:
        for host in (a, b, c):
            await host.channels.close()
    assert not a.channels._links
    assert not c.channels._links
    assert (a.ups, a.downs) == ([(2, 1), (2, 2)], [2, 2])


async def lives(a: Host, b: Host, c: Host) -> None:
    """Traffic flows; b is killed; c, the same host's next run, takes its place and closes in order."""
    a.knows(b)
    b.knows(a)
    await connected(a, b)
    await traffic(a, b)
    lost = a.channels.call(2, 62, timeout=60)
    await until(lambda: b.seen[-1][1] == 62)
    b.kill()
    with pytest.raises(ChannelError):
        await lost
    waiting = a.channels.call(2, 41, b"waiting", timeout=60)
    await c.start(b.address)
    assert (await waiting).head == b"waiting"
    last = a.channels.call(2, 62, timeout=60)
    await until(lambda: c.seen[-1][1] == 62)
    await c.channels.close()
    with pytest.raises(ChannelError, match="closed"):
        await last


@pytest.mark.parametrize("loop", LOOPS)
def test_on_each_loop(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())
