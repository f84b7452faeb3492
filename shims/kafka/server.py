"""The asyncio edge of the Kafka face: listeners, open connections, idle timeouts, shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from treecast.middleware.model.applications import Applications
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.logs import Log
from treecast.middleware.model.visitors import Visitors
from treecast.shims.listening import BufferProtocol, TurnedAway, always, remove_socket
from treecast.shims.protocol_errors import ProtocolErrors

from .connection import Connection, FaceTurn
from .dispatch import BrokerView, Dispatcher
from .session import FramePool
from .settings import KafkaSettings

_log = Log("treecast.kafka")

_SWEEPS_PER_IDLE = 20
_SHORT_FETCH_BYTES = 64 * 1024


class KafkaFace:
    """The Kafka face of one daemon, from `start` to `close`."""

    def __init__(self, broker: BrokerView, settings: KafkaSettings, counters: FaceCounters) -> None:
        self.settings = settings
        self.counters = counters
        self.pool = FramePool()
        self.dispatcher: Dispatcher
        self.turn: FaceTurn
        self.loop: asyncio.AbstractEventLoop
        self._broker = broker
        self._servers: list[asyncio.AbstractServer] = []
        self._connections: set[Connection] = set()
        self._address = (settings.host, settings.port)
        self._errors = ProtocolErrors(counters.protocol_errors, _log)
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None
        self._held = 0
        self.applications = Applications()
        self.admits: Callable[[], bool] = always  # returns whether there is room for one more connection
        self.visitors = Visitors()  # the limits on connections

    @property
    def address(self) -> tuple[str, int]:
        """The (host, port) of the TCP listener."""
        return self._address

    async def start(self) -> None:
        """Starts listening. Raises OSError if an address cannot be bound."""
        self.loop = asyncio.get_running_loop()
        self.dispatcher = Dispatcher(self._broker, self.settings, self.counters, self.loop)
        self.turn = FaceTurn(self.loop, self._broker.polls)
        try:
            await self._listen()
        except BaseException:
            self._stop_listening()
            raise
        self._sweep()

    async def _listen(self) -> None:
        settings = self.settings
        server = await self.loop.create_server(
            self._protocol, settings.host, settings.port, backlog=settings.backlog
        )
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        self._address = (host, port)
        if settings.unix_path is not None:
            remove_socket(settings.unix_path)
            self._servers.append(
                await self.loop.create_unix_server(
                    self._protocol, str(settings.unix_path), backlog=settings.backlog
                )
            )

    def _protocol(self) -> asyncio.BaseProtocol:
        if not self.admits():
            self.counters.connections_refused += 1
            return TurnedAway()
        return BufferProtocol(Connection(self), self.visitors)

    def _stop_listening(self) -> None:
        for server in self._servers:
            server.close()
        if len(self._servers) > 1 and self.settings.unix_path is not None:
            remove_socket(self.settings.unix_path)
        self._servers.clear()

    async def close(self, grace: float = 5.0) -> None:
        """Stops accepting, answers open requests within `grace` seconds, then closes. Safe to call twice."""
        self._stop_listening()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self._connections):
            connection.finish()
        if self._connections:
            self._all_closed = asyncio.Event()
            try:
                await asyncio.wait_for(self._all_closed.wait(), grace)
            except TimeoutError:
                _log.info("connections did not finish in time", count=len(self._connections))
            for connection in list(self._connections):
                connection.abort()
        if self._sweep_timer is not None:  # it was started
            self.dispatcher.close()

    # --- called by connections

    def local_address(self, transport: asyncio.BaseTransport) -> tuple[str, int]:
        """Returns the (host, port) at which the client of `transport` reaches this daemon."""
        if self.settings.advertised is not None:
            return self.settings.advertised
        own = transport.get_extra_info("sockname")
        if not isinstance(own, tuple):
            return self._address  # a unix socket
        return own[0].removeprefix("::ffff:"), own[1]

    def hold(self, size: int) -> None:
        """Adds `size` (possibly negative) to the bytes that wait for clients that do not read.

        Above `unread_bytes`, all fetches are cut short.
        """
        self._held += size
        full = self._held > self.settings.unread_bytes
        self.dispatcher.fetch_max_bytes = _SHORT_FETCH_BYTES if full else self.settings.fetch_max_bytes

    def opened(self, connection: Connection) -> None:
        self.counters.connections_opened += 1
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        self.counters.connections_closed += 1
        self._connections.discard(connection)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()

    def report(self, connection: Connection, reason: str) -> None:
        """Counts and logs a client's protocol error."""
        kind = reason.partition(":")[0]
        self._errors.add(self.loop.time(), kind, connection.peer, reason)

    def _sweep(self) -> None:
        """Closes connections that have been idle for too long."""
        max_idle = self.settings.connections_max_idle_ms / 1000
        now = self.loop.time()
        for connection in [c for c in self._connections if c.is_idle(now, max_idle)]:
            connection.abort()
        self._sweep_timer = self.loop.call_later(max_idle / _SWEEPS_PER_IDLE, self._sweep)


def serve(broker: BrokerView, settings: KafkaSettings, counters: FaceCounters) -> KafkaFace:
    """Returns a face that serves `broker`; `await face.start()` opens it."""
    return KafkaFace(broker, settings, counters)


__all__ = ["KafkaFace", "serve"]
