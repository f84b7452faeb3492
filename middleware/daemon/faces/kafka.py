"""The Kafka face of a daemon, as configured."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.api.discovery import Address
from treecast.shims.face import Face, OpenListener
from treecast.shims.kafka.server import KafkaFace
from treecast.shims.kafka.settings import KafkaSettings

from ..settings import Settings
from .context import FaceAddresses, FaceContext


class KafkaPart(Face):
    """The host's Kafka face."""

    def __init__(self, context: FaceContext) -> None:
        self._addresses = FaceAddresses(context, "kafka")
        counters = context.counters.face("kafka")
        self.face = KafkaFace(context.broker, kafka_settings(context.settings, self._addresses), counters)
        self.face.applications = context.counters.applications
        self.face.identities = context.identities
        self.face.log_ins = context.guard.log_ins
        limits = context.visitors(counters, logs_in=False)
        self._addresses.limit(self.face.listeners, context, limits)

    async def open(self) -> Sequence[OpenListener]:
        return await self._addresses.open(self.face)

    async def close(self, grace: float) -> None:
        await self.face.close(grace)


def kafka_settings(settings: Settings, addresses: FaceAddresses) -> KafkaSettings:
    """Returns the face's part of the settings."""
    return KafkaSettings(
        **addresses.fields(),
        advertised=_told(settings.kafka_advertised),
        tls_advertised=_told(settings.kafka_tls_advertised),
        max_request_bytes=settings.max_request_bytes,
    )


def _told(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    address = Address.parse(text)
    return address.host, address.port
