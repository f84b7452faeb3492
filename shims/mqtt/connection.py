"""One connection of the MQTT face: a session on top of a transport.

The class has the methods of an asyncio `Protocol` but does not inherit from it, so it can be compiled;
`server` connects the two.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol, cast

from treecast.middleware.broker import Turn
from treecast.middleware.broker.access import Allowance
from treecast.middleware.broker.pubsub import PubSub
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.logs import Log
from treecast.middleware.model.ration import Ration
from treecast.middleware.model.visitors import Visitor, address_of
from treecast.shims.log_ins import Outcome

from . import session_table
from .session import Session
from .session_output import FULL, Outputs, SessionOutput
from .session_publishing import MqttCounting
from .sessions import Sessions
from .settings import MqttSettings

if TYPE_CHECKING:
    from .websocket import WebSocket

_log = Log("treecast.mqtt")

DISK_REFUSES: Final = "the disk refuses"  # prefix of `failure` for sessions ended by a storage failure
_RATION: Final = 4 << 20  # bytes per turn; a MB of publishes takes a quarter of the time of a MB of records
_THROWN_AWAY: Final = 0.1  # seconds between reads of a connection that has ended
_LINGER: Final = 2.0  # seconds that a client has to read the final output and to close
_HTTP: Final = b"G"  # first byte of a WebSocket handshake ("GET"); CONNECT starts with another

Gathered = list[tuple[SessionOutput, list[bytes]]]


class Owner(Protocol):
    """The part of the face that its connections use."""

    loop: asyncio.AbstractEventLoop
    settings: MqttSettings
    sessions: Sessions
    outputs: Outputs
    counting: MqttCounting

    def opened(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def web_socket(self, connection: Connection) -> WebSocket: ...


class Connection:
    """Serves one client: the edge of its `session`."""

    def __init__(self, face: Owner) -> None:
        self.session = Session(face.sessions, face.outputs, face.counting, face.loop.time())
        self.output = self.session.output
        self.peer = ""
        self.reached = ""  # the address of this host that the client reached; "" for a Unix socket
        self._face = face
        self._hub = face.sessions.hub
        self._work = face.sessions.work
        self._loop = face.loop
        self._counting = face.counting
        self._transport: asyncio.Transport | None = None
        self._web: WebSocket | None = None
        self._fresh = True
        self._ended = False
        self._ration = Ration(self._loop.call_soon, _RATION)
        self._held = False  # reading stays paused until `resume_reading`
        self._short = False  # no memory for the rest of a packet: paused until `wait_for_memory` says so
        self._holds = False  # bytes of an unfinished packet are counted in the budget
        self._known = False
        self._allowance = Allowance(face.sessions.identities.quotas)
        self._throttled = False  # a quota is used up: paused until `_unthrottle`
        self._stalled = False  # the transport takes no more for now
        self._owes = False  # a quota of what it gets is used up: nothing is delivered until `_paid`
        self.visitor: Visitor | None = None

    # --- asyncio callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.output.edge = self  # until the connection is lost, so that no cycle keeps a closed one
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._face.settings.send_buffer_bytes)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix socket"
        here = transport.get_extra_info("sockname")
        self.reached = str(here[0]) if isinstance(here, tuple) else ""
        self.session.connection.address = self.output.address = address_of(peer)
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            identities = self._face.sessions.identities
            self.session.connection.certified = identities.user_of(secured.getpeercert() or {})
        self._face.opened(self)

    def data_received(self, data: bytes) -> None:
        self._counting.bytes_in += len(data)
        if self._ended:  # what comes now is thrown away: not as fast as a client can send it
            self._pause()
            self._loop.call_later(_THROWN_AWAY, self._read_on)
            return
        self._hub.clock.wall = time.time()
        if len(data) > self._ration.free and self._ration.eaten(len(data)):
            self._pause()
            # Other connections are read in between: the ration is what one may take of a pass of the loop.
            self._loop.call_soon(self._read_on)
        if self._fresh:
            # Only the first bytes can open a web socket. Later, the same bytes may be any payload.
            self._fresh = False
            if data.startswith(_HTTP):
                self._web = self._face.web_socket(self)
        web = self._web
        if web is None:
            self._take(data)
        else:
            for part in web.receive(data):
                self._take(part)
            self.output.mark()
            # Answers of the web socket itself (pong, close) are written at the end of the turn, even if no
            # packet came.
            if web.closed and not self.output.closing:
                self.output.failure = web.refusal
                self.session.lost(self._loop.time())
        if self.output.phase == session_table.CHECKING:
            self._pause()
        if self._allowance.quotas.any:
            self._count(len(data))
        # Counted last: what is still unfinished is known only after the packets were taken.
        self._hold(len(data))

    def _count(self, size: int) -> None:
        """Counts what has come in the client's quota, once it is known. The rest is read later."""
        state, now = self.session.connection.state, self._loop.time()
        if state is None:
            return
        wait = self._allowance.of(state.user, state.client_id, now).sent(size, now)
        if wait > 0:
            self._throttled = True
            self._pause()
            self._loop.call_later(wait, self._unthrottle)

    def _unthrottle(self) -> None:
        self._throttled = False
        self._read_on()

    def checked(self, outcome: Outcome) -> None:
        try:
            self.session.checked(outcome, self._loop.time())
        except Exception:
            _log.exception("packet failed", peer=self.peer)
            self.disconnect_internal()
        self._hold(0)
        self._read_on()

    def _hold(self, got: int) -> None:
        """Counts the memory of an unfinished packet. `got`: bytes that have come."""
        visitor = self.visitor
        if visitor is None:
            return
        if not self._known and self.session.connection.state is not None:
            self._known = True
            visitor.known()
        size = self.session.memory
        if self._web is not None:
            size += self._web.memory
        if size or self._holds:
            self._holds = size > 0
            visitor.holding.hold(size, got, self._loop.time())

    def wait_for_memory(self, waits: bool) -> None:
        """Stops or continues reading: others need the memory."""
        self._short = waits
        if waits:
            self._pause()
        else:
            self._read_on()

    def _take(self, data: bytes) -> None:
        try:
            self.session.receive(data, self._loop.time())
        except Exception:
            _log.exception("packet failed", peer=self.peer)
            self.disconnect_internal()

    def disconnect_internal(self) -> None:
        """Ends this connection after an internal error; other connections are unaffected."""
        self.output.failure = "internal error"
        self.session.lost(self._loop.time())
        self.output.mark()

    # False closes the transport: a client that ends its side without DISCONNECT has its will published.
    def eof_received(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Stops reading: further data stays in the socket buffer. Idempotent."""
        self._held = True
        self._pause()

    def resume_reading(self) -> None:
        self._held = False
        self._read_on()

    def _pause(self) -> None:
        self.session.connection.paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def suspended(self) -> None:
        self._pause()
        self._work.later(self._next_pass)

    def going_on(self) -> None:
        self._read_on()

    def _next_pass(self) -> None:
        self._hub.clock.wall = time.time()
        try:
            self.session.go_on(self._loop.time())
        except Exception:
            _log.exception("packet failed", peer=self.peer)
            self.disconnect_internal()

    def _read_on(self) -> None:
        checking = self.output.phase == session_table.CHECKING
        # Each reason to wait is kept by itself: when one ends, another may still hold.
        waits = self._held or self._short or self.session.suspended or checking or self._throttled
        if not waits and self._transport is not None and not self._transport.is_closing():
            connection = self.session.connection
            if connection.paused:  # what it has sent meanwhile is still to be read
                connection.paused = False
                connection.last_activity = self._loop.time()
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._stalled = True
        self.output.congest(True)

    def resume_writing(self) -> None:
        self._stalled = False
        self._deliver_on()

    def _deliver_on(self) -> None:
        if not self._stalled and not self._owes and self._transport is not None:
            self.output.congest(False)
            self.session.connection.resume()

    def _count_sent(self, size: int) -> None:
        """Counts what was sent in the client's quota. What is delivered after it waits."""
        state, now = self.session.connection.state, self._loop.time()
        if state is None:
            return
        spending = self._allowance.of(state.user, state.client_id, now)
        self.output.most = spending.at_once(FULL)
        wait = spending.fetched(size, now)
        if wait > 0 and not self._owes:
            self._owes = True
            self.output.congest(True)
            self._loop.call_later(wait, self._paid)

    def _paid(self) -> None:
        self._owes = False
        self._deliver_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.session.lost(self._loop.time())
        self.session.forget()
        self._web = None
        self._face.closed(self)

    # --- output at the end of a turn

    def write(self, chunks: list[bytes]) -> None:
        """Writes the output of a turn, then closes the transport if the session is closing."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        web = self._web
        if web is not None:
            chunks = web.send(chunks)
        size = 0
        for chunk in chunks:
            size += len(chunk)
            transport.write(chunk)
        self._counting.bytes_out += size
        if self._allowance.quotas.any:
            self._count_sent(size)
        if self.output.closing:
            self._close(transport)
        elif self.output.writable:
            self.session.connection.resume()

    def _close(self, transport: asyncio.Transport) -> None:
        """Sends EOF and lingers, so the client can read the reason.

        An immediate close while the client still sends would reset the connection and lose that output.
        """
        web = self._web
        if web is not None:
            for chunk in web.close():
                transport.write(chunk)
        if self._ended:
            return
        # A second call would start a second timer; the web socket's close frame is sent once in any case.
        self._ended = True
        if self.output.failure and transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()
        self._loop.call_later(_LINGER, transport.abort)

    @property
    def promises(self) -> bool:
        """Whether the gathered output must not be sent before the turn is stored."""
        state = self.session.connection.state
        return self.output.depends or (state is not None and state.record is not None)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Spoken:
    """The output of connections, held until the turn is stored. Implements `broker.Speaker`."""

    def __init__(
        self, hub: PubSub, turn: Turn, outputs: Outputs, counting: MqttCounting, counters: FaceCounters
    ) -> None:
        self._hub = hub
        self._turn = turn
        self._outputs = outputs
        self._counting = counting
        self._counters = counters
        self._gathered: Gathered = []
        self._held_back: dict[Connection, None] = {}  # reading paused until other hosts have more room

    def forget(self, connection: Connection) -> None:
        """Removes a closed connection."""
        self._held_back.pop(connection, None)

    def gather(self) -> None:
        """Collects the pending output of all connections."""
        self._gathered = [(output, output.take()) for output in self._outputs.take()]
        self._counting.fold(self._counters)
        self._hub.fold()

    def say(self) -> None:
        """Writes the gathered output after the turn was stored."""
        gathered, self._gathered = self._gathered, []
        if self._turn.congested:
            self._hold_back(gathered)
        elif self._held_back:
            self._let_on()
        for output, chunks in gathered:
            output.depends = False
            output.edge.write(chunks)

    def _hold_back(self, gathered: Gathered) -> None:
        """Pauses reading from connections whose publishes need storing, since these would queue in memory."""
        for output, _ in gathered:
            connection = output.edge
            if isinstance(connection, Connection) and connection.promises:
                connection.pause_reading()
                self._held_back[connection] = None

    def _let_on(self) -> None:
        held_back, self._held_back = self._held_back, {}
        for connection in held_back:
            connection.resume_reading()

    def refuse(self) -> None:
        """Aborts the connections that wait for a promise after storing failed, and writes the others."""
        gathered, self._gathered = self._gathered, []
        for output, chunks in gathered:
            connection = output.edge
            if isinstance(connection, Connection) and connection.promises:
                output.failure = DISK_REFUSES
                connection.abort()
            else:
                connection.write(chunks)
