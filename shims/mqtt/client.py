"""The aiomqtt client with automatic discovery of the host's daemon.

It accepts the arguments of `aiomqtt.Client`. Without a host name it connects to the address in
`TREECAST_MQTT`, else to the daemon whose socket is in the runtime directory, else to localhost:1883.
(aiomqtt was formerly called asyncio-mqtt.)
"""

from __future__ import annotations

from typing import Any

import aiomqtt

from treecast.middleware.api.discovery import find_face


class Client(aiomqtt.Client):
    """`aiomqtt.Client` for the daemon of this host."""

    def __init__(self, hostname: str | None = None, port: int | None = None, **options: Any) -> None:
        if hostname is None:
            found = find_face("mqtt").address
            hostname = found.host
            port = port or found.port
        super().__init__(hostname, port or 1883, **options)
