"""Reads the requests of calls, so that strangers hold little memory and keep nobody waiting for long.

gRPC receives a whole message, up to `LARGEST` bytes, once it is asked for, and before that only a window of
`WINDOW` bytes. So few messages are asked for at a time:

| calls | read at a time | of one connection | when others wait |
| --- | --- | --- | --- |
| signed for this run, or over a Unix socket | 64 | 16 | - |
| any other | 8 | 2 | those that take longer than `HURRY` s end |

Calls wait in turn, by connection. Each ends if its request is not there after `SECONDS`. If more than
`UNREAD` calls wait or are read, the connection with the most loses its earliest.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Any, Final, TypeVar

import grpc

from treecast.middleware.model.errors import Fault, TreecastError

T = TypeVar("T")

LARGEST: Final = 4 << 20
WINDOW: Final = 16 << 10
SECONDS: Final = 10.0
HURRY: Final = 1.0
UNREAD: Final = 2048
OTHERS: Final = 8
EACH: Final = 2
STREAMS: Final = 100  # calls of one connection at a time

# Options of a server that strangers reach. `connections` is a limit of its own for each listener.
OPTIONS: Final = (
    ("grpc.max_receive_message_length", LARGEST),
    ("grpc.max_concurrent_streams", STREAMS),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.http2.lookahead_bytes", WINDOW),
    ("grpc.http2.bdp_probe", 0),  # would widen the window
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
)
MOST_CONNECTIONS: Final = "grpc.max_allowed_incoming_connections"


class _Reading:
    """One call whose request is not there yet."""

    __slots__ = ("over", "peer", "since")

    def __init__(self, peer: str, over: asyncio.Future[None]) -> None:
        self.peer = peer
        self.since = 0.0
        self.over = over

    def end(self) -> None:
        """Ends the call: its time is over."""
        if not self.over.done():
            self.over.set_result(None)

    async def wait_for(self, what: asyncio.Future[T]) -> T:
        """Waits for `what`. Raises TimeoutError, after having cancelled it, if the time is over first.

        A cancellation of the call's task, as by `asyncio.timeout`, could come while the request arrives, and
        would then end the call later.
        """
        try:
            await asyncio.wait((what, self.over), return_when=asyncio.FIRST_COMPLETED)
            if what.done():
                return what.result()
            raise TimeoutError
        finally:
            what.cancel()


class Slots:
    """The right to read, given to `most` calls at a time, and to `each` of one connection."""

    def __init__(self, most: int, each: int, hurry: float = 0.0) -> None:
        """`hurry`: seconds that a call may take while others wait; 0.0: as long as it likes."""
        self._most = most
        self._each = each
        self._hurry = hurry
        self._reading: dict[_Reading, None] = {}  # earliest first
        self._of: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, one: _Reading) -> None:
        """Waits for the call's turn."""
        if len(self._reading) >= self._most or self._of.get(one.peer, 0) >= self._each:
            await self._turn(one)
        else:
            self._of[one.peer] = self._of.get(one.peer, 0) + 1
        one.since = asyncio.get_running_loop().time()
        self._reading[one] = None

    def give(self, one: _Reading) -> None:
        """The request is there, or its call has ended. Does nothing if it had no turn yet."""
        if one in self._reading:
            del self._reading[one]
            self._less(one.peer)
            self._next()

    async def _turn(self, one: _Reading) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(one.peer, deque()).append(turn)
        self._watch()
        try:
            await one.wait_for(turn)
        except BaseException:
            if not turn.cancelled():
                self._less(one.peer)  # its turn had come
                self._next()
            raise

    def _less(self, peer: str) -> None:
        self._of[peer] -= 1
        if not self._of[peer]:
            del self._of[peer]

    def _given(self) -> int:
        return sum(self._of.values())

    def _next(self) -> None:
        """Gives the free turns to those that wait, by connection."""
        free = self._most - self._given()
        for peer in list(self._waiting):
            if free <= 0:
                return
            if self._of.get(peer, 0) >= self._each:
                continue
            queue = self._waiting.pop(peer)
            while queue and queue[0].done():
                queue.popleft()
            if queue:
                queue.popleft().set_result(None)
                self._of[peer] = self._of.get(peer, 0) + 1
                free -= 1
            if queue:
                self._waiting[peer] = queue  # behind all others

    # --- those that take long

    def _watch(self) -> None:
        if self._hurry and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._hurry, self._look)

    def _look(self) -> None:
        """Ends as many slow calls as there are connections that wait for a turn."""
        self._timer = None
        wanted = sum(1 for peer in self._waiting if self._of.get(peer, 0) < self._each)
        latest = asyncio.get_running_loop().time() - self._hurry
        slow = [one for one in self._reading if one.since <= latest]
        for one in slow[:wanted]:
            one.end()
        if self._waiting:
            self._watch()


class CallBodies:
    """Reads the requests of one server's calls."""

    def __init__(self) -> None:
        self.ended = 0
        self._trusted = Slots(64, 16)
        self._others = Slots(OTHERS, EACH, HURRY)
        self._of: dict[str, dict[_Reading, None]] = {}
        self._count = 0

    async def read(self, context: Any, trusted: bool) -> bytes:
        """Returns the request of a call. Raises TreecastError if it does not come."""
        slots, loop = self._trusted if trusted else self._others, asyncio.get_running_loop()
        one = _Reading(context.peer(), loop.create_future())
        timer = loop.call_later(SECONDS, one.end)
        self._enter(one)
        try:
            await slots.take(one)
            message = await one.wait_for(asyncio.ensure_future(context.read()))
        except TimeoutError:
            self.ended += 1
            raise TreecastError(Fault.TIMED_OUT, "the request did not arrive in time") from None
        finally:
            timer.cancel()
            slots.give(one)
            self._leave(one)
        if message is grpc.aio.EOF:
            raise TreecastError(Fault.INVALID_REQUEST, "the call has no request")
        return bytes(message)

    def _enter(self, one: _Reading) -> None:
        self._of.setdefault(one.peer, {})[one] = None
        self._count += 1
        if self._count > UNREAD:
            fullest = one.peer
            if len(self._of[fullest]) < self._count / len(self._of):
                fullest = max(self._of, key=lambda peer: len(self._of[peer]))
            earliest = next(iter(self._of[fullest]))
            self._leave(earliest)
            earliest.end()

    def _leave(self, one: _Reading) -> None:
        """Counts a call out. Safe to call twice."""
        calls = self._of.get(one.peer)
        if calls is None or one not in calls:
            return
        self._count -= 1
        del calls[one]
        if not calls:
            del self._of[one.peer]
