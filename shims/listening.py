"""What faces' listeners have in common: how asyncio reaches a connection, TCP, TLS and sockets in the file
system."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from treecast.middleware.model.counters import FaceCounters

if TYPE_CHECKING:
    from .tls import TlsLayer


class TlsSettings(Struct, frozen=True):
    """`authority`: certificates that clients have to be signed by; None asks clients for none."""

    certificate: Path
    key: Path | None = None
    authority: Path | None = None


class FaceConnection(Protocol):
    """What asyncio tells a connection of a face, beside what it has received."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def eof_received(self) -> bool: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


def always() -> bool:
    """Of a face that nobody has told when to turn clients away."""
    return True


class TurnedAway(asyncio.Protocol):
    """A connection for which there is no room. It is closed at once, so that its client need not wait."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.abort()


class Forwarding(asyncio.BaseProtocol):
    """Hands on to a connection what asyncio calls. A compiled class cannot be an asyncio protocol itself."""

    __slots__ = ("_connection",)

    def __init__(self, connection: FaceConnection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


def remove_socket(path: Path) -> None:
    """What a listener of an earlier run has left. Anything but a socket stays."""
    try:
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
    except FileNotFoundError:
        pass


class ListenSettings(Protocol):
    """Where a face listens."""

    @property
    def plain(self) -> bool: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def unix_path(self) -> Path | None: ...
    @property
    def tls(self) -> TlsSettings | None: ...
    @property
    def tls_host(self) -> str: ...
    @property
    def tls_port(self) -> int: ...
    @property
    def connect_seconds(self) -> float: ...
    @property
    def backlog(self) -> int: ...


class Listeners:
    """What one face listens on, from `open` to `close`, and the TLS handshakes that are under way.

    `admits`: whether there is room for one more connection. `address`: (host, port) without TLS, what was
    asked for where that is off; `tls_address`: with it, None where that is off.
    """

    def __init__(
        self,
        settings: ListenSettings,
        counters: FaceCounters,
        connect: Callable[[], asyncio.Protocol],
        refused: Callable[[str, str], None],
    ) -> None:
        """`connect` makes a connection. `refused` is told of a handshake that failed: (peer, reason)."""
        self.admits: Callable[[], bool] = always
        self.address = (settings.host, settings.port)
        self.tls_address: tuple[str, int] | None = None
        self.loop: asyncio.AbstractEventLoop
        self.refused = refused
        self._settings = settings
        self._counters = counters
        self._connect = connect
        self._servers: list[asyncio.AbstractServer] = []
        self._handshakes: set[TlsLayer] = set()
        self._on_unix = False

    async def open(self) -> None:
        """Listens. OSError where an address cannot be had, or a certificate cannot be read."""
        self.loop = asyncio.get_running_loop()
        try:
            await self._open()
        except BaseException:
            self.close()
            raise

    async def _open(self) -> None:
        settings = self._settings
        if settings.plain:
            self.address = await self._open_tcp(settings.host, settings.port, self._protocol)
        if settings.tls is not None:
            self.tls_address = await self._open_tls(settings.tls)
        if settings.unix_path is not None:
            remove_socket(settings.unix_path)
            self._servers.append(
                await self.loop.create_unix_server(
                    self._protocol, str(settings.unix_path), backlog=settings.backlog
                )
            )
            self._on_unix = True

    async def _open_tls(self, tls: TlsSettings) -> tuple[str, int]:
        from .tls import TlsLayer, tls_context  # here, since few listeners need it

        settings, context = self._settings, tls_context(tls)

        def secured() -> asyncio.Protocol:
            if not self._has_room():
                return TurnedAway()
            return TlsLayer(self, context, settings.connect_seconds, self._connect)

        return await self._open_tcp(settings.tls_host, settings.tls_port, secured)

    async def _open_tcp(
        self, host: str, port: int, protocol: Callable[[], asyncio.Protocol]
    ) -> tuple[str, int]:
        server = await self.loop.create_server(protocol, host, port, backlog=self._settings.backlog)
        self._servers.append(server)
        found = server.sockets[0].getsockname()
        return found[0], found[1]

    def _protocol(self) -> asyncio.Protocol:
        return self._connect() if self._has_room() else TurnedAway()

    def _has_room(self) -> bool:
        """Whether one more client can be served; counts those that cannot."""
        if self.admits():
            return True
        self._counters.connections_refused += 1
        return False

    def close(self) -> None:
        """Stops accepting, and ends handshakes. Safe to call twice."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._on_unix and self._settings.unix_path is not None:
            remove_socket(self._settings.unix_path)
            self._on_unix = False
        for layer in list(self._handshakes):
            layer.raw.abort()

    # --- what the TLS layer calls

    def shaking(self, one: TlsLayer) -> None:
        self._handshakes.add(one)

    def shaken(self, one: TlsLayer) -> None:
        self._handshakes.discard(one)
