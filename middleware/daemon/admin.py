"""The admin address: its sockets listen from the start; the first connection loads its server.

aiohttp and prometheus-client cost about 15 MB and 130 ms. A host that nobody scrapes never pays for them, and
start-up never waits for them: meanwhile connections queue in the kernel.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from treecast.middleware.api.tls_listener import TlsListener
from treecast.middleware.model.visitors import Limits, Visitors

from .first_client import FirstClient

if TYPE_CHECKING:
    from aiohttp import web

    from treecast.middleware.api.trust import Trust

    from .admin_connections import AdminConnections
    from .status import Subject


HANDSHAKE_SECONDS: Final = 10.0


class AdminServer:
    """The admin server. It takes over listening sockets and serves from `start` to `close`."""

    def __init__(self) -> None:
        self._subject: Subject | None = None
        self._visitors = Visitors()
        self._admits: Callable[[], bool] = _always
        self._servers: list[asyncio.AbstractServer | TlsListener] = []
        self._first = FirstClient("admin")
        self._runner: web.AppRunner | None = None
        self._trust: Trust | None = None

    def take(self, listener: socket.socket) -> None:
        """Adds a listening socket to serve and, in the end, to close."""
        self._first.sockets.append(listener)

    def start(
        self,
        subject: Subject,
        visitors: Visitors | None = None,
        admits: Callable[[], bool] | None = None,
        trust: Trust | None = None,
    ) -> None:
        """Starts to wait for the first connection. `visitors`: the limits on connections. `admits`: whether
        there is room for one more. `trust`: of a secured host, which asks other machines for certificates.
        """
        self._subject = subject
        self._trust = trust
        if visitors is not None:
            self._visitors = visitors
        if admits is not None:
            self._admits = admits
        self._first.wait(self._load)

    async def _load(self) -> None:
        """Imports in a thread, so that the faces are served meanwhile."""
        assert self._subject is not None
        runner, connections = await asyncio.to_thread(_make_runner, self._subject, self._visitors)
        await runner.setup()
        self._runner = runner
        await self._serve(runner, connections)

    async def _serve(self, runner: web.AppRunner, connections: AdminConnections) -> None:
        made = connections.factory(runner, self._admits)
        if self._trust is not None:
            self._trust.on_keys.append(connections.drop_expelled)
        loop = asyncio.get_running_loop()
        for listener in self._first.sockets:
            unix = listener.family == socket.AF_UNIX
            if self._trust is not None and not unix and not _is_local(listener):
                connections.trust = self._trust
                self._servers.append(self._secured(listener, self._trust, made))
                continue
            create = loop.create_unix_server if unix else loop.create_server
            self._servers.append(await create(made, sock=listener, backlog=128))

    def _secured(
        self, listener: socket.socket, trust: Trust, made: Callable[[], asyncio.Protocol]
    ) -> TlsListener:
        limits = self._visitors.limits
        handshakes = Visitors(Limits(limits.most, max(limits.each // 2, 1), limits.new))
        server = TlsListener(trust.server, handshakes, HANDSHAKE_SECONDS, lambda _: made())
        server.open(listener)
        return server

    async def close(self) -> None:
        """Stops accepting and closes. Safe to call twice."""
        await self._first.end()
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._first.close()


def _is_local(listener: socket.socket) -> bool:
    return ip_address(listener.getsockname()[0]).is_loopback


def _always() -> bool:
    return True


def _make_runner(subject: Subject, visitors: Visitors) -> tuple[web.AppRunner, AdminConnections]:
    from .admin_connections import AdminConnections
    from .http import runner

    connections = AdminConnections(visitors)
    return runner(subject, connections), connections
