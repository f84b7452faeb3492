"""The MQTT face: a server for MQTT 3.1.1 and 5.0, and a drop-in client.

A daemon uses `MqttFace` with `MqttSettings`. An application uses `Client`, a subclass of aiomqtt's client
that finds the host's daemon automatically. All names are imported on first use: a daemon never loads the
client, and an application never loads the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client
    from .server import MqttFace
    from .settings import MqttSettings

__all__ = ["Client", "MqttFace", "MqttSettings"]

_HOMES = {
    "Client": ".client",
    "MqttFace": ".server",
    "MqttSettings": ".settings",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
