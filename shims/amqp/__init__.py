"""The AMQP face: AMQP 0-9-1 compatible with RabbitMQ's clients, and drop-in clients.

A daemon uses `server.AmqpFace`. `session` is free of I/O: it translates the input of one connection into
calls of `broker.queues` and produces the output. An application uses `BlockingConnection` (pika) or
`connect_robust` (aio-pika), which find the host's daemon automatically. All names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import BlockingConnection, connect_robust
    from .server import AmqpFace
    from .session import Session
    from .session_host import AmqpHost, OpenAccess
    from .settings import AmqpSettings

__all__ = [
    "AmqpFace",
    "AmqpHost",
    "AmqpSettings",
    "BlockingConnection",
    "OpenAccess",
    "Session",
    "connect_robust",
]

_HOMES = {
    "AmqpFace": ".server",
    "BlockingConnection": ".client",
    "connect_robust": ".client",
    "AmqpHost": ".session_host",
    "AmqpSettings": ".settings",
    "OpenAccess": ".session_host",
    "Session": ".session",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
