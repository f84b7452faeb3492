"""`TlsListener`: a TLS listener whose unfinished handshakes are bounded, for each address and in all.

asyncio's own server takes in whoever comes, and tells nobody of a connection before its handshake is done: a
stranger who begins ten thousand of them holds as many descriptors. Here a connection counts from its
acceptance on (`model.visitors`): above the limits the oldest unfinished handshake gives way to a newer one,
so silent strangers keep nobody out.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from treecast.middleware.model.logs import Log
from treecast.middleware.model.visitors import Visitor, Visitors

AGAIN_SECONDS: Final = 1.0  # until connections are accepted again after the system has refused it

_log = Log(__name__)


class Arrival:
    """One connection, from its acceptance on. `task` is cancelled if it has to give way while it is new."""

    __slots__ = ("failed", "peer", "task", "visitor")

    def __init__(self, peer: object) -> None:
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a client that has gone"
        self.task: asyncio.Task[None] | None = None
        self.visitor: Visitor | None = None
        self.failed: Callable[[], None] | None = None
        """Called once if it ends before its handshake is done."""

    def wait_for_memory(self, waits: bool) -> None:
        """A handshake holds no request."""

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def known(self) -> None:
        """Its holder has proven who it is: it gives way to nobody any more."""
        if self.visitor is not None:
            self.visitor.known()

    def left(self) -> None:
        """It is gone, or counts elsewhere from now on. Safe to call twice."""
        if self.visitor is not None:
            self.visitor.left()


def _no_report(reason: str, peer: str) -> None:
    """The default of `report`."""


class TlsListener:
    """Accepts connections, from `open` to `close`.

    `make` returns the protocol above TLS. `shaken` is told when a handshake is done: from then on whoever
    made the protocol calls `Arrival.left`; the default does so at once, so handshakes alone count.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        visitors: Visitors,
        seconds: float,
        make: Callable[[Arrival], asyncio.BaseProtocol],
        shaken: Callable[[Arrival], None] = Arrival.left,
    ) -> None:
        """`visitors`: the limits. `seconds`: that a handshake may take."""
        self.visitors = visitors
        self.report: Callable[[str, str], None] = _no_report
        """Gets the reason, one of CROWDED and HANDSHAKE, and the peer of a connection that ended before its
        handshake was done."""
        self._context = context
        self._seconds = seconds
        self._make = make
        self._shaken = shaken
        self._listener: socket.socket | None = None
        self._backlog = 0
        self._loop: asyncio.AbstractEventLoop
        self._tasks: set[asyncio.Task[None]] = set()
        self._later: asyncio.TimerHandle | None = None

    def open(self, listener: socket.socket, backlog: int = 128) -> None:
        """Listens with a bound TCP socket. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        self._backlog = backlog
        listener.setblocking(False)
        listener.listen(backlog)
        self._listener = listener
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Stops accepting, and ends the handshakes in progress. Safe to call twice."""
        if self._later is not None:
            self._later.cancel()
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        for task in list(self._tasks):
            task.cancel()

    # --- accepting

    def _accept(self) -> None:
        for _ in range(self._backlog):
            if self._listener is None:
                return
            try:
                made, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(self._listener, error)
                return
            self._admit(made, peer)

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """The system refuses connections, as without free descriptors: they wait in the kernel meanwhile."""
        _log.error("connections are not accepted", error=error.strerror, again_in=AGAIN_SECONDS)
        self._loop.remove_reader(listener.fileno())
        self._later = self._loop.call_later(AGAIN_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._listener is not None:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _admit(self, made: socket.socket, peer: object) -> None:
        arrival = Arrival(peer)
        arrival.visitor = self.visitors.enter(peer, arrival, self._loop.time())
        if arrival.visitor is None:
            made.close()
            self.report("CROWDED", arrival.peer)
            return
        made.setblocking(False)
        arrival.task = task = self._loop.create_task(self._shake(arrival, made))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake(self, arrival: Arrival, made: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(arrival),
                made,
                ssl=self._context,
                ssl_handshake_timeout=self._seconds,
            )
        except (OSError, asyncio.CancelledError) as error:  # ssl.SSLError and TimeoutError are OSErrors
            # The transport may not have begun to read: it ends by what it finds here.
            with suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)
            arrival.left()
            failed, arrival.failed = arrival.failed, None
            if failed is not None:
                failed()
            gave_way = isinstance(error, asyncio.CancelledError)
            if self._listener is not None:
                self.report("CROWDED" if gave_way else "HANDSHAKE", arrival.peer)
            return
        arrival.failed = None
        self._shaken(arrival)
