"""The bytes that one connection may bring in one turn of the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from treecast.middleware.daemon.tuning import new_event_loop
from treecast.middleware.model.ration import RATION_BYTES, Ration

KIB = 1024


def test_a_ration_is_of_one_turn() -> None:
    passes: list[Callable[[], None]] = []
    ration = Ration(passes.append, 100 * KIB)
    assert [ration.eaten(40 * KIB) for _ in range(4)] == [False, False, True, True]
    [renew] = passes
    renew()
    assert not ration.eaten(40 * KIB)
    assert len(passes) == 2


def test_one_read_may_be_more_than_a_ration() -> None:
    assert Ration([].append, 100 * KIB).eaten(1000 * KIB)


def test_free_reads_are_less_than_a_ration_together() -> None:
    """libuv reads a socket up to 32 times in a turn; a request of a usual client costs no call."""
    assert 32 * Ration([].append).free <= RATION_BYTES


class Eater(asyncio.BufferedProtocol):
    """Counts the bytes of each turn. A read takes as long as the clock needs to move on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, whole: int) -> None:
        self.loop = loop
        self.ration = Ration(loop.call_soon)
        self.buffer = bytearray(256 * KIB)
        self.turns: list[int] = [0]
        self.left = whole
        self.done = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self.turns[-1]:
            self.loop.call_soon(self.turns.append, 0)
        self.turns[-1] += nbytes
        self.left -= nbytes
        begun = self.loop.time()
        while self.loop.time() == begun:  # as long as the work of a large read
            pass
        if self.ration.eaten(nbytes):
            self.transport.pause_reading()
            self.loop.call_soon(self.transport.resume_reading)
        if not self.left:
            self.done.set_result(None)


def test_a_turn_reads_no_more_than_a_ration_while_the_clock_moves_on() -> None:
    whole = 8 * RATION_BYTES

    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        eater = Eater(loop, whole)
        server = await loop.create_server(lambda: eater, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            await asyncio.gather(
                loop.run_in_executor(None, client.sendall, bytes(whole)), asyncio.wait_for(eater.done, 60)
            )
        server.close()
        return eater.turns

    loop = new_event_loop()
    try:
        turns = loop.run_until_complete(run())
    finally:
        loop.close()
    assert sum(turns) == whole
    assert max(turns) <= RATION_BYTES + 256 * KIB
