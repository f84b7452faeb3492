"""The STARE face of a daemon. On a host alone the first connection loads the rest.

A host alone without STARE applications never loads the modules, which saves a sixth of the start. A host of a
cluster loads them at once: it may be the replica controller's home.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treecast.shims.face import Face, OpenListener

from ..first_client import FirstClient
from ..listeners import bound_address, listen, listen_unix
from . import wanted
from .context import FaceContext

if TYPE_CHECKING:
    from treecast.shims.stare.server import StareFace

    from ..stare_alone import Stare


class StarePart(Face):
    """The host's STARE face."""

    def __init__(self, context: FaceContext) -> None:
        self._counters = context.counters
        self._admits = context.admits
        self._visitors = context.visitors(context.counters.face("stare"), logs_in=True)
        self._address = wanted(context.settings, "stare")
        self._unix_path = context.claim("stare")
        self._first = FirstClient("stare")
        self._face: StareFace | None = None
        self._stare: Stare | None = None
        if context.joining is not None:
            self._stare = context.joining.stare()
            self._stare.start()

    async def open(self) -> Sequence[OpenListener]:
        assert self._address is not None
        self._first.sockets.append(listen("stare", self._address))
        if self._unix_path is not None:
            self._first.sockets.append(listen_unix(self._unix_path))
        if self._stare is not None:
            await self._serve(self._stare)
        else:
            self._first.wait(self._load)
        return [OpenListener("stare", str(bound_address(self._first.sockets[0])), self._unix_path)]

    async def _serve(self, stare: Stare) -> None:
        from treecast.shims.stare.server import StareFace
        from treecast.shims.stare.settings import FaceSettings

        counters = self._counters
        self._face = StareFace(stare.edge, FaceSettings(), counters.face("stare"), counters.stare)
        self._face.admits = self._admits
        self._face.visitors = self._visitors
        await self._face.start(self._first.sockets)

    async def _load(self) -> None:
        from ..stare_alone import AloneStare

        self._stare = AloneStare(self._counters)
        self._stare.start()
        await self._serve(self._stare)

    async def close(self, grace: float) -> None:
        await self._first.end()
        if self._face is not None:
            await self._face.close()
        if self._stare is not None:
            await self._stare.close()
        self._first.close()
