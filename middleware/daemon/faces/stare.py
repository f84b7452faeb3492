"""The STARE face of a daemon. On a host alone the first connection loads the rest.

A host alone without STARE applications never loads the modules, which saves a sixth of the start. A host of a
cluster loads them at once: it may be the replica controller's home.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from treecast.middleware.model.logs import Log
from treecast.shims.face import Face, OpenListener

from ..listeners import bound_address, listen, listen_unix
from . import wanted
from .context import FaceContext

if TYPE_CHECKING:
    from treecast.shims.stare.server import StareFace

    from ..stare_alone import Stare

_log = Log(__name__)


class StarePart(Face):
    """The host's STARE face."""

    def __init__(self, context: FaceContext) -> None:
        self._counters = context.counters
        self._admits = context.admits
        self._visitors = context.visitors(context.counters.face("stare"), logs_in=True)
        self._address = wanted(context.settings, "stare")
        self._unix_path = context.claim("stare")
        self._sockets: list[socket.socket] = []
        self._waiting = False
        self._loading: asyncio.Task[None] | None = None
        self._face: StareFace | None = None
        self._stare: Stare | None = None
        if context.joining is not None:
            self._stare = context.joining.stare()
            self._stare.start()

    async def open(self) -> Sequence[OpenListener]:
        assert self._address is not None
        self._sockets.append(listen("stare", self._address))
        if self._unix_path is not None:
            self._sockets.append(listen_unix(self._unix_path))
        if self._stare is not None:
            await self._serve(self._stare)
        else:
            self._wait()
        return [OpenListener("stare", str(bound_address(self._sockets[0])), self._unix_path)]

    async def _serve(self, stare: Stare) -> None:
        from treecast.shims.stare.server import StareFace
        from treecast.shims.stare.settings import FaceSettings

        counters = self._counters
        self._face = StareFace(stare.edge, FaceSettings(), counters.face("stare"), counters.stare)
        self._face.admits = self._admits
        self._face.visitors = self._visitors
        await self._face.start(self._sockets)

    def _wait(self) -> None:
        """Waits for the first connection."""
        self._waiting = True
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.add_reader(listener, self._wake)

    def _wake(self) -> None:
        self._stop_waiting()
        self._loading = asyncio.create_task(self._load())

    async def _load(self) -> None:
        from ..stare_alone import AloneStare

        try:
            self._stare = AloneStare(self._counters)
            self._stare.start()
            await self._serve(self._stare)
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

    async def close(self, grace: float) -> None:
        self._stop_waiting()
        if self._loading is not None:
            await asyncio.gather(self._loading, return_exceptions=True)
        if self._face is not None:
            await self._face.close()
        if self._stare is not None:
            await self._stare.close()
        self._close_sockets()
