"""Hosts with channels between them, over real sockets of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from treecast.middleware.api.discovery import Address
from treecast.middleware.fabric.channel import Answer, Channels, ChannelSettings
from treecast.middleware.model.counters import ChannelCounters

LOOPBACK = Address("127.0.0.1", 0)
KEY = b"k" * 32
CLUSTER = "a cluster"
# The intervals are short: tests wait for conditions, so that a longer wait proves nothing more.
QUICK = ChannelSettings(ping_every=0.1, silent_after=1.5, tick=0.05, back_off_longest=0.2, handshake=5.0)
PATIENCE = 60.0

Handle = Callable[[int, int, bytes, memoryview], Answer | Awaitable[Answer]]


def echo(host: int, method: int, head: bytes, body: memoryview) -> Answer:
    return Answer(head, body)


class Host:
    """One host. `seen`: the requests that its handler got, in order."""

    def __init__(
        self,
        host_id: int,
        handler: Handle = echo,
        *,
        incarnation: int = 1,
        cluster: str = CLUSTER,
        key: bytes | None = KEY,
        settings: ChannelSettings = QUICK,
    ) -> None:
        self.host_id = host_id
        self.handler = handler
        self.seen: list[tuple[int, int, bytes]] = []
        self.ups: list[tuple[int, int]] = []
        self.downs: list[int] = []
        self.counters = ChannelCounters()
        self.channels = Channels(
            host_id, incarnation, cluster, key, settings, self.counters, Random(host_id), self._handle
        )
        self.channels.on_up = lambda host, run: self.ups.append((host, run))
        self.channels.on_down = self.downs.append
        self.address = LOOPBACK

    def _handle(self, host: int, method: int, head: bytes, body: memoryview) -> Answer | Awaitable[Answer]:
        self.seen.append((host, method, head))
        return self.handler(host, method, head, body)

    async def start(self, address: Address = LOOPBACK) -> Host:
        self.address = await self.channels.start(address)
        return self

    def knows(self, *others: Host) -> None:
        for other in others:
            self.channels.set_host(other.host_id, other.address)

    def kill(self) -> None:
        """Acts like a killed process: the sockets close without a goodbye."""
        kill(self.channels)


def kill(channels: Channels) -> None:
    channels._closing = True
    assert channels._server is not None
    channels._server.close()
    channels._deadlines.close()
    if channels._tick_timer is not None:
        channels._tick_timer.cancel()
    for peer in channels._peers.values():
        peer.stop_dialling()
    for link in list(channels._links):
        link.abort()


async def until(what: Callable[[], object]) -> None:
    """Waits until `what` is true."""
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def connected(*hosts: Host) -> None:
    """Waits until each is connected to all others."""
    for host in hosts:
        for other in hosts:
            if host is not other:
                await until(lambda h=host, o=other: h.channels.is_up(o.host_id))
