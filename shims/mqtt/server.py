"""The asyncio side of the MQTT face: listeners, open connections, output per turn, and shutdown."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from treecast.middleware.broker import Turn
from treecast.middleware.broker.pubsub import PubSub
from treecast.middleware.model.budget import WorkBudget
from treecast.middleware.model.counters import FaceCounters, PubSubLevels
from treecast.middleware.model.logs import Log
from treecast.shims.listening import ChunkProtocol, Listeners
from treecast.shims.protocol_errors import ProtocolErrors
from treecast.shims.ticks import TICK, Ticks

from . import codec, sys_topics
from .connection import DISK_REFUSES, Connection, Spoken
from .restoring import restore
from .reviewing import review
from .session_output import Outputs
from .session_publishing import MqttCounting
from .sessions import Sessions
from .settings import MqttSettings

if TYPE_CHECKING:
    from .websocket import WebSocket

_log = Log("treecast.mqtt")


class MqttFace:
    """The MQTT face of one daemon, from `start` to `close`."""

    def __init__(
        self,
        hub: PubSub,
        turn: Turn,
        settings: MqttSettings,
        counters: FaceCounters,
        rng: random.Random | None = None,
        levels: PubSubLevels | None = None,
        work: WorkBudget | None = None,
    ) -> None:
        """`levels` is updated periodically with the current numbers of sessions. `work` is the host's; the
        default is one of the face's own."""
        self.settings = settings
        self.counters = counters
        self.counting = MqttCounting()
        self.hub = hub
        self.sessions = Sessions(hub, settings, rng or random.Random())
        self.loop: asyncio.AbstractEventLoop
        self.outputs = Outputs(turn.ask)
        self._turn = turn
        self._work = work
        self._spoken = Spoken(hub, turn, self.outputs, self.counting, counters)
        self.listeners = Listeners(settings, counters, self._connect, self._refused_handshake)
        self._connections: set[Connection] = set()
        self._errors = ProtocolErrors(counters.protocol_errors, _log)
        self._timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None
        self.levels = levels if levels is not None else PubSubLevels()
        self.ticks = Ticks()
        self._started_at = 0.0
        self._sys_at = 0.0
        self._took_up = False

    @property
    def address(self) -> tuple[str, int]:
        """The (host, port) of the listener without TLS, or the configured one if that is off."""
        return self.listeners.address

    @property
    def tls_address(self) -> tuple[str, int] | None:
        """The (host, port) of the TLS listener, or None if TLS is off."""
        return self.listeners.tls_address

    @property
    def connections(self) -> int:
        return len(self._connections)

    def take_up(self) -> None:
        """Restores the sessions from the journal. `start` calls it if nobody has before."""
        self._took_up = True
        self._turn.add_speaker(self._spoken)
        self.loop = asyncio.get_running_loop()
        self.sessions.work = self._work or WorkBudget(self.loop.time, self.loop.call_soon)
        self._started_at = self.loop.time()
        self.hub.clock.wall = time.time()
        restored = restore(self.sessions, self.loop.time())
        if restored:
            _log.info("sessions restored", count=restored)
        self._review()
        self.sessions.identities.watch(self._review)

    def _review(self) -> None:
        """Ends what users may no longer do, after users or rules have changed."""
        review(self.sessions, self.loop.time())

    async def start(self) -> None:
        """Starts listening. Raises OSError if an address cannot be bound or a certificate cannot be read."""
        if not self._took_up:
            self.take_up()
        await self.listeners.open()
        self._tick()

    def _connect(self) -> asyncio.Protocol:
        return ChunkProtocol(Connection(self), self.listeners.visitors)

    async def close(self, grace: float = 5.0) -> None:
        """Stops accepting, disconnects the clients, and closes within `grace` seconds. Idempotent."""
        self.listeners.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._connections):
            connection.output.disconnect(codec.SHUTTING_DOWN, "the server is shutting down")
            connection.output.mark()
        if self._connections:
            self._all_closed = asyncio.Event()
            try:
                await asyncio.wait_for(self._all_closed.wait(), grace)
            except TimeoutError:
                _log.info("connections did not finish in time", count=len(self._connections))
            for connection in list(self._connections):
                connection.abort()
        self._turn.end()
        if self._took_up:
            self._turn.remove_speaker(self._spoken)
            self._took_up = False

    # --- periodic work

    def _tick(self) -> None:
        self.hub.clock.wall = time.time()
        now = self.loop.time()
        if self.ticks.tick(now):
            self.sessions.look_at_clients(now)
        self.sessions.tick(now)
        if now >= self._sys_at:
            self._sys_at = now + self.settings.sys_interval
            self._tell_of_itself(now)
        self._timer = self.loop.call_later(TICK, self._tick)

    def _tell_of_itself(self, now: float) -> None:
        self.counting.fold(self.counters)
        sys_topics.publish(self.hub, sys_topics.values(self.sessions, self.counters, now - self._started_at))
        levels = self.levels
        levels.sessions = len(self.sessions)
        levels.connected = self.sessions.connected

    # --- called by connections

    def opened(self, connection: Connection) -> None:
        self.counters.connections_opened += 1
        self._connections.add(connection)
        self.sessions.await_connect(connection.session.connection, self.loop.time())

    def closed(self, connection: Connection) -> None:
        self.counters.connections_closed += 1
        self._connections.discard(connection)
        self._spoken.forget(connection)
        if connection.output.failure:
            self._report(connection)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()

    def _refused_handshake(self, peer: str, reason: str) -> None:
        self._errors.add(self.loop.time(), reason, peer, reason)

    def web_socket(self, connection: Connection) -> WebSocket:
        """Returns the framing for a WebSocket client. The library is loaded for the first one."""
        from .websocket import WebSocket

        return WebSocket(self.settings.max_packet_bytes, self.settings.callers, connection.reached)

    def _report(self, connection: Connection) -> None:
        """Counts and logs a protocol violation or a disconnection by the server."""
        reason = connection.output.failure
        if reason.startswith(DISK_REFUSES):  # not the client's fault, and logged by the turn
            self._errors.count(DISK_REFUSES)
            return
        kind = reason.rpartition("[")[2].rstrip("]") if reason.endswith("]") else reason
        self._errors.add(self.loop.time(), kind, connection.peer, reason)


__all__ = ["MqttFace"]
