"""A face, as the daemon sees it: one way in for clients.

| step | what a face does | what holds then |
| --- | --- | --- |
| made | restores sessions, and what they want | no other host knows yet what this one wants |
| opened | listens | messages cross faces and hosts |
| closed | ends its connections and stores what they leave | the broker still runs |

The daemon goes through one list of faces in each step and knows none of them (`daemon/faces`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from treecast.middleware.broker.queues import AnyQueue
from treecast.middleware.model.request_memory import RequestMemory

if TYPE_CHECKING:
    from aiohttp import web


class OpenListener(Struct, frozen=True):
    """A listening face, for people and for clients on this host.

    `name`: `mqtt`, or `mqtt-tls` with TLS. `address`: as HOST:PORT. `socket`: its Unix socket, None if it has
    none.
    """

    name: str
    address: str
    socket: Path | None

    @property
    def secured(self) -> bool:
        return self.name.endswith(SECURED)


SECURED = "-tls"  # end of the name of a listener with TLS


class Pages(Protocol):
    """Pages that a face adds to the admin address."""

    @property
    def path(self) -> str:
        """The pattern of paths, in aiohttp's notation."""

    def handler(self, memory: RequestMemory) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Returns what answers all methods. `memory`: the budget for bodies. Called when the admin address
        is first used, as it needs the HTTP server.
        """


class Exchanges(Protocol):
    """Exchanges that `treecast explain` can ask."""

    def routed(
        self, vhost: str, exchange: str, key: str, headers: Mapping[str, str]
    ) -> tuple[list[AnyQueue], list[bytes]]:
        """Returns the queues that get a message, and the MQTT topics that it is published to. Raises
        INVALID_REQUEST."""


class Face(Protocol):
    """A face that is switched on."""

    pages: Pages | None = None
    exchanges: Exchanges | None = None
    keeps: bool = False
    """Whether its clients still get what the others publish, and so it is closed after them."""

    async def open(self) -> Sequence[OpenListener]:
        """Listens. Raises StartError if an address is not to be had."""

    async def close(self, grace: float) -> None:
        """Ends within about `grace` seconds. Safe to call twice."""
