"""One client's connection: moves bytes between a socket and a session, and bounds the buffers of both."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

from treecast.middleware.broker import LongPolls
from treecast.middleware.broker.access import Identities
from treecast.middleware.model.applications import Applications
from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.logs import Log
from treecast.middleware.model.ration import Ration
from treecast.middleware.model.visitors import Visitor, address_of

from .codec import client_id_of
from .dispatch import Dispatcher
from .log_in import LogIn
from .sender import Sender
from .session import FramePool, Pending, Refused, Request, Session
from .settings import KafkaSettings
from .throttling import Meter

_log = Log("treecast.kafka")

_REQUEST_BYTES: Final = 8 * 1024  # serving one request takes as long as reading and writing this many bytes
_LARGE_BYTES: Final = 256 * 1024  # serving such a request takes a millisecond or more: others come first
_FLUSH_BYTES = 256 * 1024  # answers are flushed before the end of their chunk once they exceed this


class FaceTurn:
    """One turn of the loop, over all connections of the face: from the first chunk read until nothing more
    is ready.

    Each chunk is answered with one write. Waiting fetches are woken at the end of the turn, each once,
    however many connections brought data. Connections with a large request are served after a turn, one at a
    time, so that the small requests of others wait for one large request at most.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, polls: LongPolls) -> None:
        self._loop = loop
        self._polls = polls
        self._began = False
        self._large: deque[Connection] = deque()  # in the order of arrival

    def begin(self) -> None:
        """Called before a chunk is served. Holds back wake-ups of fetches until the end of the turn."""
        if not self._began:
            self._began = True
            self._polls.hold()
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        self._began = False
        self._polls.let_go()

    def serve_large(self, connection: Connection) -> None:
        """Lets the connection serve its large request after this turn."""
        self._large.append(connection)
        if len(self._large) == 1:
            # Not `_serve_one` itself: the callbacks of this pass may be of sockets that have small requests.
            self._loop.call_soon(self._large_soon)

    def _large_soon(self) -> None:
        """Lets the next pass of the loop read from sockets first."""
        self._loop.call_soon(self._serve_one)

    def _serve_one(self) -> None:
        self.begin()
        # Scheduled before this one is served: serving may add a connection, which schedules itself if it is
        # the first.
        connection = self._large.popleft()
        if self._large:
            self._large_soon()
        connection.serve_large()


