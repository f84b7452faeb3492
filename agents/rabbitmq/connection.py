"""`AmqpConnection`: a `ClientSession` on a socket of the event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from typing import Protocol, cast

from pamqp import base, commands

from treecast.middleware.api.discovery import Address

from .session import (
    Blocked,
    ChannelClosed,
    ClientSession,
    Confirmed,
    Delivered,
    Event,
    LogIn,
    Opened,
    Replied,
)

CALL_SECONDS = 30.0
_TICK = 1.0


class ConnectionLost(Exception):
    """The connection is over, or could not be made."""


class CallRefused(Exception):
    """The server has answered a call by closing its channel. `code` is AMQP's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Listener(Protocol):
    """The receiver of everything but answers. All methods are called on the event loop."""

    def delivered(self, run: Delivered) -> None: ...

    def confirmed(self, confirm: Confirmed) -> None: ...

    def closed(self, reason: str) -> None:
        """The connection is over, or one of its channels is, which ends it. Called once."""

    def blocked(self, reason: str) -> None:
        """The server reads no publishes; "": it does again."""

    def room(self) -> None:
        """There is room to write, after `full`."""


class AmqpConnection(asyncio.Protocol):
    """One connection, from `connect` to `close`. `product`: name and version of the server."""

    def __init__(self, session: ClientSession, listener: Listener) -> None:
        self.session = session
        self.product = ("", "")
        self.full = False  # so much is written that has not left
        self.refused = False  # the server ended the connection, or a channel, because of what it was sent
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._calls: dict[int, deque[asyncio.Future[base.Frame]]] = {}
        self._over = ""
        self._flush_soon = False
        self._timer = self._loop.call_later(_TICK, self._tick)

    @classmethod
    async def connect(
        cls,
        address: Address,
        tls: ssl.SSLContext | None,
        log_in: LogIn,
        listener: Listener,
        connected: socket.socket | None = None,
    ) -> AmqpConnection:
        """Returns an open connection. Raises ConnectionLost, with the server's reason if it gave one.

        `connected`: a socket that is connected to the address, to use instead of a new one."""
        loop = asyncio.get_running_loop()
        made = cls(ClientSession(log_in, loop.time()), listener)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                if connected is not None:
                    await loop.create_connection(lambda: made, sock=connected)
                else:
                    await loop.create_connection(lambda: made, address.host, address.port, ssl=tls)
                await made._opened
        except TimeoutError:
            made.abort()
            raise ConnectionLost(f"{address} does not answer") from None
        except (OSError, ssl.SSLError) as error:
            made.abort()
            raise ConnectionLost(f"{address} cannot be reached: {error}") from error
        except BaseException:
            made.abort()
            raise
        return made

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(high=1 << 20)
        self.flush()

    def data_received(self, data: bytes) -> None:
        for event in self.session.receive(bytes(data), self._loop.time()):
            self._handle(event)
        self.flush()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error) if error is not None else "the server closed the connection")

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self._listener.room()

    # --- events

    def _handle(self, event: Event) -> None:
        if isinstance(event, Delivered):
            self._listener.delivered(event)
        elif isinstance(event, Confirmed):
            self._listener.confirmed(event)
        elif isinstance(event, Replied):
            self._replied(event)
        elif isinstance(event, Opened):
            self.product = (event.product, event.version)
            if not self._opened.done():
                self._opened.set_result(None)
        elif isinstance(event, Blocked):
            self._listener.blocked(event.reason)
        elif isinstance(event, ChannelClosed):
            self._channel_closed(event)
        else:
            self.refused = self.refused or event.refused
            self._end(event.text or "it was closed")

    def _replied(self, event: Replied) -> None:
        if isinstance(event.method, commands.Basic.Cancel):
            self._end("the server has cancelled the agent's consumer: its queue was deleted")
            return
        waiting = self._calls.get(event.channel)
        if waiting:
            call = waiting.popleft()
            if not call.done():
                call.set_result(event.method)

    def _channel_closed(self, event: ChannelClosed) -> None:
        waiting = self._calls.pop(event.channel, None)
        if not waiting:
            self.refused = True
            self._end(event.text)
            return
        for call in waiting:
            if not call.done():
                call.set_exception(CallRefused(event.code, event.text))

    def _end(self, reason: str) -> None:
        if self._over:
            return
        self._over = reason or "it was closed"
        self._timer.cancel()
        lost = ConnectionLost(self._over)
        self._fail_calls(lost)
        if not self._opened.done():
            self._opened.set_exception(lost)
            self._opened.exception()  # nobody may be waiting any more
        else:
            self._listener.closed(self._over)
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def _fail_calls(self, lost: ConnectionLost) -> None:
        for call in [call for calls in self._calls.values() for call in calls]:
            if not call.done():
                call.set_exception(lost)
        self._calls.clear()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK, self._tick)
        end = self.session.tick(self._loop.time())
        if end is not None:
            self._end(end.text)
        else:
            self.flush()

    # --- output

    async def call(self, channel: int, method: base.Frame) -> base.Frame:
        """Sends a method and returns the answer. Raises CallRefused, after which the channel is closed, or
        ConnectionLost."""
        if self._over:
            raise ConnectionLost(self._over)
        answer: asyncio.Future[base.Frame] = self._loop.create_future()
        self._calls.setdefault(channel, deque()).append(answer)
        self.session.send(channel, method)
        self.flush()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await answer
        except TimeoutError:
            self._end(f"the server does not answer {method.name}")
            raise ConnectionLost(self._over) from None

    async def open_channel(self, channel: int) -> None:
        await self.call(channel, commands.Channel.Open())

    def flush_later(self) -> None:
        """Sends what was written at the end of this pass of the event loop."""
        if not self._flush_soon:
            self._flush_soon = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Sends what was written."""
        self._flush_soon = False
        if self._transport is not None and not self._transport.is_closing():
            data = self.session.take_output(self._loop.time())
            if data:
                self._transport.write(data)

    def pause(self) -> None:
        """Reads nothing until `resume`."""
        if self._transport is not None and not self._over:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._over:
            self._transport.resume_reading()

    @property
    def over(self) -> str:
        """Why the connection is over; "" while it is not."""
        return self._over

    async def close(self) -> None:
        """Closes in order."""
        if not self._over:
            self.session.close()
            self.flush()
            await asyncio.sleep(0)
        self.abort()

    def abort(self) -> None:
        self._timer.cancel()
        self._over = self._over or "it was closed"
        self._fail_calls(ConnectionLost(self._over))
        if not self._opened.done():
            self._opened.cancel()
        if self._transport is not None:
            self._transport.close()
