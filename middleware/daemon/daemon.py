"""`Daemon`: composes the parts of one host, opens them in order, and closes them in reverse order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.api.trust_files import is_secured
from treecast.middleware.broker import ALONE, Broker, BrokerSettings
from treecast.middleware.broker.pubsub import PubSubSettings
from treecast.middleware.broker.queues import QueueSettings
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import Host
from treecast.middleware.model.logs import Log
from treecast.shims.amqp.dialect import AmqpDialect
from treecast.shims.face import Exchanges, Face, OpenListener

from .admin import AdminServer
from .audit import AuditLog
from .certificates import WatchedCertificates
from .control import ControlServer
from .explain import Explanation
from .faces import FACES, FaceKind, listeners, shown, wanted
from .faces.context import FaceContext
from .file_permissions import tighten
from .guard import Guard, descriptors_left, process_shares
from .listeners import StartError, bound_address, check_free, listen, listen_unix
from .notify import Notifier
from .resource_watch import RoomWatch
from .runtime_dir import RuntimeDir
from .settings import STORE, Settings, TelemetryNames
from .status import Subject
from .users_file import WatchedUsers, refuse_without_users, users_path, warn_of_open_doors

if TYPE_CHECKING:
    from treecast.middleware.control.server import OpenCoordinator

    from .joining import Joining
    from .listener_addresses import ListenerAddresses
    from .telemetry import Telemetry

_log = Log(__name__)
_AFTER_FAILURE = 1.0  # seconds until housekeeping is retried
_STAYS = ("127.", "::1", "localhost")  # addresses that no change of an interface takes away


class Daemon:
    """One host's daemon: `start`, then `close`. Raises StartError if it cannot serve."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str] = os.environ,
        kinds: tuple[FaceKind, ...] = FACES,
    ) -> None:
        """`kinds`: the faces that it may have; the settings say which of them are on."""
        self.settings = settings
        self._kinds = kinds
        self.counters = Counters()
        self._environment = environment
        self._notifier = Notifier(environment)
        self._runtime: RuntimeDir | None = None
        self._broker: Broker | None = None
        self._joining: Joining | None = None
        self._faces: list[Face] = []  # that are on, in the order of `kinds`
        self._admin = AdminServer()
        self._control: ControlServer | None = None
        self._room: RoomWatch | None = None
        self._guard: Guard | None = None
        self._users: WatchedUsers | None = None
        self._certificates = WatchedCertificates()
        self._audit: AuditLog | None = None
        self._telemetry: Telemetry | None = None
        self._addresses: ListenerAddresses | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.listeners: dict[str, OpenListener] = {}
        self.subject: Subject | None = None

    # --- opening

    async def start(self) -> None:
        """Opens everything. After a failure, closes what was opened."""
        try:
            await self._start()
        except (TreecastError, OSError) as error:
            await self.close(0.0)
            raise StartError(str(error)) from error
        except BaseException:
            await self.close(0.0)
            raise

    async def _start(self) -> None:
        settings = self.settings
        self._check_free()
        self._runtime = RuntimeDir.open(settings.runtime_dir, self._environment)
        self._listen_admin()
        broker = await self._start_broker()
        tighten(Path(settings.data))
        self._users = users = WatchedUsers(users_path(settings), named=bool(settings.access_file))
        if is_secured(Path(settings.data)):
            faces = [kind.name for kind in self._kinds if kind.is_on(settings)]
            refuse_without_users(users.identities, users.path, faces)
        self._audit = AuditLog.of(settings, users.identities)
        self._room = room = RoomWatch(settings.data, self._refused_writes)
        self._guard = guard = self._made_guard(room)
        self.subject = Subject(
            settings, self.counters, broker.cluster, self.listeners, time.time(), troubles=room.troubles
        )
        self._show_joined(self.subject, room)
        self._restore_queues(broker)
        self._take_up_faces(broker, room, guard, users)
        await broker.begin_events()
        await self._open_faces(self.subject)
        self.subject.explanation = self._explanation(broker)
        await self._show_control(self.subject)
        secured = self._joining.secured if self._joining is not None else None
        trust = secured.trust if secured is not None else None
        if secured is not None:
            self._certificates.add_files("the certificate of this host", secured.trust, secured.ends)
        self._admin.start(self.subject, guard.admin(), room.descriptors.admits_own, trust)
        if self._joining is not None:
            self._opened(OpenListener("fabric", str(self._joining.address), None))
            self._joining.relay.neighbours.on_moved.append(
                lambda here: self._opened(OpenListener("fabric", str(here.address), None))
            )
        self._order_listeners()
        self._watch_addresses(self.subject)
        room.start()
        guard.start()
        users.watching.start()
        self._certificates.watching.start()
        if self._audit is not None:
            self._audit.start()
        self.subject.users = users
        self.subject.certificates = self._certificates
        warn_of_open_doors(users.identities, self.listeners.values())
        self._start_telemetry(broker)
        self._tasks.append(asyncio.create_task(self._keep_house(broker)))
        if self._notifier.watchdog_seconds is not None:
            self._tasks.append(asyncio.create_task(self._feed_watchdog(self._notifier.watchdog_seconds)))

    def _show_joined(self, subject: Subject, room: RoomWatch) -> None:
        if self._joining is None:
            return
        from .joined_view import JoinedHost

        subject.joined = JoinedHost(self._joining)
        coordinator = self._joining.coordinator
        if coordinator is not None:
            coordinator.service.about = lambda status: status.problems.extend(room.troubles.texts())

    def _start_telemetry(self, broker: Broker) -> None:
        names = self.settings.telemetry
        if names is TelemetryNames.OFF:
            return
        if self._joining is None:
            _log.warning("telemetry is off on a host alone", advice="start with --fabric HOST:PORT")
            return
        from .telemetry import Hashing, JoinedCounting, Reporter, Telemetry  # here, since few hosts write any

        hashing = Hashing(self._joining.token.derive("telemetry"), names is TelemetryNames.HASHED)
        counting = JoinedCounting(self._joining, broker.pubsub.hub)
        run, zone = self._joining.directory.run, self.settings.zone
        reporter = Reporter(self.settings.name, run, counting, time.time(), hashing, zone)
        seconds = self.settings.telemetry_interval_ms / 1000
        self._telemetry = Telemetry(broker.cluster, reporter, seconds, counting.leads)
        self._telemetry.start()

    def _made_guard(self, room: RoomWatch) -> Guard:
        """Returns the limits of the listeners. The faces leave the shares of the others free."""
        shares = process_shares(self.settings.connections_per_address)
        room.descriptors.leave(descriptors_left)
        return Guard(shares, self.settings.unfinished_request_bytes)

    def _refused_writes(self) -> int:
        """Returns how often the disk of the data directory has refused a write."""
        counters, coordinator = (
            self.counters,
            self._joining.coordinator if self._joining is not None else None,
        )
        refused = counters.storage.write_errors + counters.pubsub.journal_errors
        refused += self._broker.queues.refused_writes if self._broker is not None else 0
        return refused + (coordinator.coordinator.refused_writes if coordinator is not None else 0)

    def _check_free(self) -> None:
        """Asks for the addresses before the recovery, which may take a while."""
        for name in listeners(self._kinds):
            if name in ("admin", "fabric"):  # these listen before it
                continue
            if (address := wanted(self.settings, name)) is not None:
                check_free(shown(name), address)

    def _restore_queues(self, broker: Broker) -> None:
        """Restores the queues, whichever faces are on: other hosts use them, and their messages expire."""
        dialect = AmqpDialect(broker.cluster, broker.pubsub, broker.queues)
        broker.queues.restore(dialect, broker.cluster.queues)

    def _take_up_faces(self, broker: Broker, room: RoomWatch, guard: Guard, users: WatchedUsers) -> None:
        """Makes the faces that are on: they restore what they kept before other hosts learn this host's
        interest.
        """
        context = FaceContext(
            self.settings,
            self.counters,
            broker,
            room.troubles,
            guard,
            room.descriptors.admits,
            self._claim,
            self._joining,
            users.identities,
            self._certificates,
        )
        for kind in self._kinds:
            if kind.is_on(self.settings):
                self._faces.append(kind.make(context))

    def _claim(self, face: str) -> Path | None:
        return self._runtime.claim(face) if self._runtime is not None else None

    async def _open_faces(self, subject: Subject) -> None:
        for face in self._faces:
            for one in await face.open():
                self._opened(one)
        subject.pages = [face.pages for face in self._faces if face.pages is not None]

    def _opened(self, one: OpenListener) -> None:
        if self._runtime is not None and not one.secured:
            self._runtime.publish(one.name, Address.parse(one.address))
        self.listeners[one.name] = one

    def _order_listeners(self) -> None:
        """Puts the listeners into the order in which they are shown."""
        opened = dict(self.listeners)
        names = [name for setting in listeners(self._kinds) if (name := shown(setting)) in opened]
        self.listeners.clear()
        self.listeners.update((name, opened[name]) for name in names)

    def _watch_addresses(self, subject: Subject) -> None:
        addresses = self._shown_addresses().values()
        if all(Address.parse(one).host.startswith(_STAYS) for one in addresses):
            return
        from .listener_addresses import ListenerAddresses  # here: most hosts listen on loopback alone

        subject.listening = self._addresses = ListenerAddresses(self._shown_addresses)
        self._addresses.start()

    def _shown_addresses(self) -> dict[str, str]:
        return {one.name: one.address for one in self.listeners.values()}

    def _listen_admin(self) -> None:
        address = wanted(self.settings, "admin")
        if address is None:
            return
        listener = listen("admin", address)
        self._admin.take(listener)
        unix_path = self._claim("admin")
        if unix_path is not None:
            self._admin.take(listen_unix(unix_path))
        self._opened(OpenListener("admin", str(bound_address(listener)), unix_path))

    async def _start_broker(self) -> Broker:
        settings, fabric = broker_settings(self.settings), wanted(self.settings, "fabric")
        if fabric is None:
            self._broker = alone(settings, self.settings.name, self.counters)
        else:
            from .joining import Joining  # imported here because a host alone does not need it

            self._joining = Joining(self.settings, self.counters, fabric, self._open_control)
            await self._joining.open()
            self._broker = Broker(
                settings,
                self._joining.host,
                self.counters,
                directory=self._joining.directory,
                join=self._joining.cluster,
            )
        await self._broker.start()
        return self._broker

    def _explanation(self, broker: Broker) -> Explanation:
        assert self.subject is not None
        joined, own = self.subject.joined, self.settings.name
        return Explanation(
            broker.cluster,
            broker.pubsub.hub,
            self._exchanges(),
            joined.ways if joined is not None else None,
            joined.name if joined is not None else lambda _: own,
        )

    def _exchanges(self) -> Exchanges | None:
        return next((face.exchanges for face in self._faces if face.exchanges is not None), None)

    async def _open_control(
        self, cluster_id: str, token: JoinToken, coordinator: OpenCoordinator | None
    ) -> None:
        """Listens at the control address, for calls of the coordinator at first."""
        address = wanted(self.settings, "control")
        if address is None:
            return
        calls = coordinator.calls.handler if coordinator is not None else None
        connections = process_shares().control
        secured = self._joining.secured if self._joining is not None else None
        self._control = ControlServer(
            cluster_id,
            address,
            self._claim("control"),
            calls,
            token if secured is None else None,
            connections,
            secured.door if secured is not None else None,
        )
        await self._control.start()
        if secured is not None:
            secured.tell_address(str(self._control.address))

    async def _show_control(self, subject: Subject) -> None:
        if self._control is None:
            cluster_id = subject.cluster.cluster_id
            coordinator = self._joining.coordinator if self._joining is not None else None
            await self._open_control(cluster_id, self._control_token(cluster_id), coordinator)
        if self._control is not None:
            self._control.show(subject)
            opened = OpenListener("control", str(self._control.address), self._control.unix_path)
            self._opened(opened)

    def _control_token(self, cluster_id: str) -> JoinToken:
        """Returns the token whose key signs calls from other hosts to the control address."""
        if self._joining is not None:
            return self._joining.token
        from .control_access import control_token

        return control_token(Path(self.settings.data), cluster_id)

    # --- serving

    def now_serving(self) -> str:
        """Notifies the service manager and returns the ready line."""
        assert self.subject is not None
        self.subject.ready = True
        self._notifier.send("READY=1", f"STATUS=serving as {self.settings.name}")
        _log.info("daemon serves", path=self.settings.data, fsync=self.settings.fsync.value)
        if self._joining is not None:
            control = self.listeners.get("control")
            self._joining.tell(control.address if control is not None else OFF)
        faces = (f"{name}={one.address}" for name, one in self.listeners.items())
        return " ".join(("ready", f"name={self.settings.name}", *faces))

    def read_again(self) -> None:
        """Reads users, rights and certificates again, changed or not. What is wrong changes nothing, and is
        said in the log and by `treecast status`."""
        if self._users is not None:
            self._users.look(again=True)
        self._certificates.look(again=True)

    async def _keep_house(self, broker: Broker) -> None:
        """Calls the broker's housekeeping at the times that it asks for."""
        while True:
            now = time.time()
            try:
                due = await broker.housekeeping(now)
            except Exception:
                _log.exception("housekeeping failed")
                due = now + _AFTER_FAILURE
            await asyncio.sleep(max(due - time.time(), 0.0))

    async def _feed_watchdog(self, interval: float) -> None:
        while True:
            self._notifier.send("WATCHDOG=1")
            await asyncio.sleep(interval)

    # --- closing

    async def close(self, grace: float) -> None:
        """Stops accepting, answers pending requests within `grace` seconds, flushes, removes its sockets.

        Safe to call twice: a second call ends at once what the first was still waiting for.
        """
        if self.subject is not None:
            self.subject.ready = False
        self._notifier.send("STOPPING=1")
        for face in sorted(self._faces, key=lambda face: face.keeps):
            await face.close(grace)
        if self._joining is not None:
            self._joining.end_watches()
        if self._control is not None:
            await self._control.close(min(grace, 1.0))
        await self._admin.close()
        if self._addresses is not None:
            self._addresses.close()
        if self._room is not None:
            await self._room.close()
        if self._guard is not None:
            await self._guard.close()
        if self._users is not None:
            await self._users.watching.close()
        await self._certificates.watching.close()
        if self._audit is not None:
            await self._audit.close()
        if self._telemetry is not None:
            await self._telemetry.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._broker is not None:
            await self._broker.close()
        if self._joining is not None:
            await self._joining.close()
        if self._runtime is not None:
            self._runtime.remove()
        self._notifier.close()


