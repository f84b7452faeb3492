"""Streams of controllers: a bounded queue for each; excess messages are dropped and counted."""

from __future__ import annotations

import asyncio
from collections import deque

from finsy.proto import p4r
from msgspec import Struct

from treecast.middleware.dataplane.p4 import P4RuntimeError

MOST_WAITING = 4096
MOST_WAITING_BYTES = 8 * 1024 * 1024


class StreamCounters(Struct):
    """Statistics of the endpoint. `dropped`: messages that a slow controller had no room for."""

    packet_ins: int = 0
    packet_outs: int = 0
    dropped: int = 0
    unheard: int = 0  # messages while there was no primary
    errors: int = 0


class Client:
    """One stream. Notifications always find room: a controller that makes them must read them."""

    def __init__(self, peer: str, counters: StreamCounters) -> None:
        self.peer = peer
        self._counters = counters
        self._waiting: deque[p4r.StreamMessageResponse] = deque()
        self._bytes = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False
        self.failure: P4RuntimeError | None = None

    def tell(self, message: p4r.StreamMessageResponse) -> None:
        """Queues a message that may be dropped: packets, digests, idle entries, errors."""
        size = message.ByteSize()
        if len(self._waiting) >= MOST_WAITING or self._bytes + size > MOST_WAITING_BYTES:
            self._counters.dropped += 1
            return
        self.notify(message)

    def notify(self, message: p4r.StreamMessageResponse) -> None:
        """Queues a message that may not be dropped."""
        self._waiting.append(message)
        self._bytes += message.ByteSize()
        if len(self._waiting) >= MOST_WAITING:
            self._room.clear()
        self._more.set()

    async def room(self) -> None:
        """Waits until the controller has read; asked before more is read from it."""
        await self._room.wait()

    def end(self, failure: P4RuntimeError | None = None) -> None:
        """Ends the stream with `failure`."""
        self.failure, self._ended = failure, True
        self._more.set()
        self._room.set()

    async def next(self) -> p4r.StreamMessageResponse | None:
        """Returns the next message; None at the end. A failure ends it at once; a normal end first delivers
        waiting messages.
        """
        while not self._waiting and not self._ended:
            self._more.clear()
            await self._more.wait()
        if not self._waiting or self.failure is not None:
            return None
        message = self._waiting.popleft()
        self._bytes -= message.ByteSize()
        self._room.set()
        return message
