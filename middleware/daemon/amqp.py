"""The AMQP face of a daemon, built from its settings, and the host's queues. Loaded only if it is on."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.broker import Cluster, HostPubSub
from treecast.middleware.broker.queues import (
    SPOOLS,
    JoinedQueues,
    MessageQueue,
    QueueSettings,
    Refusal,
    Run,
    VirtualHost,
    message,
    taken_from,
)
from treecast.middleware.broker.queues.restoring import QueueStorage
from treecast.middleware.model.counters import Counters
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
from treecast.shims.log_ins import LogIns

from . import tuning
from .amqp_management import HOSTS, AmqpManagement, KeptHosts
from .listeners import cannot_listen
from .secured import passwords, tls_settings
from .settings import Settings
from .troubles import Troubles
from .view import resident_bytes

_log = Log(__name__)

LEAST_FREE = 50_000_000  # free bytes on disk below which publishers wait: RabbitMQ's disk_free_limit
LOW_DISK = "low on disk"  # RabbitMQ's wording, which clients show
LOW_MEMORY = "low on memory"
_SEGMENT_BYTES = 16 << 20  # of the queue log: one remaining message keeps a whole segment on disk
_LEAVE = 1.0  # seconds for telling other hosts which queues end with their connections
_GIVE_BACK = 10.0  # seconds
_MEMORY_SHARE = 0.6  # of the machine's memory, as in RabbitMQ


class AmqpPart:
    """The AMQP face of the host and its queues, from construction, which restores the queues, to `close`."""

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        address: Address | None,
        unix_path: Path | None,
        pubsub: HostPubSub,
        troubles: Troubles,
        cluster: Cluster,
        log_ins: LogIns,
    ) -> None:
        """`address`: None to serve over TLS only. Raises StartError, or STORAGE if the disk refuses."""
        reach = cluster.queues
        self.unix_path = unix_path
        self._wanted = address
        self._settings = settings
        self._closed = False
        given = amqp_settings(settings, address, unix_path)
        storage = _open_storage(settings)
        access = _access(settings, storage)
        self._turn = pubsub.turn
        self.store = storage.store
        recorder = storage.journal.recorder("/")
        host = AmqpHost(given, access, self.store, recorder, random.SystemRandom())
        host.applications = counters.applications
        host.log_ins = log_ins
        host.work = pubsub.work
        kept = KeptHosts(host, recorder, storage.journal.definition("/", HOSTS, b""))
        face_counters, levels = counters.face("amqp"), counters.queue_levels
        self.face = AmqpFace(host, self._turn, self.store, face_counters, levels, pubsub.passes)
        self.face.pressure = Pressure(_most_memory(settings), troubles, resident_bytes)
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
        limits = (int(_most_memory(settings)), LEAST_FREE)
        self.management = AmqpManagement(
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
    def address(self) -> Address | None:
        """The listening address without TLS; None if there is none."""
        return Address(*self.face.listeners.address) if self._wanted is not None else None

    @property
    def tls_address(self) -> Address | None:
        found = self.face.listeners.tls_address
        return Address(*found) if found is not None else None

    def _listeners(self) -> tuple[tuple[str, str, int], ...]:
        found = (("amqp", self.address), ("amqp/ssl", self.tls_address))
        return tuple((name, one.host, one.port) for name, one in found if one is not None)

    def routed(
        self, vhost: str, exchange: str, key: str, headers: Mapping[str, str]
    ) -> tuple[list[MessageQueue], list[bytes]]:
        """Implements `explain.Exchanges`. Values of headers are texts."""
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

    async def start(self) -> None:
        """Starts listening. Raises StartError."""
        try:
            await self.face.start()
        except OSError as error:
            wanted = self._wanted or Address.parse(self._settings.amqp_tls)
            raise cannot_listen("amqp" if self._wanted else "amqp-tls", wanted, error) from error

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
        self.management.close()
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


class Pressure:
    """Tells the reason for which publishers have to wait, "" if there is none.

    A peak leaves free memory in the heap. It is given back to the system before publishers have to wait, at
    most every `_GIVE_BACK` s.
    """

    def __init__(
        self,
        most: float,
        troubles: Troubles,
        resident: Callable[[], int],
        give_back: Callable[[], None] = tuning.give_back,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most`: bytes of resident memory above which they wait. `resident`: the present ones."""
        self._most = most
        self._troubles = troubles
        self._resident = resident
        self._give_back = give_back
        self._clock = clock
        self._given_at = -_GIVE_BACK

    def __call__(self) -> str:
        space = self._troubles.space
        if self._troubles.disk.text or (space is not None and space.free < LEAST_FREE):
            return LOW_DISK
        return LOW_MEMORY if self._is_low() else ""

    def _is_low(self) -> bool:
        if self._resident() <= self._most:
            return False
        if self._clock() - self._given_at < _GIVE_BACK:
            return True
        self._given_at = self._clock()
        self._give_back()
        return self._resident() > self._most


def _most_memory(settings: Settings) -> float:
    """Returns the resident memory in bytes above which publishers wait."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return settings.amqp_max_memory_bytes or _MEMORY_SHARE * machine


def amqp_settings(settings: Settings, address: Address | None, unix_path: Path | None) -> AmqpSettings:
    """Returns the face's part of the settings. `address` None: no listener without TLS. Raises StartError."""
    tls, tls_address = None, Address("127.0.0.1", 0)
    if settings.amqp_tls != OFF:
        tls_address = Address.parse(settings.amqp_tls)
        tls = tls_settings(
            "amqp",
            tls_address,
            settings.amqp_tls_certificate,
            settings.amqp_tls_key,
            settings.amqp_tls_authority,
        )
    plain = address if address is not None else tls_address
    return AmqpSettings(
        plain=address is not None,
        host=plain.host,
        port=plain.port,
        unix_path=unix_path,
        tls=tls,
        tls_host=tls_address.host,
        tls_port=tls_address.port,
        certificate_login=settings.amqp_certificate_login,
        max_message_bytes=settings.amqp_max_message_bytes,
        heartbeat=settings.amqp_heartbeat,
        queues=QueueSettings(
            transient_queues=settings.amqp_transient_queues, quorum=settings.amqp_quorum_queues
        ),
    )