def alone(settings: BrokerSettings, name: str, counters: Counters) -> Broker:
    """Returns the broker of a host alone. If it was a cluster of this host only, dissolves the
    cluster first.
    """
    host = Host(ALONE, name)
    if not (settings.data / STORE).exists():
        return Broker(settings, host, counters)
    from .alone import take_alone

    return Broker(settings, host, counters, directory=take_alone(settings.data, settings.fsync))


def broker_settings(settings: Settings) -> BrokerSettings:
    """Returns the broker's part of the settings. A group's own settings may range up to the daemon's."""
    defaults = BrokerSettings(Path(settings.data))
    session_ms = settings.group_consumer_session_timeout_ms
    beat_ms = settings.group_consumer_heartbeat_interval_ms
    return BrokerSettings(
        data=Path(settings.data),
        fsync=settings.fsync,
        fsync_interval_ms=settings.fsync_interval_ms,
        max_partitions=settings.max_partitions,
        default_partitions=settings.default_partitions,
        auto_create_topics=settings.auto_create_topics,
        accept_replication_factor=settings.accept_replication_factor,
        topic_defaults=settings.topic_defaults,
        pubsub=PubSubSettings(
            queue_policy=settings.mqtt_queue_policy,
            queue_messages=settings.mqtt_queue_messages,
            queue_bytes=settings.mqtt_queue_bytes,
        ),
        queues=QueueSettings(
            transient_queues=settings.amqp_transient_queues, quorum=settings.amqp_quorum_queues
        ),
        group_initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        group_min_session_timeout_ms=settings.group_min_session_timeout_ms,
        group_max_session_timeout_ms=settings.group_max_session_timeout_ms,
        group_consumer_session_timeout_ms=session_ms,
        group_consumer_min_session_timeout_ms=min(session_ms, defaults.group_consumer_min_session_timeout_ms),
        group_consumer_max_session_timeout_ms=max(session_ms, defaults.group_consumer_max_session_timeout_ms),
        group_consumer_heartbeat_interval_ms=beat_ms,
        group_consumer_min_heartbeat_interval_ms=min(
            beat_ms, defaults.group_consumer_min_heartbeat_interval_ms
        ),
        group_consumer_max_heartbeat_interval_ms=max(
            beat_ms, defaults.group_consumer_max_heartbeat_interval_ms
        ),
        offsets_retention_ms=settings.offsets_retention_ms,
        retention_check_interval_ms=settings.retention_check_interval_ms,
        compaction_check_interval_ms=settings.compaction_check_interval_ms,
        transaction_max_timeout_ms=settings.transaction_max_timeout_ms,
    )
