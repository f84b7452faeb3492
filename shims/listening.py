"""The listeners of faces: TCP, TLS and Unix sockets, and the link from asyncio to a connection."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.visitors import Visitor, Visitors

if TYPE_CHECKING:
    from .tls import TlsFiles, TlsLayer


class TlsSettings(Struct, frozen=True):
    """The files of a TLS listener, in PEM.

    `authority`: the CA certificates that verify client certificates. None requests no client certificates.
    """

    certificate: Path
    key: Path | None = None
    authority: Path | None = None


class FaceConnection(Protocol):
    """The callbacks of asyncio to a connection of a face, except those for received data.

    `visitor`: what the limits of its listener know of it; set before `connection_made`.
    """

    visitor: Visitor | None

    def wait_for_memory(self, waits: bool) -> None: ...

    def abort(self) -> None: ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def eof_received(self) -> bool: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...


def always() -> bool:
    """Returns True: the default of `admits`, which turns no client away."""
    return True


class TurnedAway(asyncio.Protocol):
    """A connection for which there is no room. It is closed at once, so its client does not wait."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).abort()  # uvloop's derive from no class of asyncio


class Forwarding(asyncio.BaseProtocol):
    """Forwards asyncio's callbacks to a connection that the listener's limits admit. A compiled class cannot
    be an asyncio protocol itself.
    """

    __slots__ = ("_connection", "_visitor", "_visitors")

    def __init__(self, connection: FaceConnection, visitors: Visitors | None = None) -> None:
        """`visitors`: the limits; None for none."""
        self._connection = connection
        self._visitors = visitors
        self._visitor: Visitor | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        visitors, connection = self._visitors, self._connection
        if visitors is not None:
            now = asyncio.get_running_loop().time()
            peer, tls = transport.get_extra_info("peername"), transport.get_extra_info("ssl_object")
            self._visitor = visitors.enter(peer, connection, now, again=tls is not None)
            if self._visitor is None:
                cast(asyncio.WriteTransport, transport).abort()
                return
            connection.visitor = self._visitor
        connection.connection_made(transport)

    @property
    def _turned_away(self) -> bool:
        return self._visitors is not None and self._visitor is None

    def eof_received(self) -> bool:
        return not self._turned_away and self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._turned_away:
            return
        self._connection.connection_lost(exc)
        if self._visitor is not None:
            self._visitor.left()


class ChunkConnection(FaceConnection, Protocol):
    """A connection that takes received data as bytes."""

    def data_received(self, data: bytes) -> None: ...


class ChunkProtocol(Forwarding, asyncio.Protocol):
    """The protocol of a connection that takes received data as bytes."""

    __slots__ = ("data_received",)

    def __init__(self, connection: ChunkConnection, visitors: Visitors | None = None) -> None:
        super().__init__(connection, visitors)
        # As an instance attribute, it is called without an interpreter frame in between.
        self.data_received = connection.data_received  # type: ignore[method-assign]


class BufferConnection(FaceConnection, Protocol):
    """A connection that provides the memory for received data."""

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...


class BufferProtocol(Forwarding, asyncio.BufferedProtocol):
    """The protocol of a connection that provides the memory for received data."""

    __slots__ = ("buffer_updated", "get_buffer")

    def __init__(self, connection: BufferConnection, visitors: Visitors | None = None) -> None:
        super().__init__(connection, visitors)
        # As in `ChunkProtocol`.
        self.get_buffer = connection.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = connection.buffer_updated  # type: ignore[method-assign]


def remove_socket(path: Path) -> None:
    """Removes a socket that an earlier run left at `path`. Any other file is kept."""
    try:
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
    except FileNotFoundError:
        pass


class ListenSettings(Protocol):
    """The listen addresses of a face, with the limits of its listeners."""

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
    """The listeners of one face, from `open` to `close`, and the TLS handshakes in progress.

    `admits`: returns whether there is room for one more connection. `visitors`: the limits on them, before
    and after the TLS handshake. `address`: the (host, port) without TLS,
    or the configured one if that listener is off. `tls_address`: the (host, port) with TLS, None if it is
    off. `tls_files`: of that listener, while it is open.
    """

    def __init__(
        self,
        settings: ListenSettings,
        counters: FaceCounters,
        connect: Callable[[], asyncio.BaseProtocol],
        refused: Callable[[str, str], None],
    ) -> None:
        """`connect` creates a connection. `refused` gets the (peer, reason) of a failed handshake."""
        self.admits: Callable[[], bool] = always
        self.visitors = Visitors()
        self.address = (settings.host, settings.port)
        self.tls_address: tuple[str, int] | None = None
        self.tls_files: TlsFiles | None = None
        self.loop: asyncio.AbstractEventLoop
        self.refused = refused
        self._settings = settings
        self._counters = counters
        self._connect = connect
        self._servers: list[asyncio.AbstractServer] = []
        self._handshakes: set[TlsLayer] = set()
        self._on_unix = False

    async def open(self) -> None:
        """Starts listening. Raises OSError if an address cannot be bound or a certificate cannot be read."""
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
        from .tls import TlsFiles, TlsLayer  # imported here because few listeners need it

        settings = self._settings
        self.tls_files = files = TlsFiles(tls)

        def secured() -> asyncio.BaseProtocol:
            if not self._has_room():
                return TurnedAway()
            return TlsLayer(self, files.context, settings.connect_seconds, self._connect)

        return await self._open_tcp(settings.tls_host, settings.tls_port, secured)

    async def _open_tcp(
        self, host: str, port: int, protocol: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[str, int]:
        server = await self.loop.create_server(protocol, host, port, backlog=self._settings.backlog)
        self._servers.append(server)
        found = server.sockets[0].getsockname()
        return found[0], found[1]

    def _protocol(self) -> asyncio.BaseProtocol:
        return self._connect() if self._has_room() else TurnedAway()

    def _has_room(self) -> bool:
        """Whether one more client can be served. If not, counts it as refused."""
        if self.admits():
            return True
        self._counters.connections_refused += 1
        return False

    def close(self) -> None:
        """Stops accepting and aborts the handshakes in progress. Safe to call twice."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._on_unix and self._settings.unix_path is not None:
            remove_socket(self._settings.unix_path)
            self._on_unix = False
        for layer in list(self._handshakes):
            layer.raw.abort()

    # --- called by the TLS layer

    def shaking(self, one: TlsLayer) -> None:
        self._handshakes.add(one)

    def shaken(self, one: TlsLayer) -> None:
        self._handshakes.discard(one)
