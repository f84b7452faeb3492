"""The admin address: its sockets listen from the start; the first connection loads its server.

aiohttp and prometheus-client cost about 15 MB and 130 ms. A host that nobody scrapes never pays for them, and
start-up never waits for them: meanwhile connections queue in the kernel.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from treecast.middleware.model.logs import Log

if TYPE_CHECKING:
    from aiohttp import web

    from .status import Subject

_log = Log(__name__)


class AdminServer:
    """The admin server. It takes over listening sockets and serves from `start` to `close`."""

    def __init__(self) -> None:
        self._subject: Subject | None = None
        self._sockets: list[socket.socket] = []
        self._waiting = False
        self._loading: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None

    def take(self, listener: socket.socket) -> None:
        """Adds a listening socket to serve and, in the end, to close."""
        self._sockets.append(listener)

    def start(self, subject: Subject) -> None:
        """Starts to wait for the first connection."""
        self._subject = subject
        loop = asyncio.get_running_loop()
        self._waiting = True
        for listener in self._sockets:
            loop.add_reader(listener, self._wake)

    def _wake(self) -> None:
        self._stop_waiting()
        self._loading = asyncio.create_task(self._load())

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            loop = asyncio.get_running_loop()
            for listener in self._sockets:
                loop.remove_reader(listener)

    async def _load(self) -> None:
        """Imports in a thread, so that the faces are served meanwhile."""
        assert self._subject is not None
        try:
            runner = await asyncio.to_thread(_make_runner, self._subject)
            await runner.setup()
            self._runner = runner
            await self._serve(runner)
        except Exception:
            _log.exception("admin server cannot be loaded")
            self._close_sockets()

    async def _serve(self, runner: web.AppRunner) -> None:
        from aiohttp import web

        for listener in self._sockets:
            await web.SockSite(runner, listener, backlog=128).start()

    async def close(self) -> None:
        """Stops accepting and closes. Safe to call twice."""
        self._stop_waiting()
        if self._loading is not None:
            await self._loading
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._close_sockets()

    def _close_sockets(self) -> None:
        for listener in self._sockets:
            listener.close()
        self._sockets.clear()


def _make_runner(subject: Subject) -> web.AppRunner:
    from .http import runner

    return runner(subject)
