"""The asyncio side of the AMQP face: listeners, open connections, the order of writes, and shutdown.

The output of connections is written once per pass of the event loop, after the queue changes of the pass were
written to the store (`broker.queues.host.QueueEdge`). Output that promises something (a confirm of persistent
messages, the answer to a declaration) waits for the host's turn, and thereby for the disk if the policy
requires it; other output does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from treecast.middleware.broker import QueueEdge, Turn
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import Due
from treecast.shims.listening import ChunkProtocol, Listeners
from treecast.shims.protocol_errors import ProtocolErrors
from treecast.shims.ticks import TICK, Ticks

from .connection import Connection
from .counting import AmqpCounting
from .session import Session
from .session_host import AmqpHost

_log = Log("treecast.amqp")

DISK_REFUSES = "the disk refuses"  # `failure` of sessions ended by a storage failure


class Gathered:
    """The output of one connection in a turn. `depends` is whether it promises something."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.depends = connection.output.depends
        self.data = connection.output.take()


class AmqpFace:
    """The AMQP face of one daemon, from `start` to `close`.

    `pressure` is called periodically and returns why publishers must wait, or "".
    """

    def __init__(
        self,
        host: AmqpHost,
        turn: Turn,
        queues: QueueEdge,
        counters: FaceCounters,
    ) -> None:
        self.host = host
        self.counters = counters
        self.loop = asyncio.get_running_loop()
        self.send_buffer_bytes = host.settings.send_buffer_bytes
        self.ticks = Ticks()
        self.listeners = Listeners(host.settings, counters, self._connect, self._refused_handshake)
        self.connections: set[Connection] = set()
        self.pressure: Callable[[], str] = _none
        self._turn = turn
        self._queues = queues
        self._woken: list[Connection] = []
        self._bound: list[Connection] = []  # their output waits for the end of the turn
        self._held: list[Connection] = []  # their output waits until other hosts know a definition
        self._gathered: list[Gathered] = []
        self._errors = ProtocolErrors(counters.protocol_errors, _log)
        self._due: Due[Connection] = Due()
        self._timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None
        self._deleted: set[str] = set()  # users, since the last review
        self._reviews = False
        queues.outputs.append(self._write)
        host.queues.leaving.append(self._leave_vhost)
        if host.queues.joined is not None:
            host.queues.joined.on_known.append(self._known)
        host.access.watch(self._rights_changed)

    async def start(self) -> None:
        """Starts listening. Raises OSError if an address cannot be bound or a certificate cannot be read."""
        self._turn.add_speaker(self)
        await self.listeners.open()
        self._tick()

    def _connect(self) -> asyncio.Protocol:
        return ChunkProtocol(Connection(self), self.listeners.visitors)

    async def close(self, grace: float = 5.0) -> None:
        """Stops accepting, disconnects the clients, and closes within `grace` seconds. Idempotent."""
        self.listeners.close()
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        for connection in list(self.connections):
            connection.session.close(self.loop.time())
        if self.connections:
            self._all_closed = asyncio.Event()
            try:
                await asyncio.wait_for(self._all_closed.wait(), grace)
            except TimeoutError:
                _log.info("connections did not finish in time", count=len(self.connections))
            for connection in list(self.connections):
                connection.abort()
        self._queues.flush()
        self._turn.end()
        self._turn.remove_speaker(self)

    # --- output of connections

    def woken(self, connection: Connection) -> None:
        """Schedules the output of a connection."""
        self._woken.append(connection)
        self.act()

    def act(self) -> None:
        """Has the output written at the end of this pass of the event loop."""
        self._queues.act()

    def _write(self, known: int) -> None:
        """Writes to the connections. Output with promises waits for the turn, and for other hosts to know the
        definitions that it tells of; they know them up to version `known`."""
        woken, self._woken = self._woken, []
        for connection in woken:
            output = connection.output
            if output.shares > known:
                self._held.append(connection)
            elif output.depends or connection.waiting:
                connection.waiting += 1
                self._bound.append(connection)
            else:
                connection.write(output.take())
        if self._bound:
            self._turn.ask()

    def _known(self) -> None:
        """Other hosts know more definitions: the output that waited for it can be written."""
        held, self._held = self._held, []
        self._woken += held
        if held:
            self.act()

    # --- called by the turn

    def gather(self) -> None:
        """Implements `broker.Speaker`: collects the output that waits for this turn."""
        bound, self._bound = self._bound, []
        self._gathered = [Gathered(connection) for connection in bound]
        _fold(self.host.counting, self.counters)

    def say(self) -> None:
        """Writes the gathered output after the turn was stored."""
        gathered, self._gathered = self._gathered, []
        for one in gathered:
            one.connection.waiting -= 1
            one.connection.write(one.data)

    def refuse(self) -> None:
        """Aborts the connections that wait for a promise after storing failed, and writes the others.

        Clients repeat after reconnecting what was not answered.
        """
        gathered, self._gathered = self._gathered, []
        for one in gathered:
            one.connection.waiting -= 1
            if one.depends:
                one.connection.state.failure = DISK_REFUSES
                one.connection.abort()
            else:
                one.connection.write(one.data)

    # --- periodic work

    def _tick(self) -> None:
        now = self.loop.time()
        if self.ticks.tick(now):
            self._look_at_due(now)
        self.set_alarm(self.pressure())
        self._timer = self.loop.call_later(TICK, self._tick)

    def _look_at_due(self, now: float) -> None:
        for connection in self._due.take(now):
            if connection in self.connections:
                self._look(connection, connection.look(now))

    def _look(self, connection: Connection, at: float) -> None:
        if at:
            self._due.put(connection, at)

    def set_alarm(self, reason: str) -> None:
        """Makes publishers wait for `reason`, or lets them continue if it is ""."""
        if reason == self.host.alarm:
            return
        self.host.alarm = reason
        if reason:
            _log.warning("publishers wait", reason=reason)
        else:
            _log.info("publishers continue")
        for connection in list(self.connections):
            if reason:
                connection.session.opening.block(reason)
                if connection.session.publishes:
                    connection.pause_reading()
            else:
                connection.session.opening.unblock()
                connection.resume_reading()

    def _leave_vhost(self, name: str) -> None:
        """Closes the connections of a virtual host that is deleted."""
        for connection in list(self.connections):
            if connection.state.user and connection.state.vhost.name == name:
                connection.session.close(self.loop.time(), f"vhost '{name}' is deleted")

    def _rights_changed(self, deleted: str) -> None:
        """Has all connections reviewed in the next pass of the event loop, once for all changes of this one.
        The new rights decide about all operations from now on."""
        if not self.connections:
            return
        if deleted:
            self._deleted.add(deleted)
        if not self._reviews:
            self._reviews = True
            self.loop.call_soon(self._review)

    def _review(self) -> None:
        self._reviews = False
        deleted, self._deleted = self._deleted, set()
        now = self.loop.time()
        for connection in list(self.connections):
            connection.session.review(deleted, now)

    def sessions(self) -> list[Session]:
        """Returns the sessions of the open connections."""
        return [connection.session for connection in self.connections]

    # --- called by connections

    def opened(self, connection: Connection) -> None:
        self.counters.connections_opened += 1
        self.connections.add(connection)
        self._look(connection, self.loop.time() + TICK)

    def closed(self, connection: Connection) -> None:
        self.counters.connections_closed += 1
        self.connections.discard(connection)
        self._due.discard(connection)
        state = connection.state
        if connection.session.opening.joined:
            self.host.applications.left("amqp", state.shown_name, state.ends[0][0])
        self.act()
        if state.failure:
            self._report(connection)
        if self._all_closed is not None and not self.connections:
            self._all_closed.set()

    def _refused_handshake(self, peer: str, reason: str) -> None:
        self._errors.add(self.loop.time(), reason, peer, reason)

    def _report(self, connection: Connection) -> None:
        """Counts and logs a protocol violation or a disconnection by the server."""
        reason = connection.state.failure
        if reason == DISK_REFUSES:  # not the client's fault, and logged by the turn
            self._errors.count(DISK_REFUSES)
        else:
            self._errors.add(self.loop.time(), reason.partition(" - ")[0][:60], connection.peer, reason)


def _fold(counts: AmqpCounting, into: FaceCounters) -> None:
    """Adds the counts of sessions to those that metrics read, and resets them."""
    into.bytes_in += counts.bytes_in
    into.bytes_out += counts.bytes_out
    requests = into.requests
    for method, count in (("Basic.Publish", counts.publishes), ("Basic.Ack", counts.acks)):
        if count:
            requests[method] = requests.get(method, 0) + count
    counts.bytes_in = counts.bytes_out = counts.publishes = counts.acks = 0
    if counts.others:
        for method, count in counts.others.items():
            requests[method] = requests.get(method, 0) + count
        counts.others = {}


def _none() -> str:
    return ""


__all__ = ["AmqpFace"]
