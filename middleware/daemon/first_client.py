"""Sockets that listen while nothing is loaded: the first connection loads what serves them. Meanwhile
connections queue in the kernel.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from treecast.middleware.model.logs import Log

_log = Log(__name__)


class FirstClient:
    """Listening sockets, from `wait` to `close`."""

    def __init__(self, what: str) -> None:
        """`what`: the face that is loaded, for the log."""
        self.sockets: list[socket.socket] = []
        self._what = what
        self._load: Callable[[], Awaitable[None]]
        self._waiting = False
        self._loading: asyncio.Task[None] | None = None

    def wait(self, load: Callable[[], Awaitable[None]]) -> None:
        """Waits for the first connection, then calls `load`. If that fails, nobody listens any longer."""
        self._load = load
        self._waiting = True
        loop = asyncio.get_running_loop()
        for listener in self.sockets:
            loop.add_reader(listener, self._wake)

    def _wake(self) -> None:
        self._stop_waiting()
        self._loading = asyncio.create_task(self._loaded())

    async def _loaded(self) -> None:
        try:
            await self._load()
        except Exception:
            _log.exception("what serves these sockets cannot be loaded", face=self._what)
            self.close()

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            loop = asyncio.get_running_loop()
            for listener in self.sockets:
                loop.remove_reader(listener)

    async def end(self) -> None:
        """Stops waiting. What is being loaded is loaded first. Safe to call twice."""
        self._stop_waiting()
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)

    def close(self) -> None:
        """Closes the sockets."""
        for listener in self.sockets:
            listener.close()
        self.sockets.clear()
