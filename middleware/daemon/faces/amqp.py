"""The AMQP face of a daemon, built from its settings. Loaded only if it is on."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from treecast.middleware.broker import HostQueues
from treecast.middleware.broker.access import AuditedRights, StoredRights
from treecast.middleware.broker.queues import AnyQueue, Refusal, Run, message
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.shims.amqp.access import KIND, KeptUsers, PasswordAccess
from treecast.shims.amqp.codec_publish import FORMAT
from treecast.shims.amqp.records import properties_of
from treecast.shims.amqp.server import AmqpFace
from treecast.shims.amqp.session_host import AmqpHost
from treecast.shims.amqp.settings import AmqpSettings
from treecast.shims.amqp.shared_access import SharedAccess
from treecast.shims.face import Face, OpenListener

from ..settings import Settings
from ..view import resident_bytes
from .amqp_management import AmqpManagement
from .context import FaceAddresses, FaceContext
from .pressure import LEAST_FREE, Pressure, most_memory
from .secured import passwords


class AmqpPart(Face):
    """The AMQP face of the host, over its queues."""

    keeps = True  # its consumers get what the other faces still publish while they close

    def __init__(self, context: FaceContext) -> None:
        """Raises StartError."""
        settings, counters, cluster = context.settings, context.counters, context.broker.cluster
        pubsub, queues = context.broker.pubsub, context.broker.queues
        troubles, log_ins = context.troubles, context.guard.log_ins
        self._addresses = FaceAddresses(context, "amqp")
        access = _access(settings, queues)
        access.use(context.identities)
        given = amqp_settings(settings, self._addresses)
        host = AmqpHost(given, access, queues.hosts, random.SystemRandom())
        host.authorizer = StoredRights(context.identities, host.authorizer)
        host.identities = context.identities
        if context.identities.trail is not None:
            host.authorizer = AuditedRights(host.authorizer, context.identities, "amqp")
        host.applications = counters.applications
        host.log_ins = log_ins
        host.work = pubsub.work
        face_counters = counters.face("amqp")
        self.face = AmqpFace(host, pubsub.turn, queues.edge, face_counters)
        limits_of = context.visitors(face_counters, logs_in=True)
        self._addresses.limit(self.face.listeners, context, limits_of)
        self.face.pressure = Pressure(most_memory(settings), troubles, resident_bytes)
        joined = queues.hosts.joined
        self.exchanges = self
        self.pages = self._management = AmqpManagement(
            settings.name,
            self.face,
            access,
            pubsub.turn,
            troubles,
            (int(most_memory(settings)), LEAST_FREE),
            self._listeners,
            cluster.queues,
            SharedAccess(queues.hosts, access, joined.definitions) if joined is not None else None,
            log_ins,
        )

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
            host.router.may_publish(name)
        except Refusal as error:
            raise TreecastError(Fault.INVALID_REQUEST, error.detail) from error
        outlet = host.outlets.get(name)
        return host.queues_for(run), outlet.topics(run) if outlet is not None else []

    async def open(self) -> Sequence[OpenListener]:
        return await self._addresses.open(self.face)

    async def close(self, grace: float) -> None:
        """Closes the face. Safe to call twice."""
        await self.face.close(grace)
        self._management.close()


def _access(settings: Settings, queues: HostQueues) -> KeptUsers:
    known = passwords("amqp", settings.amqp_password_file)
    if known is not None:
        return PasswordAccess(known, queues.recorder, queues.kept(KIND))
    return KeptUsers(queues.recorder, queues.kept(KIND), random.SystemRandom().randbytes(4))


def amqp_settings(settings: Settings, addresses: FaceAddresses) -> AmqpSettings:
    """Returns the face's part of the settings."""
    return AmqpSettings(
        **addresses.fields(),
        certificate_login=settings.amqp_certificate_login,
        max_message_bytes=settings.amqp_max_message_bytes,
        heartbeat=settings.amqp_heartbeat,
    )
