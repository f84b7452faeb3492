"""One connection of the MQTT face: a session with a transport under it.

It has what asyncio calls of a `Protocol` without being one, so that it can be compiled; `server` joins the
two.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol, cast

from treecast.middleware.model.ration import Ration

from .counting import MqttCounting
from .session import Session
from .session_output import Outputs
from .sessions import Sessions
from .settings import MqttSettings

if TYPE_CHECKING:
    from .websocket import WebSocket

_log = logging.getLogger("treecast.mqtt")

_LINGER: Final = 2.0  # seconds that a client may take to read the last that it is sent, and to close
_HTTP: Final = b"G"  # how the only other protocol begins that is served here


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
