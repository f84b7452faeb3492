"""RabbitMQ's management calls on the admin address.

All that the calls change is declared to the recorder of queues. A call that changed something is answered
after the host's turn has stored it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from treecast.middleware.broker import Turn
from treecast.middleware.broker.queues import Reach
from treecast.middleware.broker.stored import stored
from treecast.middleware.broker.turn import StoredWaits
from treecast.middleware.model.logs import Log
from treecast.middleware.model.request_memory import RequestMemory
from treecast.shims.amqp.certificates import ends_at
from treecast.shims.amqp.management_views import NodeFacts, node_name
from treecast.shims.amqp.server import AmqpFace
from treecast.shims.amqp.shared_access import SharedAccess
from treecast.shims.amqp.users import Users
from treecast.shims.log_ins import LogIns

from ..resource_problems import Troubles
from ..view import view_process

if TYPE_CHECKING:
    from aiohttp import web

    from treecast.shims.amqp.cluster_management import ClusterManagement

_log = Log(__name__)


class AmqpManagement:
    """The management calls of one daemon, over its face.

    `limits`: bytes of memory above which, and of free disk below which, publishers wait.
    """

    def __init__(
        self,
        name: str,
        face: AmqpFace,
        users: Users,
        turn: Turn,
        troubles: Troubles,
        limits: tuple[int, int],
        listeners: Callable[[], tuple[tuple[str, str, int], ...]],
        reach: Reach | None,
        shared: SharedAccess | None,
        log_ins: LogIns,
    ) -> None:
        self._name = name
        self._face = face
        self._waits = StoredWaits(turn)
        self._troubles = troubles
        self._limits = limits
        self._listeners = listeners
        self._began = time.monotonic()
        self._users = users
        self._reach = reach
        self._shared = shared
        self._log_ins = log_ins
        self._made: ClusterManagement | None = None
        if reach is not None:
            reach.serve(self._serve)

    path: Final = "/api/{path:.*}"

    def handler(self, memory: RequestMemory) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Implements `face.Pages`."""
        from treecast.shims.amqp.http import ManagementPages  # here: it needs the HTTP server

        return ManagementPages(self._calls(), memory).handle

    async def _serve(self, host: int, body: bytes) -> bytes:
        return await self._calls().serve(host, body)

    def _calls(self) -> ClusterManagement:
        """Loaded at the first call."""
        if self._made is None:
            from treecast.shims.amqp.cluster_management import ClusterManagement
            from treecast.shims.amqp.management import Management

            face = self._face
            calls = Management(face.host, self._users, face.sessions, self._facts)
            self._made = ClusterManagement(
                calls, self._reach, self._now, face.act, self._settled, self._log_ins
            )
        return self._made

    def close(self) -> None:
        self._waits.close()

    def _now(self) -> float:
        return self._face.loop.time()

    async def _settled(self) -> bool:
        queues = self._face.host.queues
        queues.keep()
        joined = queues.joined
        if self._shared is None or self._reach is None or joined is None:
            return await stored(self._waits)
        self._shared.look()
        self._face.act()
        version = joined.definitions.version
        is_stored = await stored(self._waits)
        await self._reach.known(version)
        return is_stored

    def _facts(self) -> NodeFacts:
        process, space = view_process(), self._troubles.space
        return NodeFacts(
            name=node_name(self._name),
            uptime=time.monotonic() - self._began,
            process_id=os.getpid(),
            processors=os.cpu_count() or 1,
            memory_used=process.resident_bytes,
            memory_limit=self._limits[0],
            disk_free=space.free if space is not None else 0,
            disk_limit=self._limits[1],
            descriptors_used=process.open_files,
            descriptors_total=process.open_files_limit,
            listeners=self._listeners(),
            certificates=self._certificates(),
        )

    def _certificates(self) -> tuple[tuple[str, float], ...]:
        """When the certificate of the face ends. One that cannot be read any more has ended."""
        tls = self._face.host.settings.tls
        if tls is None:
            return ()
        try:
            left = ends_at(tls.certificate.read_text(encoding="ascii")) - time.time()
        except (OSError, ValueError) as error:
            _log.error("certificate cannot be read", path=tls.certificate, error=error)
            left = 0.0
        return (("amqp/ssl", left),)
