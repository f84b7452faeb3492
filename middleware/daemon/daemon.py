"""`Daemon`: composes the parts of one host, opens them in order, and closes them in reverse order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.broker import ALONE, Broker, BrokerSettings
from treecast.middleware.broker.pubsub import PubSubSettings
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import Host
from treecast.middleware.model.logs import Log
from treecast.shims.kafka.server import KafkaFace
from treecast.shims.kafka.settings import KafkaSettings

from .admin import AdminServer
from .control import ControlServer
from .explain import Explanation
from .guard import Guard, descriptors_left, process_shares
from .listeners import StartError, bound_address, cannot_listen, check_free, listen, listen_unix
from .notify import Notifier
from .private import tighten
from .room import RoomWatch
from .runtime_dir import RuntimeDir
from .settings import SHOWN, STORE, Settings
from .stare_face import StareFaceServer
from .status import OpenFace, Subject

if TYPE_CHECKING:
    from treecast.middleware.control.server import OpenCoordinator

    from .amqp import AmqpPart
    from .joining import Joining
    from .mqtt import MqttPart
    from .stare_alone import Stare

_log = Log(__name__)
_AFTER_FAILURE = 1.0  # seconds until housekeeping is retried


class Daemon:
    """One host's daemon: `start`, then `close`. Raises StartError if it cannot serve."""

    def __init__(self, settings: Settings, environment: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self.counters = Counters()
        self._environment = environment
        self._notifier = Notifier(environment)
        self._runtime: RuntimeDir | None = None
        self._broker: Broker | None = None
        self._joining: Joining | None = None
        self._kafka: KafkaFace | None = None
        self._stare: StareFaceServer | None = None
        self._amqp: AmqpPart | None = None
        self._mqtt: MqttPart | None = None
        self._admin = AdminServer()
        self._control: ControlServer | None = None
        self._room: RoomWatch | None = None
        self._guard: Guard | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._faces: dict[str, OpenFace] = {}
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
        for face in ("kafka", "amqp", "mqtt", "stare", "control"):  # before recovery, which may take a while
            if (address := self._wanted(face)) is not None:
                check_free(face, address)
        self._runtime = RuntimeDir.open(settings.runtime_dir, self._environment)
        self._listen_admin()
        broker = await self._start_broker()
        tighten(Path(settings.data))
        self._room = room = RoomWatch(settings.data, self._refused_writes)
        self._guard = guard = self._made_guard(room)
        self.subject = Subject(
            settings, self.counters, broker.cluster, self._faces, time.time(), troubles=room.troubles
        )
        if self._joining is not None:
            from .joined_view import JoinedHost

            self.subject.joined = JoinedHost(self._joining)
            if self._joining.coordinator is not None:
                self._joining.coordinator.service.about = lambda status: status.problems.extend(
                    room.troubles.texts()
                )
        admits = room.descriptors.admits
        await self._start_kafka(broker, admits, guard)
        await self._start_stare(admits, guard)
        self._take_up_mqtt(broker, admits, guard)
        self._take_up_amqp(broker, room, guard)
        await broker.begin_events()
        await self._open_mqtt()
        await self._open_amqp()
        self.subject.explanation = self._explanation(broker)
        await self._show_control(self.subject)
        self._admin.start(self.subject, guard.admin(), room.descriptors.admits_own)
        if self._joining is not None:
            self._opened("fabric", self._joining.address, None)
        room.start()
        guard.start()
        self._tasks.append(asyncio.create_task(self._keep_house(broker)))
        if self._notifier.watchdog_seconds is not None:
            self._tasks.append(asyncio.create_task(self._feed_watchdog(self._notifier.watchdog_seconds)))

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
        refused += self._amqp.store.refusals if self._amqp is not None else 0
        return refused + (coordinator.coordinator.refused_writes if coordinator is not None else 0)

    def _wanted(self, face: str) -> Address | None:
        text = getattr(self.settings, face)
        return None if text == OFF else Address.parse(text)

    def _claim(self, face: str) -> Path | None:
        return self._runtime.claim(face) if self._runtime is not None else None

    def _opened(self, face: str, address: Address, unix_path: Path | None) -> None:
        if self._runtime is not None:
            self._runtime.publish(face, address)
        self._faces[face] = OpenFace(face, str(address), unix_path)

    def _listen_admin(self) -> None:
        address = self._wanted("admin")
        if address is None:
            return
        listener = listen("admin", address)
        self._admin.take(listener)
        unix_path = self._claim("admin")
        if unix_path is not None:
            self._admin.take(listen_unix(unix_path))
        self._opened("admin", bound_address(listener), unix_path)

    async def _start_broker(self) -> Broker:
        settings, fabric = broker_settings(self.settings), self._wanted("fabric")
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

    async def _start_kafka(self, broker: Broker, admits: Callable[[], bool], guard: Guard) -> None:
        address = self._wanted("kafka")
        if address is None:
            return
        unix_path = self._claim("kafka")
        settings = kafka_settings(self.settings, address, unix_path)
        self._kafka = KafkaFace(broker, settings, self.counters.face("kafka"))
        self._kafka.applications = self.counters.applications
        self._kafka.admits = admits
        self._kafka.visitors = guard.face(self._kafka.counters, logs_in=False)
        try:
            await self._kafka.start()
        except OSError as error:
            raise cannot_listen("kafka", address, error) from error
        self._opened("kafka", Address(*self._kafka.address), unix_path)

    async def _start_stare(self, admits: Callable[[], bool], guard: Guard) -> None:
        address = self._wanted("stare")
        if address is None:
            return
        visitors = guard.face(self.counters.face("stare"), logs_in=True)
        self._stare = StareFaceServer(self.counters, admits, visitors)
        unix_path = self._claim("stare")
        self._opened("stare", self._stare.listen(address, unix_path), unix_path)
        if self._joining is not None:
            await self._stare.load(self._joining.stare)
        else:
            self._stare.load_later(lambda: _stare_alone(self.counters))

    def _take_up_mqtt(self, broker: Broker, admits: Callable[[], bool], guard: Guard) -> None:
        """Restores sessions and their subscriptions before other hosts learn this host's interest."""
        address = self._wanted("mqtt")
        if address is None and self._wanted("mqtt_tls") is None:
            return
        from .mqtt import MqttPart  # imported here because a host without the face does not need it

        unix_path = self._claim("mqtt") if address is not None else None
        self._mqtt = MqttPart(self.settings, self.counters, address, unix_path, broker.pubsub)
        self._mqtt.face.listeners.admits = admits
        self._mqtt.face.sessions.log_ins = guard.log_ins
        self._mqtt.face.listeners.visitors = guard.face(self._mqtt.face.counters, logs_in=True)

    async def _open_mqtt(self) -> None:
        if self._mqtt is None:
            return
        await self._mqtt.start()
        if self._mqtt.address is not None:
            self._opened("mqtt", self._mqtt.address, self._mqtt.unix_path)
        if self._mqtt.tls_address is not None:
            self._faces["mqtt-tls"] = OpenFace("mqtt-tls", str(self._mqtt.tls_address), None)

    def _take_up_amqp(self, broker: Broker, room: RoomWatch, guard: Guard) -> None:
        """Restores its queues."""
        address = self._wanted("amqp")
        if address is None and self._wanted("amqp_tls") is None:
            return
        from .amqp import AmqpPart  # here, since a host without the face needs none of it

        unix_path = self._claim("amqp") if address is not None else None
        self._amqp = AmqpPart(
            self.settings,
            self.counters,
            address,
            unix_path,
            broker.pubsub,
            room.troubles,
            broker.cluster,
            guard.log_ins,
        )
        self._amqp.face.listeners.admits = room.descriptors.admits
        self._amqp.face.listeners.visitors = guard.face(self._amqp.face.counters, logs_in=True)
        assert self.subject is not None
        self.subject.amqp = self._amqp.management

    def _explanation(self, broker: Broker) -> Explanation:
        assert self.subject is not None
        joined, own = self.subject.joined, self.settings.name
        return Explanation(
            broker.cluster,
            broker.pubsub.hub,
            self._amqp,
            joined.ways if joined is not None else None,
            joined.name if joined is not None else lambda _: own,
        )

    async def _open_amqp(self) -> None:
        if self._amqp is None:
            return
        await self._amqp.start()
        if self._amqp.address is not None:
            self._opened("amqp", self._amqp.address, self._amqp.unix_path)
        if self._amqp.tls_address is not None:
            self._faces["amqp-tls"] = OpenFace("amqp-tls", str(self._amqp.tls_address), None)

    async def _open_control(
        self, cluster_id: str, token: JoinToken, coordinator: OpenCoordinator | None
    ) -> None:
        """Listens at the control address, for calls of the coordinator at first."""
        address = self._wanted("control")
        if address is None:
            return
        calls = coordinator.calls.handler if coordinator is not None else None
        connections = process_shares().control
        self._control = ControlServer(cluster_id, address, self._claim("control"), calls, token, connections)
        await self._control.start()

    async def _show_control(self, subject: Subject) -> None:
        if self._control is None:
            cluster_id = subject.cluster.cluster_id
            coordinator = self._joining.coordinator if self._joining is not None else None
            await self._open_control(cluster_id, self._control_token(cluster_id), coordinator)
        if self._control is not None:
            self._control.show(subject)
            self._opened("control", self._control.address, self._control.unix_path)

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
            self._joining.tell(self._faces["control"].address if "control" in self._faces else OFF)
        faces = (f"{face}={self._faces[face].address}" for face in SHOWN if face in self._faces)
        return " ".join(("ready", f"name={self.settings.name}", *faces))

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
        if self._kafka is not None:
            await self._kafka.close(grace)
        if self._stare is not None:
            await self._stare.close()
        if self._mqtt is not None:
            await self._mqtt.close(grace)
        if self._amqp is not None:
            await self._amqp.close(grace)
        if self._joining is not None:
            self._joining.end_watches()
        if self._control is not None:
            await self._control.close(min(grace, 1.0))
        await self._admin.close()
        if self._room is not None:
            await self._room.close()
        if self._guard is not None:
            await self._guard.close()
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


def _stare_alone(counters: Counters) -> Stare:
    from .stare_alone import AloneStare

    return AloneStare(counters)


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


def kafka_settings(settings: Settings, address: Address, unix_path: Path | None) -> KafkaSettings:
    """Returns the Kafka face's part of the settings."""
    advertised = Address.parse(settings.kafka_advertised) if settings.kafka_advertised else None
    return KafkaSettings(
        host=address.host,
        port=address.port,
        unix_path=unix_path,
        advertised=(advertised.host, advertised.port) if advertised else None,
        max_request_bytes=settings.max_request_bytes,
    )
