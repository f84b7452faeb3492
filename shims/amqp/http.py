"""The management calls on an aiohttp server. Its owner mounts `ManagementPages.handle` at `PATH`."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from treecast.middleware.model.request_memory import Holding, RequestMemory
from treecast.middleware.model.visitors import address_of

from .cluster_management import ClusterManagement
from .management_call import Problem, Request, Response

PATH: Final = "/api/{path:.*}"
_LARGEST_BODY: Final = 64 * 1024 * 1024  # bytes: definitions of a large broker
_LOCAL: Final = ("127.0.0.1", "::1")


class ManagementPages:
    """The aiohttp handler for the management calls. It reads no body of a stranger, and counts those of users
    in `memory`.
    """

    def __init__(self, management: ClusterManagement, memory: RequestMemory) -> None:
        self._management = management
        self._memory = memory

    async def handle(self, request: web.Request) -> web.Response:
        try:
            user = await self._management.authenticated(_request(request, b""))
        except Problem as problem:
            return _made(problem.response())
        holding = Holding(self._memory, reading := _Reading(request))
        try:
            body = await reading.body(holding)
            if body is None:
                return _made(Problem(413, "payload_too_large", "Payload Too Large").response())
            return _made(await self._management.answer(_request(request, body), user))
        except RuntimeError:  # aiohttp's own for a body whose connection has ended
            if request.transport is not None:
                raise
            return web.Response(status=400)
        finally:
            holding.left()


class _Reading:
    """Reads a body, as far as there is memory. Implements `request_memory.Holder`."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._may = asyncio.Event()
        self._may.set()

    async def body(self, holding: Holding) -> bytes | None:
        """Returns the body, or None if it is too large."""
        loop = asyncio.get_running_loop()
        found = bytearray()
        async for chunk in self._request.content.iter_any():
            found += chunk
            if len(found) > _LARGEST_BODY:
                return None
            holding.hold(len(found), len(chunk), loop.time())
            await self._may.wait()
        return bytes(found)

    def wait_for_memory(self, waits: bool) -> None:
        if waits:
            self._may.clear()
        else:
            self._may.set()

    def abort(self) -> None:
        """Ends the connection, and thereby the request."""
        if self._request.transport is not None:
            self._request.transport.abort()
        self._may.set()


def _request(request: web.Request, body: bytes) -> Request:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return Request(
        method=request.method,
        path=request.raw_path.partition("?")[0],
        query=dict(request.query),
        authorization=request.headers.get("Authorization", ""),
        reason=request.headers.get("X-Reason", ""),
        body=body,
        local=not isinstance(peer, tuple) or peer[0] in _LOCAL,
        address=address_of(peer),
    )


def _made(response: Response) -> web.Response:
    headers = dict(response.headers)
    if response.body:
        headers.setdefault("Content-Type", "application/json")
    return web.Response(status=response.status, body=response.body, headers=headers)
