"""The connections of the admin address: aiohttp's handlers behind the limits of the listener.

aiohttp waits for the head of a first request for ever. Here a connection is new until a request has reached
the pages (`known`), and ends if that takes too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler as Handler

from treecast.middleware.model.visitors import Visitor, Visitors
from treecast.shims.listening import ChunkProtocol, TurnedAway

if TYPE_CHECKING:
    from treecast.middleware.api.trust import Trust


class AdminConnections:
    """The connections to the pages. `visitors`: their limits."""

    def __init__(self, visitors: Visitors) -> None:
        self.visitors = visitors
        self.of: dict[Handler, Visitor] = {}
        self.open: set[AdminConnection] = set()
        self.trust: Trust | None = None  # where callers of other machines need a certificate

    def known(self, request: web.Request) -> None:
        """Notes that the head of a request has arrived."""
        visitor = self.of.get(request.protocol)
        if visitor is not None:
            visitor.known()

    def welcomes(self, transport: asyncio.BaseTransport) -> bool:
        """Whether the other end may come: on loopback, or by a certificate that is not refused."""
        tls = transport.get_extra_info("ssl_object")
        if self.trust is None or tls is None:
            return True
        identity = self.trust.holder(tls)
        return identity is not None and self.trust.accepts(identity)

    def drop_expelled(self, keys: object) -> None:
        """Ends the connections of those that are not accepted any more. Called with new keys."""
        for one in list(self.open):
            one.ask()

    def factory(self, runner: web.AppRunner, admits: Callable[[], bool]) -> Callable[[], asyncio.Protocol]:
        """Returns what makes the protocol of an accepted connection."""
        server = runner.server
        assert server is not None

        def made() -> asyncio.Protocol:
            if not admits():
                return TurnedAway()
            return ChunkProtocol(AdminConnection(self, server()), self.visitors)

        return made


class AdminConnection:
    """One connection. Implements `listening.ChunkConnection`."""

    def __init__(self, all_: AdminConnections, handler: Handler) -> None:
        self.visitor: Visitor | None = None
        self.data_received = handler.data_received
        self._all = all_
        self._handler = handler
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.visitor is not None:
            self._all.of[self._handler] = self.visitor
        self._all.open.add(self)
        self._handler.connection_made(transport)
        self.ask()

    def ask(self) -> None:
        """Ends it if the other end may not come, or not any more."""
        if self._transport is not None and not self._all.welcomes(self._transport):
            self.abort()

    def eof_received(self) -> bool:
        self._handler.eof_received()
        return False

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._all.of.pop(self._handler, None)
        self._all.open.discard(self)
        self._transport = None
        self._handler.connection_lost(exc)

    def wait_for_memory(self, waits: bool) -> None:
        """A body is read by its page, which counts it."""

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
