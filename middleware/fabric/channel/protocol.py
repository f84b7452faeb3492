"""The link from asyncio to a connection between hosts."""

from __future__ import annotations

import asyncio

from .link import Link


class LinkProtocol(asyncio.BufferedProtocol):
    """Forwards asyncio's callbacks to a link. A compiled class cannot be an asyncio protocol itself."""

    __slots__ = ("buffer_updated", "get_buffer", "link")

    def __init__(self, link: Link) -> None:
        self.link = link
        # As instance attributes, they are called without an interpreter frame in between.
        self.get_buffer = link.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = link.buffer_updated  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.link.connection_made(transport)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.link.pause_writing()

    def resume_writing(self) -> None:
        self.link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.connection_lost(exc)
