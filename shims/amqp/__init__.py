"""The AMQP face: 0-9-1 as RabbitMQ's clients expect it.

What is here is without I/O: `session` turns chunks of one connection into calls of `broker.queues`, and
says what goes back. Everything is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .session import Session
    from .session_host import AmqpHost, OpenAccess
    from .settings import AmqpSettings

__all__ = ["AmqpHost", "AmqpSettings", "OpenAccess", "Session"]

_HOMES = {
    "AmqpHost": ".session_host",
    "AmqpSettings": ".settings",
    "OpenAccess": ".session_host",
    "Session": ".session",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
