"""The Kafka face: Kafka's protocol for applications, and drop-in clients.

A daemon uses `KafkaFace` (or `serve`) with `KafkaSettings`. An application uses `KafkaProducer`,
`KafkaConsumer` and `KafkaAdminClient`, subclasses of kafka-python's clients that find the host's daemon by
themselves. Modules are loaded on first use: a daemon never loads the clients, an application never loads
the server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from .server import KafkaFace, serve
    from .settings import KafkaSettings

__all__ = ["KafkaAdminClient", "KafkaConsumer", "KafkaFace", "KafkaProducer", "KafkaSettings", "serve"]

_HOMES = {
    "KafkaAdminClient": ".client",
    "KafkaConsumer": ".client",
    "KafkaProducer": ".client",
    "KafkaFace": ".server",
    "KafkaSettings": ".settings",
    "serve": ".server",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
