"""One connection at its socket: moves bytes between transport and session, and serves requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from functools import partial
from typing import Protocol, cast

from treecast.middleware.model.counters import ChannelCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.passes import LINKS, Passes
from treecast.middleware.model.ration import Ration

from .codec import Problem
from .dispatch import Handler, Later
from .greeting import Identity
from .incoming import Answered, Cancelled, Ended, Event, Opened, Proven, Requested, Scratch
from .outgoing import Call
from .session import Session
from .settings import GROUP_METHODS, ChannelSettings
from .values import Answer

_log = Log("treecast.channel")

_LONGEST_DETAIL = 4096
_CLOSING_TICKS = 4
_WRITE_BYTES = 256 * 1024  # bytes written before checking the socket's buffer


class Owner(Protocol):
    """The part of `Channels` that links use."""

    identity: Identity
    settings: ChannelSettings
    counters: ChannelCounters
    scratch: Scratch
    handler: Handler
    cancellable: set[int]

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def passes(self) -> Passes: ...

    def new_session(self, link: Link) -> Session: ...

    def proven(self, link: Link, event: Proven) -> None: ...

    def opened(self, link: Link) -> None: ...

    def answered(self, link: Link, call: Call, answer: Answer | TreecastError) -> None: ...

    def ended(self, link: Link, event: Ended) -> None: ...

    def lost(self, link: Link) -> None:
        """Notes that the socket is closed."""


class Link:
    """A connection from its socket's start to its end. `host_id`: the dialled host; else 0 until proven."""

    def __init__(self, owner: Owner, host_id: int) -> None:
        self.host_id = host_id
        self.dialled = host_id != 0
        self.peer_address = ""
        self.own_address = ""  # this end's, without the port
        self.bytes_in = 0
        self.bytes_out = 0
        self.since = 0.0
        self.errno = 0  # of an attempt to connect that failed
        self.tls: object | None = None  # an `ssl.SSLObject` of a secured host's connection
        self._owner = owner
        self._counters = owner.counters
        self._loop = owner.loop
        self.born = self._loop.time()
        self._passes = owner.passes
        self._transport: asyncio.Transport | None = None
        self._ration = Ration(self._loop.call_soon)
        self._paused = False
        self._flush_soon = False
        self._over = False  # the owner's `ended` was called
        self._deferred: dict[
            int, deque[Requested]
        ] = {}  # by group: requests held back until answers have been read
        self._running: dict[int, _Handled] = {}
        self._closed_ticks = 0
        self.session = owner.new_session(self)

    # --- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._owner.settings.write_buffer)
        name = transport.get_extra_info("peername")
        self.peer_address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else ""
        self.tls = transport.get_extra_info("ssl_object")
        own = transport.get_extra_info("sockname")
        self.own_address = str(own[0]) if isinstance(own, tuple) else ""
        self.session.begin(self._loop.time())
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.session.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.bytes_in += nbytes
        self._counters.bytes_in += nbytes
        now = self._loop.time()
        if nbytes > self._ration.free and self._ration.eaten(nbytes) and self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)
        self._handle_all(self.session.received(nbytes, now))

    def _read_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.end(Problem.LOST, str(exc) if exc is not None else "")
        for handled in list(self._running.values()):
            self._stop(handled)
        self._owner.lost(self)

    @property
    def connected(self) -> bool:
        """Whether there is a transport: under TLS not before its handshake is done."""
        return self._transport is not None

    # --- events

    def tick(self, now: float) -> None:
        if self.session.closed:  # do not wait for an end that does not read
            self._closed_ticks += 1
            if self._closed_ticks > _CLOSING_TICKS:
                self.abort()
        elif self._transport is not None:  # dialling has its own time-out
            self._handle_all(self.session.tick(now))

    def end(self, problem: Problem, detail: str = "") -> None:
        """Ends the connection and tells the other end the reason. Safe to call twice."""
        self.session.end(problem, detail)
        self._handle_all(self.session.take_events())

    def _handle_all(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Requested):
                self._request(event)
            elif isinstance(event, Answered):
                self._owner.answered(self, event.call, _outcome(event))
            else:
                self._handle(event)
        if self._passes.scheduled:  # what the events have changed here comes first, such as deliveries
            self.flush_soon()
        else:
            self.flush()

    def _handle(self, event: Event) -> None:
        if isinstance(event, Cancelled):
            self._cancelled(event.call)
        elif isinstance(event, Proven):
            self.host_id = event.host_id
            if not self.session.closed:  # bytes after the proof may have ended it
                self._owner.proven(self, event)
        elif isinstance(event, Opened):
            if not self.session.closed:
                self._owner.opened(self)
        elif isinstance(event, Ended) and not self._over:
            self._over = True
            self._deferred.clear()  # their callers know that they may not be handled
            self._owner.ended(self, event)

    # --- requests

    def _request(self, request: Requested) -> None:
        if self.session.closed:
            return
        group = request.number // GROUP_METHODS
        # Behind those that wait already: requests of a group keep their order.
        if group in self._deferred or self._unread(group):
            self._deferred.setdefault(group, deque()).append(request)
        else:
            self._serve(request)

    def _unread(self, group: int) -> bool:
        """Whether too many answers of a group are unread to begin further requests of it."""
        return self.session.answers_unsent_of(group) > self._owner.settings.unsent_answers

    def _serve(self, request: Requested) -> None:
        self._counters.requests += 1
        try:
            answer = self._owner.handler(self.host_id, request.number, request.head, request.body)
            if not isinstance(answer, Answer):
                self._await(request, answer)
                return
        except Exception as error:
            self._refuse(request, error)
            return
        self._answer(request, answer)

    def _await(self, request: Requested, answer: Later | Awaitable[Answer] | None) -> None:
        if answer is None and request.notice:
            self.session.done(request.call)
            return
        if isinstance(answer, Later):
            answer.then(partial(self._answer_later, request))
            return
        future = asyncio.ensure_future(cast(Awaitable[Answer], answer), loop=self._loop)
        handled = _Handled(self, request, future)
        self._running[request.call] = handled
        future.add_done_callback(handled)

    def finished(self, request: Requested, future: asyncio.Future[Answer]) -> None:
        """Takes the result of an asynchronous handler."""
        handled = self._running.get(request.call)
        if handled is not None and handled.future is future:
            del self._running[request.call]
        if future.cancelled():
            self._refuse(request, TreecastError(Fault.TIMED_OUT, "the handler was cancelled"))
        elif (error := future.exception()) is not None:
            self._refuse(request, error)
        else:
            self._answer(request, future.result())
        self.flush_soon()

    def _answer_later(self, request: Requested, outcome: Answer | TreecastError) -> None:
        if isinstance(outcome, TreecastError):
            self._refuse(request, outcome)
        else:
            self._answer(request, outcome)
        self.flush_soon()

    def _answer(self, request: Requested, answer: Answer) -> None:
        try:
            self.session.answer(request.call, answer.head, answer.body)
        except ValueError as error:  # longer than the other end accepts
            self._refuse(request, TreecastError(Fault.BATCH_TOO_LARGE, str(error)))

    def _refuse(self, request: Requested, error: BaseException) -> None:
        if not isinstance(error, TreecastError):
            _log.error("method failed", trace=error, method=request.number, host=self.host_id)
            error = TreecastError(Fault.INTERNAL)
        self._counters.faults += 1
        self.session.refuse(request.call, error.fault.name, error.detail[:_LONGEST_DETAIL])

    def _cancelled(self, call: int) -> None:
        """Handles a cancellation by the caller. Handlers continue unless their method is cancellable."""
        for waiting in self._deferred.values():
            for request in waiting:
                if request.call == call:
                    waiting.remove(request)
                    self.session.done(call)
                    return
        handled = self._running.get(call)
        if handled is not None:
            self._stop(handled)

    def _stop(self, handled: _Handled) -> None:
        """Cancels a handler without a waiting caller, if its method is cancellable."""
        if handled.request.number in self._owner.cancellable:
            handled.future.cancel()

    def _serve_deferred(self) -> None:
        for group, waiting in list(self._deferred.items()):
            while waiting and not self._unread(group):
                self._serve(waiting.popleft())
            if not waiting:
                del self._deferred[group]

    # --- sending

    def flush_soon(self) -> None:
        """Sends at the end of this pass of the loop."""
        if not self._flush_soon:
            self._flush_soon = True
            self._passes.add(LINKS, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_soon = False
        self.flush()

    def flush(self) -> None:
        """Sends queued bytes, up to a bound per turn of the loop."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        session = self.session
        left = self._owner.settings.write
        while session.wants_to_send and not self._paused and not transport.is_closing():
            if left <= 0:
                self.flush_soon()
                return
            left -= self._write(transport, min(left, _WRITE_BYTES))
            if self._deferred:
                self._serve_deferred()
        if session.closed:
            transport.close()

    def _write(self, transport: asyncio.Transport, limit: int) -> int:
        sent = 0
        for part in self.session.data_to_send(limit):
            sent += len(part)
            transport.write(part)
        self.bytes_out += sent
        self._counters.bytes_out += sent
        return sent

    def unmade(self) -> None:
        """Handles an attempt that the loop gave up, possibly just after connecting. The socket is closed."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Handled:
    """An asynchronous handler in progress, and its callback."""

    def __init__(self, link: Link, request: Requested, future: asyncio.Future[Answer]) -> None:
        self.request = request
        self.future = future
        self._link = link

    def __call__(self, future: asyncio.Future[Answer]) -> None:
        self._link.finished(self.request, future)


def _outcome(event: Answered) -> Answer | TreecastError:
    if not event.refused:
        return Answer(event.head, event.body)
    name = event.head.decode(errors="replace")
    fault = Fault[name] if name in Fault.__members__ else Fault.INTERNAL
    return TreecastError(fault, bytes(event.body).decode(errors="replace"))
