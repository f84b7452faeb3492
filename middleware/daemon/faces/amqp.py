"""The AMQP face of a daemon, built from its settings, and the host's queues. Loaded only if it is on."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from treecast.middleware.broker.access import StoredRights
from treecast.middleware.broker.queues import (
    SPOOLS,
    AnyQueue,
    JoinedQueues,
    QueueSettings,
    Refusal,
    Run,
    VirtualHost,
    message,
    taken_from,
)
from treecast.middleware.broker.queues.restoring import QueueStorage
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.disk import Disk
from treecast.shims.amqp.access import KIND, KeptUsers, PasswordAccess
from treecast.shims.amqp.bridge import TopicBridge
from treecast.shims.amqp.records import properties_of
from treecast.shims.amqp.server import AmqpFace
from treecast.shims.amqp.session_host import AmqpHost
from treecast.shims.amqp.session_messages import FORMAT
from treecast.shims.amqp.settings import AmqpSettings
from treecast.shims.amqp.shared_access import SharedAccess
from treecast.shims.amqp.stream_logs import StreamLogs
from treecast.shims.face import Face, OpenListener

from ..settings import Settings
from ..view import resident_bytes
from .amqp_management import HOSTS, AmqpManagement, KeptHosts
from .context import FaceAddresses, FaceContext
from .pressure import LEAST_FREE, Pressure, most_memory
from .secured import passwords

_log = Log(__name__)

_SEGMENT_BYTES = 16 << 20  # of the queue log: one remaining message keeps a whole segment on disk
_LEAVE = 1.0  # seconds for telling other hosts which queues end with their connections


class AmqpPart(Face):
    """The AMQP face of the host and its queues, from construction, which restores the queues, to `close`."""

    keeps = True  # its queues take what the other faces still publish while they close

    def __init__(self, context: FaceContext) -> None:
        """Raises StartError, or STORAGE if the disk refuses."""
        settings, counters, cluster = context.settings, context.counters, context.broker.cluster
        pubsub, troubles, log_ins = context.broker.pubsub, context.troubles, context.guard.log_ins
        reach = cluster.queues
        self._addresses = FaceAddresses(context, "amqp")
        self._closed = False
        given = amqp_settings(settings, self._addresses)
        storage = _open_storage(settings)
        access = _access(settings, storage)
        self._turn = pubsub.turn
        self.store = storage.store
        access.use(context.identities)
        recorder = storage.journal.recorder("/")
        host = AmqpHost(given, access, self.store, recorder, random.SystemRandom())
        host.authorizer = StoredRights(context.identities, host.authorizer)
        host.applications = counters.applications
        host.log_ins = log_ins
        host.work = pubsub.work
        kept = KeptHosts(host, recorder, storage.journal.definition("/", HOSTS, b""))
        face_counters, levels = counters.face("amqp"), counters.queue_levels
        self.face = AmqpFace(host, self._turn, self.store, face_counters, levels, pubsub.passes)
        limits_of = context.visitors(face_counters, logs_in=True)
        self._addresses.limit(self.face.listeners, context, limits_of)
        self.face.pressure = Pressure(most_memory(settings), troubles, resident_bytes)
        self._streams = StreamLogs(cluster, pubsub, self.face.act)
        host.use_streams(self._streams)
        self._spools = VirtualHost(SPOOLS, self.store, storage.journal.recorder(SPOOLS), given.queues)
        self._restore(storage, host)
        # Written before the publish/subscribe journal, which records what other hosts have sent.
        self._turn.add_store(self.store, first=True)
        self._bridge = TopicBridge(pubsub.hub, host.vhosts["/"], asyncio.get_running_loop().time)
        self._reach = reach
        shared: SharedAccess | None = None
        if reach is not None:
            taken = taken_from(storage.journal.declared.values())
            joined = JoinedQueues(host, self._spools, taken, reach, self.face.act)
            self.face.join(joined)
            shared = SharedAccess(host, access, joined.definitions, kept.keep)
            reach.join(joined)
        limits = (int(most_memory(settings)), LEAST_FREE)
        self.exchanges = self
        self.pages = self._management = AmqpManagement(
            settings.name,
            self.face,
            access,
            kept,
            self._turn,
            troubles,
            limits,
            self._listeners,
            reach,
            shared,
            log_ins,
        )

    def _restore(self, storage: QueueStorage, host: AmqpHost) -> None:
        def vhost_of(name: str) -> VirtualHost:
            if name == SPOOLS:
                return self._spools
            return host.vhosts.get(name) or host.add_vhost(name)

        count = storage.restore(vhost_of, asyncio.get_running_loop().time())
        queues = sum(len(vhost.queues) for vhost in host.vhosts.values())
        if queues:
            _log.info("queues restored", queues=queues, messages=count)

    @property
    def refused_writes(self) -> int:
        return self.store.refusals

    def _listeners(self) -> tuple[tuple[str, str, int], ...]:
        """Returns RabbitMQ's name, the host and the port of each listener."""
        found = self.face.listeners
        plain = [("amqp", *found.address)] if self._addresses.plain is not None else []
        return (*plain, *([("amqp/ssl", *found.tls_address)] if found.tls_address is not None else []))

    def routed(
        self, vhost: str, exchange: str, key: str, headers: Mapping[str, str]
    ) -> tuple[list[AnyQueue], list[bytes]]:
        """Implements `face.Exchanges`. Values of headers are texts."""
        host = self.face.host.vhosts.get(vhost)
        if host is None:
            raise TreecastError(Fault.INVALID_REQUEST, f"there is no virtual host {vhost!r}")
        name, routing_key = exchange.encode(), key.encode()
        properties = properties_of([(one, value.encode()) for one, value in headers.items()], persistent=True)
        run = Run(name, routing_key, message(properties, b""), 1, 0)
        run.format = FORMAT
        try:
            host.may_publish(name)
        except Refusal as error:
            raise TreecastError(Fault.INVALID_REQUEST, error.detail) from error
        bridged = self._bridge.topics(run) if name in host.outlets else []
        return host.queues_for(run), bridged

    async def open(self) -> Sequence[OpenListener]:
        return await self._addresses.open(self.face)

    async def close(self, grace: float) -> None:
        """Closes the face, writes its queues, and forces them to disk. Safe to call twice."""
        await self.face.close(grace)
        if self._closed:
            return
        self._closed = True
        self._bridge.close()
        await self._streams.close()
        if self._reach is not None:
            await self._reach.leave(min(grace, _LEAVE))
        self._management.close()
        self._turn.remove_store(self.store)
        self.store.flush()
        with suppress(OSError):
            self.store.begin_sync()[0].run()
        self.store.close()


def _access(settings: Settings, storage: QueueStorage) -> KeptUsers:
    known = passwords("amqp", settings.amqp_password_file)
    recorder, kept = storage.journal.recorder("/"), storage.journal.definition("/", KIND, b"")
    if known is not None:
        return PasswordAccess(known, recorder, kept)
    return KeptUsers(recorder, kept, random.SystemRandom().randbytes(4))


def _open_storage(settings: Settings) -> QueueStorage:
    return QueueStorage(
        str(Path(settings.data) / "queues"),
        Disk(),
        offset=time.time() - asyncio.get_running_loop().time(),
        syncs=True,
        segment_bytes=_SEGMENT_BYTES,
    )


def amqp_settings(settings: Settings, addresses: FaceAddresses) -> AmqpSettings:
    """Returns the face's part of the settings."""
    return AmqpSettings(
        **addresses.fields(),
        certificate_login=settings.amqp_certificate_login,
        max_message_bytes=settings.amqp_max_message_bytes,
        heartbeat=settings.amqp_heartbeat,
        queues=QueueSettings(
            transient_queues=settings.amqp_transient_queues, quorum=settings.amqp_quorum_queues
        ),
    )
