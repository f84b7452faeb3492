"""The MQTT face of a daemon, as configured. Loaded only if it is on."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.model.web_callers import WebCallers
from treecast.shims.face import Face, OpenListener
from treecast.shims.mqtt.server import MqttFace
from treecast.shims.mqtt.settings import MqttSettings

from ..host_names import own_names
from ..settings import Settings
from .context import FaceAddresses, FaceContext
from .secured import passwords


class MqttPart(Face):
    """The host's MQTT face, from its creation, which restores lasting sessions, to `close`."""

    def __init__(self, context: FaceContext) -> None:
        """Raises StartError."""
        self._addresses = FaceAddresses(context, "mqtt")
        counters, pubsub = context.counters, context.broker.pubsub
        self.face = MqttFace(
            pubsub.hub,
            pubsub.turn,
            mqtt_settings(context.settings, self._addresses),
            counters.face("mqtt"),
            levels=counters.pubsub_levels,
            work=pubsub.work,
        )
        self.face.sessions.applications = counters.applications
        self.face.sessions.log_ins = context.guard.log_ins
        self.face.sessions.identities = context.identities
        limits = context.visitors(self.face.counters, logs_in=True)
        self._addresses.limit(self.face.listeners, context, limits)
        self.face.take_up()

    async def open(self) -> Sequence[OpenListener]:
        return await self._addresses.open(self.face)

    async def close(self, grace: float) -> None:
        await self.face.close(grace)


def mqtt_settings(settings: Settings, addresses: FaceAddresses) -> MqttSettings:
    """Returns the face's part of the settings. Raises StartError."""
    return MqttSettings(
        **addresses.fields(),
        passwords=passwords("mqtt", settings.mqtt_password_file),
        max_packet_bytes=settings.mqtt_max_packet_bytes,
        max_keep_alive=settings.mqtt_max_keep_alive,
        max_sessions=settings.mqtt_max_sessions,
        refused_filters=tuple(settings.mqtt_refused_filters.split()),
        callers=_callers(settings),
    )


def _callers(settings: Settings) -> WebCallers:
    names = own_names(settings, settings.mqtt, settings.mqtt_names)
    secured = own_names(settings, settings.mqtt_tls, "")
    return WebCallers((*names, *secured), settings.mqtt_origins.split())
