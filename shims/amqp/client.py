"""pika's blocking and aio-pika's robust connection with automatic discovery of the host's daemon.

They accept the arguments of the originals. Without an address they connect to the one in `TREECAST_AMQP`,
else to the daemon whose socket is in the runtime directory, else to localhost:5672. aio-pika is imported on
first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pika

from treecast.middleware.api.discovery import find_face

if TYPE_CHECKING:
    from aio_pika.abc import AbstractRobustConnection


class BlockingConnection(pika.BlockingConnection):  # type: ignore[misc]
    """`pika.BlockingConnection` for the daemon of this host."""

    def __init__(self, parameters: pika.connection.Parameters | None = None, **options: Any) -> None:
        if parameters is None:
            found = find_face("amqp").address
            parameters = pika.ConnectionParameters(found.host, found.port)
        super().__init__(parameters, **options)


async def connect_robust(url: Any = None, **options: Any) -> AbstractRobustConnection:
    """`aio_pika.connect_robust` for the daemon of this host."""
    import aio_pika

    if url is None and "host" not in options:
        found = find_face("amqp").address
        options |= {"host": found.host, "port": options.get("port", found.port)}
    made: AbstractRobustConnection = await aio_pika.connect_robust(url, **options)
    return made
