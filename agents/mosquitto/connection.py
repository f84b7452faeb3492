"""`MqttConnection`: a `ClientSession` on a socket of the event loop, and `Spoken`, which writes its output at
the end of the turn that has stored what it promises."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Protocol, cast

from treecast.middleware.api.discovery import Address
from treecast.middleware.broker.pubsub import PubSub
from treecast.shims.log_ins import Outcome
from treecast.shims.mqtt.codec import MqttError
from treecast.shims.mqtt.session_output import Edge, Outputs, SessionOutput

from .session import Accepted, ClientSession, Ended, Granted

_TICK = 0.5  # seconds
_MOST_WAITING = 64 << 20  # bytes that wait while nothing is taken: a broker without bounds is not read then
_MakeSession = Callable[[Edge, float], ClientSession]


class ConnectionLost(Exception):
    """The connection is over, or could not be made. `reason`: MQTT's, 0 if there is none."""

    def __init__(self, text: str, reason: int = 0) -> None:
        super().__init__(text)
        self.reason = reason


class Listener(Protocol):
    """The receiver of what is no message. All methods are called on the event loop."""

    def granted(self, event: Granted) -> None: ...

    def closed(self, reason: str) -> None:
        """The connection is over. Called once."""


class MqttConnection(asyncio.Protocol):
    """One connection, from `connect` to `close`. Implements the `Edge` of its session.

    `present`: the broker has kept the agent's session.
    """

    def __init__(self, make: _MakeSession, hubs: list[PubSub], listener: Listener) -> None:
        """`hubs`: those that need the time of day."""
        self._loop = asyncio.get_running_loop()
        self.session = make(self, self._loop.time())
        self.present = False
        self._hubs = hubs
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._over = ""
        self._paused = False
        self._timer = self._loop.call_later(_TICK, self._tick)

    @classmethod
    async def connect(
        cls,
        address: Address,
        tls: ssl.SSLContext | None,
        make: _MakeSession,
        hubs: list[PubSub],
        listener: Listener,
    ) -> MqttConnection:
        """Returns an open connection. Raises ConnectionLost, with the broker's reason if it gave one."""
        loop = asyncio.get_running_loop()
        made = cls(make, hubs, listener)
        name = address.host if tls is not None else None
        try:
            await loop.create_connection(
                lambda: made, address.host, address.port, ssl=tls, server_hostname=name
            )
            await made._opened
        except (OSError, ssl.SSLError) as error:
            made.abort()
            raise ConnectionLost(f"{address} cannot be reached: {error}") from error
        except BaseException:
            made.abort()
            raise
        return made

    @property
    def over(self) -> str:
        """Why the connection is over; "" while it is not."""
        return self._over

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(high=1 << 20)
        self.session.begin()

    def data_received(self, data: bytes) -> None:
        self._tell_time()
        try:
            events = self.session.receive(bytes(data), self._loop.time())
        except MqttError as error:
            self._end(f"the broker breaks a rule: {error}")
            return
        for event in events:
            if isinstance(event, Ended):
                self._end(event.text, event.reason)
            elif isinstance(event, Granted):
                self._listener.granted(event)
            else:
                self._accepted(event)
        self._read_or_not()

    def _tell_time(self) -> None:
        for hub in self._hubs:
            hub.clock.wall = time.time()

    def _accepted(self, event: Accepted) -> None:
        self.present = event.present
        if not self._opened.done():
            self._opened.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error) if error is not None else "the broker closed the connection")

    def pause_writing(self) -> None:
        self.session.output.congest(True)

    def resume_writing(self) -> None:
        self.session.output.congest(False)
        self.session.connection.resume()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK, self._tick)
        self._tell_time()
        if self._paused:
            self.session.heard = self._loop.time()  # nothing is heard because nothing is read
        ended = self.session.tick(self._loop.time())
        if ended is not None:
            self._end(ended.text, ended.reason)

    def _end(self, text: str, reason: int = 0) -> None:
        if self._over:
            return
        self._over = text
        self._timer.cancel()
        if not self._opened.done():
            self._opened.set_exception(ConnectionLost(text, reason))
            self._opened.exception()  # nobody may be waiting any more
        else:
            self._listener.closed(text)
        if self._transport is not None:
            self._transport.abort()

    # --- holding

    def hold(self, held: bool) -> None:
        """Has the broker's publishes wait without acknowledgements, or takes those that waited."""
        self._tell_time()
        try:
            self.session.hold(held, self._loop.time())
        except MqttError as error:
            self._end(f"the broker breaks a rule: {error}")
        self._read_or_not()

    def _read_or_not(self) -> None:
        transport, much = self._transport, self.session.waiting_bytes > _MOST_WAITING
        if transport is None or transport.is_closing() or much is self._paused:
            return
        self._paused = much
        if much:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # --- the edge of the session

    def write(self, chunks: list[bytes]) -> None:
        """Implements `Edge`."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if chunks:
            transport.write(b"".join(chunks))
        if self.session.output.closing:
            transport.close()
        elif self.session.output.writable:
            self.session.connection.resume()

    def suspended(self) -> None:
        """Implements `Edge`: nothing of the client's end takes more than one pass."""

    def going_on(self) -> None:
        """Implements `Edge`."""

    def checked(self, outcome: Outcome) -> None:
        """Implements `Edge`."""

    # --- the end

    async def close(self) -> None:
        """Closes in order: what is gathered leaves with the next turn."""
        if not self._over:
            self.session.close()
            for _ in range(3):  # the turn ends in the loop's next pass, and the transport writes in that
                await asyncio.sleep(0)
        self.abort()

    def abort(self) -> None:
        self._timer.cancel()
        self._over = self._over or "it was closed"
        if not self._opened.done():
            self._opened.cancel()
        if self._transport is not None:
            self._transport.close()


class Spoken:
    """The output of connections to the broker, held until the turn is stored. Implements `turn.Speaker`."""

    def __init__(self, outputs: Outputs, said: Callable[[], None]) -> None:
        """`said` is called after each turn that was stored."""
        self._outputs = outputs
        self._said = said
        self._gathered: list[tuple[SessionOutput, list[bytes]]] = []

    def gather(self) -> None:
        self._gathered = [(output, output.take()) for output in self._outputs.take()]

    def say(self) -> None:
        gathered, self._gathered = self._gathered, []
        for output, chunks in gathered:
            output.depends = False
            output.edge.write(chunks)
        self._said()

    def refuse(self) -> None:
        """Ends connections that wait for a promise: the broker then gives out again what is not stored."""
        gathered, self._gathered = self._gathered, []
        for output, chunks in gathered:
            edge = output.edge
            if output.depends and isinstance(edge, MqttConnection):
                edge.connection_lost(OSError("the disk refuses"))
            else:
                edge.write(chunks)
