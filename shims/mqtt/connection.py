"""One connection of the MQTT face: a session with a transport under it.

It has what asyncio calls of a `Protocol` without being one, so that it can be compiled; `server` joins the
two.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol, cast

from treecast.middleware.broker import Turn
from treecast.middleware.broker.pubsub import PubSub
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.ration import Ration

from .session import Session
from .session_input import MqttCounting
from .session_output import Outputs, SessionOutput
from .sessions import Sessions
from .settings import MqttSettings

if TYPE_CHECKING:
    from .websocket import WebSocket

_log = logging.getLogger("treecast.mqtt")

DISK_REFUSES: Final = "the disk refuses"  # how the failure begins of a session that is ended for that
_LINGER: Final = 2.0  # seconds that a client may take to read the last that it is sent, and to close
_HTTP: Final = b"G"  # how the only other protocol begins that is served here

Gathered = list[tuple[SessionOutput, list[bytes]]]


class Owner(Protocol):
    """What a connection needs of the face that it belongs to."""

    loop: asyncio.AbstractEventLoop
    settings: MqttSettings
    sessions: Sessions
    outputs: Outputs
    counting: MqttCounting

    def opened(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def web_socket(self, connection: Connection) -> WebSocket: ...


class Connection(Session):
    """Serves one client."""

    def __init__(self, face: Owner) -> None:
        super().__init__(face.sessions, face.outputs, face.counting, face.loop.time())
        self.peer = ""
        self._face = face
        self._loop = face.loop
        self._counting = face.counting
        self._transport: asyncio.Transport | None = None
        self._web: WebSocket | None = None
        self._fresh = True
        self._ended = False
        self._ration = Ration()
        self._held = False  # it may not be read from before `resume_reading`

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._face.settings.send_buffer_bytes)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix socket"
        self._face.opened(self)

    def data_received(self, data: bytes) -> None:
        self._counting.bytes_in += len(data)
        if self._ended:
            return
        self._hub.wall = time.time()
        if self._ration.eaten(len(data), self._loop.time()):
            self._pause()
            self._loop.call_soon(self._read_on)
        if self._fresh:
            self._fresh = False
            if data.startswith(_HTTP):
                self._web = self._face.web_socket(self)
        web = self._web
        if web is None:
            self._take(data)
            return
        for part in web.receive(data):
            self._take(part)
        self.mark()
        if web.closed and not self.closing:
            self.lost(self._loop.time())

    def _take(self, data: bytes) -> None:
        try:
            self.receive(data, self._loop.time())
        except Exception:
            _log.exception("a packet of %s failed", self.peer)
            self.disconnect_internal()

    def disconnect_internal(self) -> None:
        """An error of our own ends this connection only."""
        self.failure = "internal error"
        self.lost(self._loop.time())
        self.mark()

    def eof_received(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """What the client sends waits in its socket. To be called again without harm."""
        self._held = True
        self._pause()

    def resume_reading(self) -> None:
        self._held = False
        self._read_on()

    def _pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if not self._held and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.congest(True)

    def resume_writing(self) -> None:
        self.congest(False)
        state = self.state
        if state is not None and state.session is self:
            state.pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.lost(self._loop.time())
        self._face.closed(self)

    # --- the turn's end

    def write(self, chunks: list[bytes]) -> None:
        """Writes what a turn has gathered, and closes where that was the last."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        web = self._web
        if web is not None:
            chunks = web.send(chunks)
        for chunk in chunks:
            self._counting.bytes_out += len(chunk)
            transport.write(chunk)
        if self.closing:
            self._close(transport)
            return
        state = self.state
        if self.writable and state is not None and state.session is self and state.queued:
            state.pump()

    def _close(self, transport: asyncio.Transport) -> None:
        """Lets the client read why first: closed at once, what it still sends would make it lose that."""
        web = self._web
        if web is not None:
            for chunk in web.close():
                transport.write(chunk)
        if self._ended:
            return
        self._ended = True
        if self.failure and transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()
        self._loop.call_later(_LINGER, transport.abort)

    @property
    def promises(self) -> bool:
        """Whether what is gathered may not be said before it is stored."""
        state = self.state
        return self.depends or (state is not None and state.record is not None)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Spoken:
    """What connections have to say when a turn is stored. Implements `broker.Speaker`."""

    def __init__(
        self, hub: PubSub, turn: Turn, outputs: Outputs, counting: MqttCounting, counters: FaceCounters
    ) -> None:
        self._hub = hub
        self._turn = turn
        self._outputs = outputs
        self._counting = counting
        self._counters = counters
        self._gathered: Gathered = []
        self._held_back: dict[Connection, None] = {}  # not read from until other hosts have more room

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        self._held_back.pop(connection, None)

    def gather(self) -> None:
        """What connections have to send by now."""
        self._gathered = [(session, session.take_output()) for session in self._outputs.take()]
        self._counting.fold(self._counters)
        self._hub.fold()

    def say(self) -> None:
        """It is stored."""
        gathered, self._gathered = self._gathered, []
        if self._turn.congested:
            self._hold_back(gathered)
        elif self._held_back:
            self._let_on()
        for session, chunks in gathered:
            session.depends = False
            session.write(chunks)

    def _hold_back(self, gathered: Gathered) -> None:
        """Who publishes what is promised is not read from: it would wait here, in memory."""
        for session, _ in gathered:
            if isinstance(session, Connection) and session.promises:
                session.pause_reading()
                self._held_back[session] = None

    def _let_on(self) -> None:
        held_back, self._held_back = self._held_back, {}
        for connection in held_back:
            connection.resume_reading()

    def refuse(self) -> None:
        """The disk refuses: nothing of what is promised may be said, and who waits for it is sent away."""
        gathered, self._gathered = self._gathered, []
        for session, chunks in gathered:
            if isinstance(session, Connection) and session.promises:
                session.failure = DISK_REFUSES
                session.abort()
            else:
                session.write(chunks)
