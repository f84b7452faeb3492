"""Fabrics in one process over loopback sockets, and sockets that lose packets."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from treecast.middleware.fabric.carriers.ip_multicast import NAME as IP_MULTICAST
from treecast.middleware.fabric.core.reorder import Delivery
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.wire.segment import KeyRing

# A socket on STARE's port hears every group that any process of this machine has joined, so it also hears
# other tests. With a key of its own each test process is a separate cluster, never the same host and stream.
KEYS = KeyRing({3: os.urandom(32)}, 3)
STREAM = StreamSettings(report_every=0.01, round_trip=0.002)
ALONE = FabricSettings(stream=STREAM, carriers=())  # hears no other process, only this test
PATIENCE = 60.0  # seconds until a test gives up; no test asserts it


class Collected:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.calls = 0
        self.error: Exception | None = None

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.calls += 1
        self.deliveries += deliveries

    def failed(self, error: Exception) -> None:
        self.error = error

    @property
    def payloads(self) -> list[bytes]:
        return [one.message.payload for one in self.deliveries]


class LossySocket:
    """Loses some send calls; each is one datagram or one burst."""

    def __init__(self, sock: socket.socket, seed: int, loss: float) -> None:
        self._sock = sock
        self._random = random.Random(seed)
        self.loss = loss
        self.lost = 0

    def _loses(self) -> bool:
        lost = self._random.random() < self.loss
        self.lost += lost
        return lost

    def sendto(self, data: bytes, address: Any) -> int:
        return len(data) if self._loses() else self._sock.sendto(data, address)

    def sendmsg(self, buffers: Sequence[bytes], *more: Any) -> int:
        return sum(map(len, buffers)) if self._loses() else self._sock.sendmsg(buffers, *more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def lose(fabric: Fabric, seed: int, loss: float) -> LossySocket:
    lossy = LossySocket(fabric._udp.sock, seed, loss)
    fabric._udp.sock = lossy  # type: ignore[assignment]
    return lossy


@asynccontextmanager
async def fabrics(
    *hosts: int, address: str = "127.0.0.1", settings: FabricSettings | None = None, keys: KeyRing = KEYS
) -> AsyncIterator[list[Fabric]]:
    """Starts fabrics that know each other."""
    made = [
        Fabric(host, settings or FabricSettings(stream=STREAM), keys, FabricCounters(), random.Random(host))
        for host in hosts
    ]
    for fabric in made:
        await fabric.start((address, 0))
    for one in made:
        for other in made:
            if other is not one:
                one.set_host(other.host, other.address)
    try:
        yield made
    finally:
        for fabric in made:
            fabric.close()


def join(fabric: Fabric, state: int) -> None:
    """Joins the state's ip-multicast group, whether a switch was told of it or not."""
    fabric.carriers.of_form(IP_MULTICAST).join(state)


def leave(fabric: Fabric, state: int) -> None:
    fabric.carriers.of_form(IP_MULTICAST).leave(state)


async def until(reached: Callable[[], bool]) -> None:
    """Waits for the condition. Raises TimeoutError after `PATIENCE`."""
    async with asyncio.timeout(PATIENCE):
        while not reached():  # noqa: ASYNC110 - any state may be asked for
            await asyncio.sleep(0.005)
