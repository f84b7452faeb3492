"""The asyncio edge of the Kafka face: listeners, open connections, idle timeouts, shutdown."""

from __future__ import annotations

import asyncio

from treecast.middleware.broker.access import Identities
from treecast.middleware.model.applications import Applications
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.logs import Log
from treecast.shims.listening import BufferProtocol, Listeners
from treecast.shims.log_ins import LogIns
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
        self.listeners = Listeners(settings, counters, self._connect, self._refused_handshake)
        self._connections: set[Connection] = set()
        self._errors = ProtocolErrors(counters.protocol_errors, _log)
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None
        self._held = 0
        self.applications = Applications()
        self.log_ins = LogIns()
        self.identities = Identities()

    @property
    def address(self) -> tuple[str, int]:
        """The (host, port) of the listener without TLS."""
        return self.listeners.address

    async def start(self) -> None:
        """Starts listening. Raises OSError if an address cannot be bound or a certificate cannot be read."""
        self.loop = asyncio.get_running_loop()
        self.dispatcher = Dispatcher(self._broker, self.settings, self.counters, self.loop, self.log_ins)
        self.identities.watch(self._review)
        self.turn = FaceTurn(self.loop, self._broker.polls)
        await self.listeners.open()
        self._sweep()

    def _connect(self) -> asyncio.BaseProtocol:
        return BufferProtocol(Connection(self), self.listeners.visitors)

    def _refused_handshake(self, peer: str, reason: str) -> None:
        self._errors.add(self.loop.time(), reason.partition(":")[0], peer, reason)

    async def close(self, grace: float = 5.0) -> None:
        """Stops accepting, answers open requests within `grace` seconds, then closes. Safe to call twice."""
        self.listeners.close()
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
        secured = transport.get_extra_info("ssl_object") is not None
        told = self.settings.tls_advertised if secured else self.settings.advertised
        if told is not None:
            return told
        own = transport.get_extra_info("sockname")
        if not isinstance(own, tuple):
            return self.address  # a unix socket
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

    def _review(self) -> None:
        """Ends what goes on without asking, after users or rules have changed: connections of users who are
        gone, and of nobody where there are users by now. Everything else asks for its rights at each use."""
        for connection in [one for one in self._connections if one.log_in.lapsed]:
            connection.abort()

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
