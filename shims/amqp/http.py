"""The management calls on an aiohttp server. Its owner mounts `ManagementPages.handle` at `PATH`."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from .cluster_management import ClusterManagement
from .management_call import Problem, Request, Response

PATH: Final = "/api/{path:.*}"
_LARGEST_BODY: Final = 64 * 1024 * 1024  # bytes: definitions of a large broker
_LOCAL: Final = ("127.0.0.1", "::1")


class ManagementPages:
    """The aiohttp handler for the management calls."""

    def __init__(self, management: ClusterManagement) -> None:
        self._management = management

    async def handle(self, request: web.Request) -> web.Response:
        body = await _body(request)
        if body is None:
            return _made(Problem(413, "payload_too_large", "Payload Too Large").response())
        return _made(await self._management.answer(_request(request, body)))


async def _body(request: web.Request) -> bytes | None:
    """Returns the body of a request, or None if it is too large."""
    found = bytearray()
    async for chunk in request.content.iter_any():
        found += chunk
        if len(found) > _LARGEST_BODY:
            return None
    return bytes(found)


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
    )


def _made(response: Response) -> web.Response:
    headers = dict(response.headers)
    if response.body:
        headers.setdefault("Content-Type", "application/json")
    return web.Response(status=response.status, body=response.body, headers=headers)
