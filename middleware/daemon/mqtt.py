"""The MQTT face of a daemon and what stands behind it, from `start` to `close`. Loaded where it is on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.api.lasting import BackOff, lasting
from treecast.middleware.broker import Cluster
from treecast.middleware.broker.bridge import Bridge
from treecast.middleware.broker.pubsub import Journal, PubSub, PubSubSettings, open_journal
from treecast.middleware.model.counters import Counters
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.shims.mqtt.passwords import PasswordError, Passwords
from treecast.shims.mqtt.server import MqttFace
from treecast.shims.mqtt.settings import MqttSettings, TlsSettings
from treecast.shims.mqtt.tls import tls_context

from .listeners import StartError, cannot_listen, check_free
from .settings import Settings

if TYPE_CHECKING:
    from .joining import Joining

_log = logging.getLogger(__name__)

FOLDER = "pubsub"  # in the data directory
_SWEEP_SECONDS = 30.0


class MqttPart:
    """The publish/subscribe of the host, its journal, and its face."""

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        address: Address | None,
        unix_path: Path | None,
        cluster: Cluster,
        joining: Joining | None = None,
    ) -> None:
        """`address`: None where it serves over TLS only. `joining`: None of a host alone."""
        self._settings = settings
        self._counters = counters
        self._joining = joining
        self._wanted = address
        self.hub = PubSub(pubsub_settings(settings), counters.pubsub)
        self._open_journal()
        self.face = MqttFace(
            self.hub,
            mqtt_settings(settings, address, unix_path),
            counters.face("mqtt"),
            levels=counters.pubsub_levels,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._bridge = Bridge(self.hub, cluster, counters.bridge, self.face.end_turn_soon, time.time)

    def _open_journal(self) -> None:
        hub, settings = self.hub, self._settings
        journal, highest = open_journal(
            str(Path(settings.data) / FOLDER),
            Disk(),
            hub.settings,
            hub.counters,
            hub.retained,
            syncs=settings.fsync is not FsyncPolicy.NEVER,
        )
        hub.journal = journal
        for message in hub.retained.all():
            hub.stamps.seen(message.stamp)
        hub.begin_serials(highest)

    @property
    def address(self) -> Address | None:
        """Where it listens without TLS; None where it does not."""
        return Address(*self.face.address) if self._wanted is not None else None

    @property
    def tls_address(self) -> Address | None:
        found = self.face.tls_address
        return Address(*found) if found is not None else None

    async def start(self) -> None:
        """Takes up the sessions, tells other hosts of them, and listens. Raises StartError."""
        self.face.take_up()
        await self._bridge.start()
        if self._joining is not None:
            self._share(self._joining)
        try:
            await self.face.start()
        except OSError as error:
            wanted = self._wanted or Address.parse(self._settings.mqtt_tls)
            raise cannot_listen("mqtt" if self._wanted else "mqtt-tls", wanted, error) from error
        works = {"the sweep of MQTT sessions": self._sweep}
        if self._settings.fsync is FsyncPolicy.INTERVAL:
            works["forcing the journal to the disk"] = self._sync_each_interval
        for what, work in works.items():
            self._tasks.append(asyncio.create_task(lasting(what, work, BackOff(random.Random()))))

    def _share(self, joining: Joining) -> None:
        """From now on publishes cross hosts."""
        # here, since a host alone needs none of it
        from treecast.middleware.relay.events.events import Events
        from treecast.middleware.relay.events.share_homes import LinkHomes

        neighbours, sharing = joining.relay.neighbours, joining.relay.sharing
        sharing.join_events(
            Events(
                self.hub,
                joining.directory.run,
                sharing.interest,
                neighbours.methods,
                neighbours.fabric,
                self._counters.events,
                self.face.end_turn_soon,
                time.time,
                LinkHomes(joining.link),
                tables=sharing.tables,
            )
        )

    async def close(self, grace: float) -> None:
        await self.face.close(grace)
        await self._bridge.close()
        if self._joining is not None:
            await self._joining.relay.sharing.leave_events()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        journal, self.hub.journal = self.hub.journal, None
        if journal is not None:
            journal.flush()
            if self._settings.fsync is not FsyncPolicy.NEVER:
                with contextlib.suppress(OSError):
                    await _sync(journal)
            journal.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.hub.sweep()

    async def _sync_each_interval(self) -> None:
        while True:
            await asyncio.sleep(self._settings.fsync_interval_ms / 1000)
            journal = self.hub.journal
            if journal is not None and journal.unsynced:
                try:
                    await _sync(journal)
                except OSError as error:
                    _log.error("the journal cannot be forced to the disk: %s", error)


async def _sync(journal: Journal) -> None:
    ticket, segment = journal.begin_sync()
    try:
        await asyncio.to_thread(ticket.run)
    except OSError as error:
        journal.end_sync(segment, str(error))
        raise
    journal.end_sync(segment, "")


def pubsub_settings(settings: Settings) -> PubSubSettings:
    """The part of publish/subscribe in the settings."""
    return PubSubSettings(
        queue_policy=settings.mqtt_queue_policy,
        queue_messages=settings.mqtt_queue_messages,
        queue_bytes=settings.mqtt_queue_bytes,
    )


def mqtt_settings(settings: Settings, address: Address | None, unix_path: Path | None) -> MqttSettings:
    """The face's part of the settings; `address` None: without TLS it listens nowhere. Raises StartError."""
    tls, tls_address = None, Address("127.0.0.1", 0)
    if settings.mqtt_tls != OFF:
        tls_address = Address.parse(settings.mqtt_tls)
        check_free("mqtt-tls", tls_address)
        tls = _tls(settings)
    plain = address if address is not None else tls_address
    return MqttSettings(
        plain=address is not None,
        host=plain.host,
        port=plain.port,
        unix_path=unix_path,
        tls=tls,
        tls_host=tls_address.host,
        tls_port=tls_address.port,
        passwords=_passwords(settings.mqtt_password_file),
        max_packet_bytes=settings.mqtt_max_packet_bytes,
        max_keep_alive=settings.mqtt_max_keep_alive,
        max_sessions=settings.mqtt_max_sessions,
        refused_filters=tuple(settings.mqtt_refused_filters.split()),
        fsync_each_turn=settings.fsync is FsyncPolicy.BATCH,
    )


def _tls(settings: Settings) -> TlsSettings:
    """Certificate, key and authority, which have been read once. Raises StartError."""
    if not settings.mqtt_tls_certificate:
        raise StartError("--mqtt-tls needs a certificate: give --mqtt-tls-certificate FILE")
    tls = TlsSettings(
        Path(settings.mqtt_tls_certificate),
        Path(settings.mqtt_tls_key) if settings.mqtt_tls_key else None,
        Path(settings.mqtt_tls_authority) if settings.mqtt_tls_authority else None,
    )
    for flag, path in (("certificate", tls.certificate), ("key", tls.key), ("authority", tls.authority)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise StartError(f"--mqtt-tls-{flag} {path}: {error.strerror}") from error
    try:
        tls_context(tls)
    except ssl.SSLError as error:
        raise StartError(
            f"--mqtt-tls: certificate, key and authority have to be PEM and to fit one another:"
            f" {error.reason or error}"
        ) from error
    return tls


def _passwords(path: str) -> Passwords | None:
    """What the file says. Raises StartError."""
    if not path:
        return None
    try:
        return Passwords(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, PasswordError) as error:
        raise StartError(f"--mqtt-password-file {path}: {error}") from error
