"""One connection of the AMQP face: a session on top of a transport.

The class has the methods of an asyncio `Protocol` but does not inherit from it, so it can be compiled;
`server` connects the two.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from typing import Final, Protocol, cast

from treecast.middleware.broker.access import Allowance
from treecast.middleware.model.logs import Log
from treecast.middleware.model.ration import Ration
from treecast.middleware.model.visitors import Visitor, address_of
from treecast.shims.log_ins import Outcome
from treecast.shims.ticks import Ticks

from . import session_table
from .session import Session
from .session_host import AmqpHost
from .session_output import FULL
from .session_waiting import UNPLUGGED, Answered

_log = Log("treecast.amqp")

_THROWN_AWAY: Final = 0.1  # seconds between reads of a connection that has ended
_LINGER: Final = 2.0  # seconds that a client has to read the final output and to close
_SOON: Final = 1.0  # seconds between checks of a connection that is not open yet


class Owner(Protocol):
    """The part of the face that its connections use."""

    loop: asyncio.AbstractEventLoop
    host: AmqpHost
    send_buffer_bytes: int
    ticks: Ticks

    def woken(self, connection: Connection) -> None: ...

    def opened(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...


class Connection:
    """Serves one client: the edge of its `session`. `waiting` is the number of turns that hold output of it
    and have not ended."""

    def __init__(self, face: Owner) -> None:
        self.session = Session(face.host, UNPLUGGED, face.loop.time())
        self.state = self.session.state
        self.output = self.session.output
        self.peer = ""
        self.waiting = 0
        self.since = face.loop.time()
        self.state.opened_at = time.time()
        self._face = face
        self._host = face.host
        self._stood_still = face.ticks.stood_still
        self._loop = face.loop
        self._transport: asyncio.Transport | None = None
        self._ended = False
        self._ration = Ration(self._loop.call_soon)
        self._held = False  # reading stays paused until `resume_reading`
        self._short = False  # no memory for the rest of a message: paused until `wait_for_memory` says so
        self._holds = False  # bytes of unfinished messages are counted in the budget
        self._known = False
        self._allowance = Allowance(face.host.identities.quotas)
        self._throttled = False  # a quota is used up: paused until `_unthrottle`
        self._stalled = False  # the transport takes no more for now
        self._owes = False  # a quota of what it gets is used up: nothing is delivered until `_paid`
        self.visitor: Visitor | None = None

    # --- asyncio callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.output.edge = self  # until the connection is lost, so that no cycle keeps a closed one
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._face.send_buffer_bytes)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer = f"{peer[0]}:{peer[1]}"
            here = transport.get_extra_info("sockname")
            self.state.ends = (str(peer[0]), int(peer[1])), (str(here[0]), int(here[1]))
            self.state.local = _is_loopback(str(peer[0]))
        else:
            self.peer = "unix socket"
            self.state.local = True
        self.state.address = address_of(peer)
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            login = self._host.settings.certificate_login
            self.state.certified = self._host.access.certified(secured.getpeercert() or {}, login)
        self._face.opened(self)

    def data_received(self, data: bytes) -> None:
        self._host.counting.bytes_in += len(data)
        if self._ended:  # what comes now is thrown away: not as fast as a client can send it
            self._pause()
            self._loop.call_later(_THROWN_AWAY, self._read_on)
            return
        self.state.vhost.wall = time.time()
        now = self._loop.time()
        if len(data) > self._ration.free and self._ration.eaten(len(data)):
            self._pause()
            self._loop.call_soon(self._read_on)
        try:
            self.session.receive(data, now)
        except Exception:
            self._failed(now)
        if self.state.held or self.session.rests:
            # Input would only be collected in memory while the session waits.
            self._pause()
        # Only publishers are paused: consumers must go on, since they are what empties the disk.
        if self._host.alarm and self.session.publishes:
            self.pause_reading()
        if self._allowance.quotas.any and self.state.user:
            self._count(len(data), now)
        self._hold(len(data), now)

    def _count(self, size: int, now: float) -> None:
        """Counts what has come in the quota of the user. The rest is read later."""
        wait = self._allowance.of(self.state.user, self.state.name, now).sent(size, now)
        if wait > 0:
            self._throttled = True
            self._pause()
            self._loop.call_later(wait, self._unthrottle)

    def _unthrottle(self) -> None:
        self._throttled = False
        self._read_on()

    def _failed(self, now: float) -> None:
        """Ends this connection after an internal error; other connections are unaffected."""
        _log.exception("frame failed", peer=self.peer)
        self.state.failure = "internal error"
        self.session.lost(now)

    def _hold(self, got: int, now: float) -> None:
        """Counts the memory of unfinished messages. `got`: bytes that have come."""
        visitor = self.visitor
        if visitor is None:
            return
        if not self._known and self.state.user:
            self._known = True
            visitor.known()
        size = self.session.memory
        if size or self._holds:
            self._holds = size > 0
            visitor.holding.hold(size, got, now)

    def woken(self) -> None:
        self._face.woken(self)

    def wait_for_memory(self, waits: bool) -> None:
        """Stops or continues reading: others need the memory."""
        self._short = waits
        if waits:
            self._pause()
        else:
            self._read_on()

    def go_on(self, now: float) -> None:
        self.state.vhost.wall = time.time()
        try:
            self.session.go_on(now)
        except Exception:
            self._failed(now)
        self._read_on()

    def answered(self, found: Answered, now: float) -> None:
        self.session.answered(found, now)
        self._read_on()

    def checked(self, outcome: Outcome) -> None:
        now = self._loop.time()
        try:
            self.session.checked(outcome, now)
        except Exception:
            self._failed(now)
        self._hold(0, now)
        self._read_on()

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
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    @property
    def _waits(self) -> bool:
        """Whether nothing is read from the client now."""
        return self._held or self._short or self._throttled or self.state.held or self.session.rests

    def _read_on(self) -> None:
        if not self._waits and self._transport is not None and not self._transport.is_closing():
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
            self.output.full = False
            self.session.resume(self._loop.time())

    def _count_sent(self, size: int, now: float) -> None:
        """Counts what was sent in the quota of the user. What is delivered after it waits."""
        spending = self._allowance.of(self.state.user, self.state.name, now)
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
        self._face.closed(self)

    # --- output

    def write(self, data: bytes) -> None:
        """Writes gathered output, then closes the transport if the session is closing."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        now = self._loop.time()
        if data:
            self._host.counting.bytes_out += len(data)
            transport.write(data)
            self.session.heartbeats.last_out = now
            if self._allowance.quotas.any and self.state.user:
                self._count_sent(len(data), now)
        if self.output.closing:
            self._close(transport)
        elif self.output.full and not self._owes:
            self.output.full = False
            self.session.resume(now)

    def _close(self, transport: asyncio.Transport) -> None:
        """Sends EOF and lingers, so the client can read the reason.

        An immediate close while the client still sends would reset the connection and lose that output. A
        client that has left closes the socket itself, as with RabbitMQ: some clients still send
        acknowledgements after their connection.close, and take a broken connection for an error.
        """
        if self._ended:
            return
        self._ended = True
        # After an error, the client has a reason to read. EOF lets it read that and see that nothing follows.
        if self.state.failure and transport.can_write_eof():
            transport.write_eof()
        elif not self.output.left:
            transport.close()
        # A client that neither reads nor closes does not keep the socket.
        self._loop.call_later(_LINGER, transport.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- time limits

    def look(self, now: float) -> float:
        """Checks heartbeats and the time limit for opening. Returns when to check again, 0.0 for never."""
        if self.state.phase < session_table.OPEN:
            seconds = self._host.settings.connect_seconds
            # While this process stood still, it read nothing, however much the client has sent.
            if now - self.since - (self._face.ticks.stood_still - self._stood_still) >= seconds:
                self.state.failure = f"the connection was not opened in {seconds:g} s"
                self.abort()
                return 0.0
            return now + _SOON
        if self._waits:  # its heartbeats are in the socket: RabbitMQ counts none of a client that it blocks
            self.session.heartbeats.last_in = now
        at = self.session.tick(now)
        if self.state.failure and self.state.phase == session_table.CLOSED:
            self.abort()  # heartbeats were missed: the client will not read a reason
            return 0.0
        return at


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