class Owner(Protocol):
    """The face, as its connections see it."""

    settings: KafkaSettings
    counters: FaceCounters
    dispatcher: Dispatcher
    pool: FramePool
    loop: asyncio.AbstractEventLoop
    turn: FaceTurn
    applications: Applications
    identities: Identities

    def local_address(self, transport: asyncio.BaseTransport) -> tuple[str, int]: ...

    def hold(self, size: int) -> None:
        """Adds `size` (possibly negative) to the bytes that wait for clients that do not read."""

    def opened(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def report(self, connection: Connection, reason: str) -> None: ...


class Connection:
    """Serves requests in order. Produce may be pipelined; any other request that waits blocks the next ones.

    The class has the methods of a `BufferedProtocol` without deriving from it, because attribute access in a
    subclass of an interpreted class is as slow as in that class. `server` joins the two.
    """

    def __init__(self, face: Owner) -> None:
        self._face = face
        self._loop = face.loop
        self._time: Callable[[], float] = face.loop.time  # looked up once
        self._turn: FaceTurn = face.turn
        self._dispatcher: Dispatcher = face.dispatcher
        self._counters = face.counters
        self._session = Session(
            face.pool, face.settings.max_request_bytes, face.settings.max_in_flight, face.loop.time()
        )
        self._transport: asyncio.Transport | None = None
        self._sender: Sender | None = None
        self._waiting: deque[Request] = deque()  # received, not yet served
        self._pending: dict[Pending, Request] = {}
        self._muted = False  # a request that is not pipelined is pending
        self._congested = False  # the client does not read its answers
        self._reading = True
        self._ration = Ration(self._loop.call_soon)
        self._waits = False  # the ration is used up: read on in the next turn of the loop
        self._late = False  # a large request waits for the end of the turn
        self._receiving = False  # a chunk is being served: its answers are sent at its end
        self._closing = False
        self._unsent = 0
        self._held = 0  # bytes in the transport's write buffer when it paused writing
        self._who: str | None = None  # the client id, once noted as an application
        self._waiting_bytes = 0  # of the frames in `_waiting`
        self._holds = False  # bytes of requests are counted in the budget
        self._short = False  # no memory for the rest of a request: read on when `wait_for_memory` says so
        self._bounded = False  # requests are small until the client has logged in
        self.visitor: Visitor | None = None
        self.client_host = ""
        self.peer = ""
        self.address = ("", 0)
        self._meter = Meter(face.identities)
        self._throttled = False  # a quota is used up: nothing is served until `_unthrottle`
        self.log_in = LogIn(face.identities)

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sender = Sender(self._loop, self._transport, self._sent)
        self._transport.set_write_buffer_limits(high=self._face.settings.send_buffer_bytes)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix socket"
        self.client_host = f"/{peer[0]}" if isinstance(peer, tuple) else "/127.0.0.1"
        self.address = self._face.local_address(transport)
        self.log_in = LogIn(self._face.identities, address_of(peer))
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            self.log_in.certify(secured.getpeercert() or {})
        if self.log_in.waits:
            self._bounded = True
            self._session.bound(self._face.settings.max_log_in_bytes)
        self._face.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._session.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._turn.begin()
        self._counters.bytes_in += nbytes
        session = self._session
        now = self._time()
        if self._bounded and not self.log_in.waits:
            self._bounded = False
            # The client has logged in since the last chunk: from now on the limit of the face applies.
            session.bound(0)
        # Frames in `requests` lie in the scratch buffer until `recycle` below: those that wait are copied by
        # `_keep`.
        requests = session.received(nbytes, now)
        more = len(requests)
        cost = nbytes + more * _REQUEST_BYTES
        if cost > self._ration.free and self._ration.eaten(cost):
            self._waits = True
            self._loop.call_soon(self._read_on)
        if more and self._who is None and not self.log_in.waits:
            if self.visitor is not None:
                self.visitor.known()
            # A client is known from its first request after the log-in: before, anybody could take any name.
            self._who = client_id_of(requests[0].frame)
            self._face.applications.joined("kafka", self._who, self.client_host[1:])
        # One request alone is answered at once by `_settle`; several share one write at the end of the chunk.
        if more > 1:
            self._receiving = True
        for request in requests:
            more -= 1
            if self._blocked:
                # Order of requests is kept: behind one that waits, all wait, also those that could be served
                # at once.
                self._keep(request)
            elif len(request.frame) >= _LARGE_BYTES:
                self._keep(request)
                self._late = True
                self._turn.serve_large(self)
            else:
                self._serve(request, more > 0)
        if self._receiving:
            self._dispatcher.end_of_chunk()
            self._receiving = False
        # Everything that must outlive this call has its own memory by now: kept requests, and appended
        # batches.
        session.recycle()
        self._hold(nbytes, now)
        self._settle()

    def _keep(self, request: Request) -> None:
        request.keep()
        self._waiting.append(request)
        self._waiting_bytes += len(request.frame)

    def _hold(self, got: int, now: float) -> None:
        """Counts the memory of requests that are unfinished or wait. `got`: bytes that have come."""
        visitor, size = self.visitor, self._session.memory + self._waiting_bytes
        if visitor is not None and (size or self._holds):
            self._holds = size > 0
            visitor.holding.hold(size, got, now)

    def wait_for_memory(self, waits: bool) -> None:
        """Stops or continues reading: others need the memory."""
        self._short = waits
        self._settle()

    def _read_on(self) -> None:
        self._waits = False
        self._settle()

    # False closes the transport: a Kafka client that has ended its side reads no more answers.
    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._congested = True
        if self._transport is not None:
            self._held = self._transport.get_write_buffer_size()
            self._face.hold(self._held)

    def resume_writing(self) -> None:
        self._let_go()
        self._sent()

    def _sent(self) -> None:
        """Resumes serving after the client has read the unsent answers."""
        self._congested = False
        self._serve_waiting()
        self._settle()

    def _let_go(self) -> None:
        self._face.hold(-self._held)
        self._held = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._serve_late()  # a client that wants no acknowledgement may leave at once
        self._closing = True
        self._abandon()
        self._let_go()
        if self._sender is not None:
            # Its duplicate of the socket would keep the connection open after the transport has closed the
            # original.
            self._sender.close()
            self._sender = None  # it refers to this connection
        self._session.forget()
        if self._who is not None:
            self._face.applications.left("kafka", self._who, self.client_host[1:])
        self._face.closed(self)

    # --- serving

    @property
    def _blocked(self) -> bool:
        return self._muted or self._congested or self._throttled or self._closing or bool(self._waiting)

    def _serve(self, request: Request, more: bool = False) -> None:
        """Serves one request. `more`: other requests of the same chunk follow."""
        if self._meter.quotas.any:
            self._count(request)
        try:
            answer = self._dispatcher.answer(self, request.frame, more)
        except Refused as refused:
            self._dispatcher.end_of_chunk()
            # Requests before the refused one are served: their client may have sent them long before its
            # mistake.
            if refused.late:
                self._refuse_later(str(refused))
            else:
                self._fail(str(refused))
            return
        except Exception:
            _log.exception("request failed", peer=self.peer)
            self._dispatcher.end_of_chunk()
            self._fail("internal error")
            return
        if isinstance(answer, Pending):
            self._pending[answer] = request
            # A fetch that waits blocks the requests behind it; produces may overlap, as the replies stay in
            # order anyway.
            self._muted = self._muted or not answer.pipelined
            answer.deliver = self._deliver
        else:
            self._reply(request, answer)

    def _count(self, request: Request) -> None:
        """Counts a request in its quotas, which may have the next ones wait."""
        meter, principal, now = self._meter, self.log_in.granted.principal, self._time()
        request.key, request.version = meter.request(request.frame, principal, self._who or "", now)
        self._throttle(now)

    def _throttle(self, now: float) -> None:
        if self._meter.until > now and not self._throttled:
            self._throttled = True
            self._loop.call_later(self._meter.until - now, self._unthrottle)

    def _unthrottle(self) -> None:
        """Serves on, if the time has not become longer meanwhile."""
        self._throttled = False
        self._throttle(self._time())
        if not self._throttled and not self._closing:
            self._serve_waiting()
            self._settle()

    def _reply(self, request: Request, buffers: list[Chunk]) -> None:
        if request.key >= 0:
            now = self._time()
            buffers = self._meter.answer(request.key, request.version, buffers, now)
            self._throttle(now)
        self._session.reply(request, buffers, self._time())
        if self._receiving or self._waiting:  # otherwise the caller sends the answer at once
            for buffer in buffers:
                self._unsent += len(buffer)
            if self._unsent > _FLUSH_BYTES:
                self._flush()

    def _deliver(self, pending: Pending, buffers: list[Chunk] | None) -> None:
        request = self._pending.pop(pending)
        if buffers is None:
            # Without an answer to this request, the answers behind it would be taken for it.
            self._fail("internal error")
            self._settle()
            return
        self._reply(request, buffers)
        if not pending.pipelined:
            self._muted = False
            self._serve_waiting()
        if not self._receiving:
            self._settle()

    def _serve_waiting(self) -> None:
        waiting = self._waiting
        # Checked before each request: serving one may block, congest or close the connection.
        while waiting and not (self._muted or self._congested or self._throttled or self._closing):
            request = waiting.popleft()
            self._waiting_bytes -= len(request.frame)
            self._serve(request)
            self._session.release(request)
        if self._holds:
            self._hold(0, self._time())

    def serve_large(self) -> None:
        """Serves the large request that has waited for the end of the turn, and those behind it."""
        self._serve_late()
        self._settle()

    def _serve_late(self) -> None:
        if self._late:
            self._late = False
            self._serve_waiting()

    # --- the socket

    def _flush(self) -> None:
        data = self._session.data_to_send()
        self._unsent = 0
        transport, sender = self._transport, self._sender
        if not data or transport is None or sender is None:
            return
        if transport.is_closing():  # the client has gone: do no more reads for its remaining requests
            self._closing = True
            self._abandon()
            return
        size = 0
        for chunk in data:
            size += len(chunk)
        self._counters.bytes_out += size
        sender.send(data, size)
        # A queue in the sender is congestion that the transport does not know of, so it never calls
        # `pause_writing`.
        self._congested = self._congested or sender.waiting

    def _settle(self) -> None:
        """Called after every event. Sends the ready answers, and reads on only if there is room."""
        self._flush()
        session = self._session
        if session.failure and not self._closing:
            self._fail(session.failure)
        if self._closing:
            self._close_when_answered()
            return
        # A connection with requests that wait is not read: what its client sends stays in the kernel and
        # slows it.
        held = self._congested or self._waits or self._short or self._throttled
        wanted = session.wants_data and not (self._waiting or held)
        if wanted != self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _fail(self, reason: str) -> None:
        """Reports `reason`, drops the open requests, and closes after the ready answers."""
        self._face.report(self, reason)
        self._closing = True
        self._abandon()

    def _refuse_later(self, reason: str) -> None:
        """Serves nothing more, and closes after a while. Clients that connect again at once, without end,
        come once in this time."""
        self._muted = True
        self._forget_waiting()
        delay = self._face.settings.refuse_after_ms / 1000
        self._loop.call_later(delay, self._refuse_now, reason)

    def _refuse_now(self, reason: str) -> None:
        if not self._closing:
            self._fail(reason)
            self._settle()

    def _forget_waiting(self) -> None:
        """Drops the requests that are not served yet, and their share of the memory for requests."""
        self._waiting.clear()
        self._waiting_bytes = 0

    def _abandon(self) -> None:
        self._forget_waiting()
        pending = list(self._pending)
        self._pending.clear()
        for one in pending:
            one.abandon()

    def _close_when_answered(self) -> None:
        # With answers pending, their delivery comes back here and closes.
        if self._pending or self._transport is None or self._transport.is_closing():
            return
        if self._sender is None or not self._sender.waiting:
            self._transport.close()

    # --- called by the face

    def is_idle(self, now: float, max_idle: float) -> bool:
        """Whether nothing has moved for `max_idle` seconds. A client that does not read counts as idle, even
        with requests open.
        """
        if self._congested:
            # A request that is open is no sign of life here: its answer could not be sent.
            return now >= self._session.last_activity + max_idle
        deadline = self._session.next_deadline(max_idle)
        return deadline is not None and now >= deadline

    def finish(self) -> None:
        """Takes no more requests, answers the pending ones, then closes."""
        self._serve_late()
        self._closing = True
        self._forget_waiting()
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()
        # Fetches answer with what they have; a copy of the keys, because each answer removes its own.
        for pending in list(self._pending):
            pending.hurry()
        self._flush()
        self._close_when_answered()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
