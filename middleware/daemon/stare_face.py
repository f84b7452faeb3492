"""The STARE face: its sockets listen from the start; on a host alone the first connection loads the rest.

A host alone without STARE applications never loads the modules, which saves a sixth of the start. A host of a
cluster loads them at once: it may be the replica controller's home.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treecast.middleware.api.discovery import Address
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.logs import Log
from treecast.middleware.model.visitors import Visitors

from .listeners import bound_address, listen, listen_unix

if TYPE_CHECKING:
    from treecast.shims.stare.server import StareFace

    from .stare_alone import Stare

_log = Log(__name__)


class StareFaceServer:
    """The STARE face's server, from `listen` and `load` or `load_later` to `close`."""

    def __init__(self, counters: Counters, admits: Callable[[], bool], visitors: Visitors) -> None:
        """`admits`: whether there is room for one more connection. `visitors`: the limits on them."""
        self._counters = counters
        self._admits = admits
        self._visitors = visitors
        self._sockets: list[socket.socket] = []
        self._waiting = False
        self._make: Callable[[], Stare]
        self._loading: asyncio.Task[None] | None = None
        self._stare: Stare | None = None
        self._face: StareFace | None = None

    def listen(self, address: Address, unix_path: Path | None) -> Address:
        """Listens, and returns the actual address. Raises StartError."""
        self._sockets.append(listen("stare", address))
        if unix_path is not None:
            self._sockets.append(listen_unix(unix_path))
        return bound_address(self._sockets[0])

    async def load(self, make: Callable[[], Stare]) -> None:
        """Serves from now on, with the middleware that `make` creates."""
        from treecast.shims.stare.server import StareFace
        from treecast.shims.stare.settings import FaceSettings

        self._stare = make()
        self._stare.start()
        counters = self._counters
        self._face = StareFace(self._stare.edge, FaceSettings(), counters.face("stare"), counters.stare)
        self._face.admits = self._admits
        self._face.visitors = self._visitors
        await self._face.start(self._sockets)

    def load_later(self, make: Callable[[], Stare]) -> None:
        """Does the same as `load`, but at the first connection."""
        self._make = make
        self._waiting = True
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.add_reader(listener, self._wake)

    def _wake(self) -> None:
        self._stop_waiting()
        self._loading = asyncio.create_task(self._load())

    async def _load(self) -> None:
        try:
            await self.load(self._make)
        except Exception:
            _log.exception("STARE face cannot be loaded")
            self._close_sockets()

    def _stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            loop = asyncio.get_running_loop()
            for listener in self._sockets:
                loop.remove_reader(listener)

    def _close_sockets(self) -> None:
        for listener in self._sockets:
            listener.close()

    async def close(self) -> None:
        """Closes the face. Safe to call twice."""
        self._stop_waiting()
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._face is not None:
            await self._face.close()
        if self._stare is not None:
            await self._stare.close()
        self._close_sockets()
