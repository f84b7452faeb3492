"""The MQTT face of a daemon, as configured. Loaded only if it is on."""

from __future__ import annotations

from pathlib import Path

from treecast.middleware.api.discovery import OFF, Address
from treecast.middleware.broker import HostPubSub
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.web_callers import WebCallers
from treecast.shims.mqtt.server import MqttFace
from treecast.shims.mqtt.settings import MqttSettings

from .host_names import own_names
from .listeners import cannot_listen
from .secured import passwords, tls_settings
from .settings import Settings


class MqttPart:
    """The host's MQTT face, from its creation, which restores lasting sessions, to `close`."""

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        address: Address | None,
        unix_path: Path | None,
        pubsub: HostPubSub,
    ) -> None:
        """`address` is None if it serves over TLS only. Raises StartError."""
        self.unix_path = unix_path
        self._wanted = address
        self._settings = settings
        self.face = MqttFace(
            pubsub.hub,
            pubsub.turn,
            mqtt_settings(settings, address, unix_path),
            counters.face("mqtt"),
            levels=counters.pubsub_levels,
            work=pubsub.work,
        )
        self.face.sessions.applications = counters.applications
        self.face.take_up()

    @property
    def address(self) -> Address | None:
        """The address without TLS; None if there is none."""
        return Address(*self.face.address) if self._wanted is not None else None

    @property
    def tls_address(self) -> Address | None:
        found = self.face.tls_address
        return Address(*found) if found is not None else None

    async def start(self) -> None:
        """Listens. Raises StartError."""
        try:
            await self.face.start()
        except OSError as error:
            wanted = self._wanted or Address.parse(self._settings.mqtt_tls)
            raise cannot_listen("mqtt" if self._wanted else "mqtt-tls", wanted, error) from error

    async def close(self, grace: float) -> None:
        await self.face.close(grace)


def mqtt_settings(settings: Settings, address: Address | None, unix_path: Path | None) -> MqttSettings:
    """Returns the face's part of the settings. If `address` is None, it does not listen without TLS. Raises
    StartError.
    """
    tls, tls_address = None, Address("127.0.0.1", 0)
    if settings.mqtt_tls != OFF:
        tls_address = Address.parse(settings.mqtt_tls)
        tls = tls_settings(
            "mqtt",
            tls_address,
            settings.mqtt_tls_certificate,
            settings.mqtt_tls_key,
            settings.mqtt_tls_authority,
        )
    plain = address if address is not None else tls_address
    return MqttSettings(
        plain=address is not None,
        host=plain.host,
        port=plain.port,
        unix_path=unix_path,
        tls=tls,
        tls_host=tls_address.host,
        tls_port=tls_address.port,
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
