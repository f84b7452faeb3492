"""What faces' listeners have in common: how asyncio reaches a connection, and sockets in the file system."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Protocol


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
