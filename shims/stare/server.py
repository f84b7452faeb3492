"""The asyncio edge of the STARE face: listeners, connections, and VNFs that do not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import cast

from treecast.middleware.model.counters import FaceCounters, StareCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.visitors import Visitor, Visitors
from treecast.middleware.wire.stare_signals import Update
from treecast.shims.listening import ChunkProtocol, TurnedAway, always

from .codec import Code, Frame, Type
from .ports import Middleware
from .session import Session, State
from .settings import FaceSettings

_log = Log("treecast.stare")

_COST = 100  # bytes of memory of an update that waits, beside its value
_FRAME_ROOM = 64  # of a frame beside its value
_MOST_REASONS = 100
_MOST_REQUESTS = 1000  # of a VNF that are waited for
_CODES = {
    Fault.INVALID_REQUEST: Code.INVALID,
    Fault.INVALID_TOPIC: Code.INVALID,
    Fault.BATCH_TOO_LARGE: Code.TOO_LARGE,
    Fault.POLICY_VIOLATION: Code.LIMIT,
    Fault.COORDINATOR_UNAVAILABLE: Code.AWAY,
    Fault.TIMED_OUT: Code.AWAY,
    Fault.UNKNOWN_MEMBER: Code.AWAY,
    Fault.NOT_COORDINATOR: Code.AWAY,
}


def code_of(fault: Fault) -> Code:
    """Returns the face's code for a fault; INTERNAL for one that can only be our own mistake."""
    return _CODES.get(fault, Code.INTERNAL)


