"""The names of this host, for the listeners that speak HTTP (`model.web_callers`)."""

from __future__ import annotations

import socket

from .settings import Settings


def own_names(settings: Settings, address: str, further: str) -> tuple[str, ...]:
    """Returns the names of the host beside its addresses. `address`: where it listens; `further`: names that
    the operator gives, separated by spaces."""
    bound = address.rpartition(":")[0].strip("[]")
    return (settings.name, socket.gethostname(), bound, *further.split())
