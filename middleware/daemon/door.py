"""The control address of a secured host: TLS, and behind it gRPC and the authority's calls.

gRPC's own TLS can neither refuse one certificate nor end one caller's connections. So the daemon's loop ends
TLS here and hands the bytes of gRPC on to a port of loopback, and remembers whose each connection is.

  ALPN               certificate                 goes to
  h2                 of a host, not expelled     gRPC, on loopback; `caller` says whose the connection is
  treecast-trust/1   any or none                 the authority, where the coordinator is
  others             -                           closed

A connection is new until its holder has proven to be a host or an administrator. New ones are bounded from
their acceptance on, before TLS (`api.tls_listener`), so no stranger keeps a host out.

When a host is expelled its connections end at once (`drop_expelled`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from functools import partial
from typing import Final, Protocol

from treecast.middleware.api.certificates import Identity
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.tls_listener import Arrival, TlsListener
from treecast.middleware.api.trust import Trust
from treecast.middleware.api.trust_calls import (
    ALPN,
    H2,
    HEAD,
    Answer,
    Follow,
    Hello,
    Refusal,
    Request,
    frame,
    length_of,
    read_request,
)
from treecast.middleware.model.complaints import Complaints
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.visitors import Limits, Visitors

from .guard import door_limits, process_shares
from .listeners import BACKLOG, bound_address, listen

HANDSHAKE_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 10.0  # that a caller of the authority may take for one request
_PIECE: Final = 64 * 1024

_log = Log(__name__)


class Answers(Protocol):
    """The authority (`control.trust.authority.Authority`)."""

    def answer(self, request: Request, caller: Identity | None) -> Answer: ...

    def follow(self, request: Follow, caller: Identity | None) -> AsyncGenerator[Answer, None]: ...


class Door:
    """A TLS listener in front of gRPC, from `open` to `close`. `authority`: None where no coordinator is."""

    def __init__(self, trust: Trust, authority: Answers | None, limits: Limits | None = None) -> None:
        """`limits`: on connections; None: this process' share."""
        self._trust = trust
        self._authority = authority
        self._inner = 0  # the port of gRPC on loopback
        self._callers: dict[int, Identity] = {}  # port of this end of a connection to gRPC -> whose it is
        self._open: dict[asyncio.Task[None], Identity | None] = {}
        self.refused: dict[str, int] = {}  # connections, by reason
        self._complaints = Complaints(self.refused, _log, "connection to the control address refused")
        self.visitors = Visitors(limits or door_limits(process_shares()))
        self._server = TlsListener(
            trust.door([ALPN, H2]), self.visitors, HANDSHAKE_SECONDS, self._protocol, shaken=_arrived
        )
        self._server.report = self._complaints.count

    async def open(self, address: Address, inner: int) -> Address:
        """Listens at `address` for gRPC at port `inner` of loopback. Returns the bound address. Raises
        StartError.
        """
        self._inner = inner
        listener = listen("control", address)
        self._server.open(listener, BACKLOG)
        return bound_address(listener)

    async def close(self) -> None:
        """Ends all connections. Safe to call twice."""
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def caller(self, peer: str) -> Identity | None:
        """Returns whose a connection to gRPC is; None if it did not come through the door, or is not accepted
        any more. `peer`: as gRPC names it.
        """
        host, _, port = peer.removeprefix("ipv4:").rpartition(":")
        found = self._callers.get(int(port)) if host == "127.0.0.1" and port.isdigit() else None
        return found if found is not None and self._trust.accepts(found) else None

    def drop_expelled(self) -> None:
        """Ends the connections of those that are not accepted any more."""
        for task, identity in list(self._open.items()):
            if identity is not None and not self._trust.accepts(identity):
                task.cancel()

    # --- connections

    def _protocol(self, arrival: Arrival) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader()
        return asyncio.StreamReaderProtocol(reader, partial(self._serve, arrival))

    async def _serve(
        self, arrival: Arrival, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        arrival.task = task
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        identity, protocol = self._trust.holder(tls), tls.selected_alpn_protocol()
        self._open[task] = identity
        if identity is not None and self._trust.accepts(identity):
            arrival.known()
        try:
            if protocol == ALPN and self._authority is not None:
                await self._talk(self._authority, reader, writer, identity)
            elif protocol == H2:
                await self._hand_on(reader, writer, identity)
            else:
                self._refuse("PROTOCOL", "it speaks another protocol, or no coordinator is here", writer)
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.CancelledError, TimeoutError):
            pass  # it has left, was silent, or is dropped
        finally:
            del self._open[task]
            arrival.left()
            writer.transport.abort()

    def _refuse(self, reason: str, why: str, writer: asyncio.StreamWriter) -> None:
        self._complaints.count(reason, f"{writer.get_extra_info('peername')}: {why}")

    async def _hand_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, identity: Identity | None
    ) -> None:
        if identity is None or not self._trust.accepts(identity):
            why = "it gave no certificate" if identity is None else f"{identity.words} was expelled"
            self._refuse("NO_CERTIFICATE" if identity is None else "EXPELLED", why, writer)
            return
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._inner)
        port: int = inner_writer.get_extra_info("sockname")[1]
        self._callers[port] = identity  # before the first byte, so that no call is without its caller
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, inner_writer))
                both.create_task(_copy(inner_reader, writer))
        except* (OSError, ssl.SSLError):
            pass  # one end has left
        finally:
            del self._callers[port]
            inner_writer.transport.abort()

    # --- the authority's calls

    async def _talk(
        self,
        authority: Answers,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        identity: Identity | None,
    ) -> None:
        try:
            request = await _request(reader)
            if isinstance(request, Hello):
                await _say(writer, authority.answer(request, identity))
                request = await _request(reader)
            if isinstance(request, Follow):
                async for answer in authority.follow(request, identity):
                    await _say(writer, answer)
            else:
                await _say(writer, authority.answer(request, identity))
        except TreecastError as error:
            self._refuse(error.fault.name, error.detail, writer)
            await _say(writer, Refusal(error.fault.name, error.detail))
        except Exception:
            _log.exception("call of the authority failed")
            await _say(writer, Refusal(Fault.INTERNAL.name, Fault.INTERNAL.value))
        writer.close()
        await writer.wait_closed()


def _arrived(arrival: Arrival) -> None:
    """A handshake is done: the connection counts until it ends."""


async def _request(reader: asyncio.StreamReader) -> Request:
    async with asyncio.timeout(REQUEST_SECONDS):
        length = length_of(await reader.readexactly(HEAD))
        return read_request(await reader.readexactly(length))


async def _say(writer: asyncio.StreamWriter, answer: Answer) -> None:
    writer.write(frame(answer))
    async with asyncio.timeout(REQUEST_SECONDS):
        await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies bytes until one end leaves; then the other one is closed, too."""
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError
