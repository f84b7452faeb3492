"""The parts of a daemon that its faces use, and the listeners of a face by its settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from treecast.middleware.api.discovery import Address
from treecast.middleware.broker import Broker
from treecast.middleware.broker.access import Identities
from treecast.middleware.model.counters import Counters, FaceCounters
from treecast.middleware.model.visitors import Visitors
from treecast.shims.face import SECURED, OpenListener

from ..certificates import WatchedCertificates
from ..guard import Guard
from ..listeners import cannot_listen
from ..resource_problems import Troubles
from ..settings import Settings
from . import wanted
from .secured import tls_settings

if TYPE_CHECKING:
    from treecast.shims.listening import Listeners

    from ..joining import Joining


class FaceContext(Struct, frozen=True):
    """The daemon's parts that faces use.

    `admits`: whether there is room for one more connection. `claim`: returns the path of a listener's Unix
    socket. `joining`: None for a host alone. `identities`: users and rules. `certificates`: the TLS files
    that are watched.
    """

    settings: Settings
    counters: Counters
    broker: Broker
    troubles: Troubles
    guard: Guard
    admits: Callable[[], bool]
    claim: Callable[[str], Path | None]
    joining: Joining | None
    identities: Identities
    certificates: WatchedCertificates

    def visitors(self, counters: FaceCounters, *, logs_in: bool) -> Visitors:
        """Returns the limits on connections. `logs_in`: whether the protocol begins with a log-in."""
        found = self.guard.face(counters, logs_in=logs_in)
        found.callers = self.identities.quotas
        return found


class Listening(Protocol):
    """A face's own part, with its listeners."""

    @property
    def listeners(self) -> Listeners: ...

    async def start(self) -> None: ...


class FaceAddresses:
    """The addresses of one face in the settings: without TLS, with TLS, and its Unix socket."""

    def __init__(self, context: FaceContext, name: str) -> None:
        """Raises StartError if TLS's files cannot be used."""
        settings = context.settings
        self.name = name
        self.plain = wanted(settings, name)
        self.secured = wanted(settings, f"{name}_tls")
        self.unix_path = context.claim(name) if self.plain is not None else None
        self._files = None
        if self.secured is not None:
            files = [getattr(settings, f"{name}_tls_{file}") for file in ("certificate", "key", "authority")]
            self._files = tls_settings(name, *files)

    def fields(self) -> dict[str, Any]:
        """Returns the fields of `shims.listening.ListenSettings` that say where to listen."""
        found: dict[str, Any] = {"plain": self.plain is not None, "unix_path": self.unix_path}
        if self.plain is not None:
            found |= {"host": self.plain.host, "port": self.plain.port}
        if self.secured is not None:
            found |= {"tls": self._files, "tls_host": self.secured.host, "tls_port": self.secured.port}
        return found

    def limit(self, listeners: Listeners, context: FaceContext, visitors: Visitors) -> None:
        listeners.admits = context.admits
        listeners.visitors = visitors
        context.certificates.add(self.name, listeners)

    async def open(self, face: Listening) -> list[OpenListener]:
        """Starts a face. Raises StartError if an address is not to be had."""
        try:
            await face.start()
        except OSError as error:
            address = self.plain or self.secured
            assert address is not None
            name = self.name if self.plain is not None else self.name + SECURED
            raise cannot_listen(name, address, error) from error
        return self._opened(face.listeners)

    def _opened(self, listeners: Listeners) -> list[OpenListener]:
        found = []
        if self.plain is not None:
            found.append(OpenListener(self.name, str(Address(*listeners.address)), self.unix_path))
        if listeners.tls_address is not None:
            found.append(OpenListener(self.name + SECURED, str(Address(*listeners.tls_address)), None))
        return found