class StareFace:
    """The STARE face of one daemon, from `start` to `close`."""

    def __init__(
        self,
        middleware: Middleware,
        settings: FaceSettings,
        counters: FaceCounters,
        stare: StareCounters,
    ) -> None:
        self.middleware = middleware
        self.settings = settings
        self.counters = counters
        self.stare = stare
        self._servers: list[asyncio.AbstractServer] = []
        self.connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.admits: Callable[[], bool] = always  # whether there is room for one more connection
        self.visitors = Visitors()  # the limits on connections

    async def start(self, listeners: Sequence[socket.socket]) -> None:
        """Serves connections to listening sockets, and closes the sockets in the end."""
        loop = asyncio.get_running_loop()
        for listener in listeners:
            unix = listener.family == socket.AF_UNIX
            make = loop.create_unix_server if unix else loop.create_server
            self._servers.append(await make(self._protocol, sock=listener))

    def _protocol(self) -> asyncio.Protocol:
        if not self.admits():
            self.counters.connections_refused += 1
            return TurnedAway()
        return ChunkProtocol(Connection(self), self.visitors)

    async def close(self) -> None:
        """Tells the VNFs, and closes. Safe to call twice."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in list(self.connections):
            connection.end(Code.CLOSING, "the daemon ends")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def count(self, name: str) -> None:
        self.counters.requests[name] = self.counters.requests.get(name, 0) + 1

    def report(self, peer: str, kind: str, reason: str) -> None:
        """Reports a VNF that broke the protocol or did not read. Logs the 1st, 2nd, 4th... time of
        its kind.
        """
        counted = self.counters.protocol_errors
        if kind not in counted and len(counted) >= _MOST_REASONS:
            kind = "other"
        counted[kind] = count = counted.get(kind, 0) + 1
        if not count & (count - 1):
            _log.warning("connection closed", peer=peer, reason=reason, count=count)


class Connection:
    """One VNF. While it does not read, of each state and publisher only the newest update waits for it."""

    def __init__(self, face: StareFace) -> None:
        self._face = face
        self._session = Session(face.middleware.largest + _FRAME_ROOM)
        self._transport: asyncio.Transport | None = None
        self._vnf = 0
        self._peer = ""
        self._paused = False
        self._pending = 0  # requests that are waited for
        self._unread: dict[tuple[int, int], Update] = {}
        self._unread_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self.visitor: Visitor | None = None

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        face = self._face
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=face.settings.send_buffer)
        peer = transport.get_extra_info("peername")
        self._peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix socket"
        face.counters.connections_opened += 1
        face.connections.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(face.settings.hello_seconds, self._too_silent)
        if len(face.connections) > face.settings.most_connections:
            self._fail("too many", Code.LIMIT, f"{face.settings.most_connections} VNFs are connected already")

    def data_received(self, data: bytes) -> None:
        self._face.counters.bytes_in += len(data)
        for frame in self._session.receive(data):
            self._serve(frame)
        if self._session.failure:
            self._face.report(self._peer, "protocol", self._session.failure)
            self._finish()
        self._flush()

    def eof_received(self) -> bool:
        return False

    def wait_for_memory(self, waits: bool) -> None:
        """Frames are too small to be counted."""

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        waiting = list(self._unread.values())
        self._unread.clear()
        self._unread_bytes = 0
        self.deliver(waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        face = self._face
        face.counters.connections_closed += 1
        face.connections.discard(self)
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        if self._vnf:
            face.middleware.close_vnf(self._vnf)
            self._vnf = 0

    # --- serving

    def _serve(self, frame: Frame) -> None:
        self._face.count(frame.type.name.lower())
        if frame.type is Type.PUBLISH:
            self._publish(frame)
        elif frame.type is Type.UNSUBSCRIBE:
            self._face.middleware.unsubscribe(self._vnf, frame.state)
            self._session.done(frame.request, 0)
        elif self._pending >= _MOST_REQUESTS:
            self._session.refused(frame.request, Code.LIMIT, f"{_MOST_REQUESTS} requests are under way")
        else:
            self._pending += 1
            work = {Type.HELLO: self._open, Type.STATE: self._name, Type.SUBSCRIBE: self._subscribe}
            self._face.spawn(self._answer(frame, work[frame.type](frame)))

    def _publish(self, frame: Frame) -> None:
        try:
            number = self._face.middleware.publish(self._vnf, frame.state, frame.value)
        except TreecastError as error:
            self._session.refused(frame.request, code_of(error.fault), error.detail)
        else:
            self._session.done(frame.request, number)

    async def _answer(self, frame: Frame, work: Coroutine[None, None, None]) -> None:
        """Runs the work and tells the VNF its outcome, whatever it is."""
        try:
            await work
        except TreecastError as error:
            self._refuse(frame, code_of(error.fault), error.detail)
        except Exception:
            _log.exception("request failed", request=frame.type.name, peer=self._peer)
            self._refuse(frame, Code.INTERNAL, "internal error")
        finally:
            self._pending -= 1
        self._flush()

    def _refuse(self, frame: Frame, code: Code, text: str) -> None:
        if frame.type is Type.HELLO:
            self.end(code, text)
        else:
            self._session.refused(frame.request, code, text)

    async def _open(self, frame: Frame) -> None:
        if self.visitor is not None:
            self.visitor.known()
        vnf = await self._face.middleware.open(self)
        if self._transport is None or self._session.state is not State.OPENING:
            self._face.middleware.close_vnf(vnf)  # it has disconnected meanwhile
            return
        self._vnf = vnf
        self._session.welcome(vnf, self._face.middleware.largest)
        if self._timer is not None:
            self._timer.cancel()

    async def _name(self, frame: Frame) -> None:
        state = await self._face.middleware.state_of(tuple(frame.text.split("/")))
        self._session.state_is(frame.request, state)

    async def _subscribe(self, frame: Frame) -> None:
        acknowledged = await self._face.middleware.subscribe(self._vnf, frame.state)
        self._session.done(frame.request, int(acknowledged))

    # --- updates

    def deliver(self, updates: list[Update]) -> None:
        """Implements `ports.Vnf`."""
        if self._session.state is State.OVER:
            return
        for update in updates:
            if self._paused:
                if not self._wait(update):
                    return
            else:
                self._session.update(update.state, update.vnf, update.number, update.value)
        self._flush()

    def _wait(self, update: Update) -> bool:
        """Replaces an older update by a newer one, for a VNF that does not read. Returns False if the
        connection is over.
        """
        key = update.state, update.vnf
        before = self._unread.pop(key, None)
        if before is not None:
            self._face.stare.conflated += 1
            self._unread_bytes -= len(before.value) + _COST
        self._unread[key] = update
        self._unread_bytes += len(update.value) + _COST
        if self._unread_bytes <= self._face.settings.unread_bytes:
            return True
        self._unread.clear()
        self._unread_bytes = 0
        self._fail("slow", Code.SLOW, "too much waits to be read")
        return False

    # --- the socket

    def _flush(self) -> None:
        data = self._session.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._face.counters.bytes_out += len(data)
            self._transport.write(data)

    def _too_silent(self) -> None:
        if self._session.state in (State.NEW, State.OPENING):
            self._fail("silent", Code.PROTOCOL, "no HELLO came, or its VNF got no id in time")

    def _fail(self, kind: str, code: Code, reason: str) -> None:
        self._face.report(self._peer, kind, reason)
        self.end(code, reason)

    def end(self, code: Code, text: str) -> None:
        """Says why, and closes."""
        self._session.fail(code, text)
        self._flush()
        self._finish()

    def _finish(self) -> None:
        if self._transport is None:
            return
        self._flush()
        if self._paused:
            self._transport.abort()  # unread data will not be read any more
        else:
            self._transport.close()


__all__ = ["StareFace"]
