"""Strangers at the admin address: they keep nobody out, and no body of theirs is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from tests.secured import Caller, SecuredCluster
from tests.unit.closed import uncollected
from tests.unit.loops import holds

from treecast.middleware.api.discovery import Address
from treecast.middleware.daemon.admin import AdminServer
from treecast.middleware.daemon.listeners import bound_address, listen
from treecast.middleware.daemon.status import Subject
from treecast.middleware.model.request_memory import RequestMemory
from treecast.middleware.model.visitors import Limits, Visitors
from treecast.shims.amqp.http import ManagementPages
from treecast.shims.amqp.management_call import Problem, Request, Response

UNFINISHED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-a: "
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Door:
    def __init__(self, subject: Subject, limits: Limits) -> None:
        self.visitors = Visitors(limits)
        self.server = AdminServer()
        listener = listen("admin", Address("127.0.0.1", 0))
        self.address = bound_address(listener)
        self.server.take(listener)
        self.server.start(subject, self.visitors)
        self.writers: list[asyncio.StreamWriter] = []

    async def healthy(self) -> bool:
        async with ClientSession() as session, session.get(f"http://{self.address}/healthz") as answer:
            return answer.status == 200

    async def silent(self) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        writer.write(UNFINISHED)
        self.writers.append(writer)
        return reader

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()
        await asyncio.gather(*(one.wait_closed() for one in self.writers), return_exceptions=True)
        await self.server.close()


@pytest.fixture
async def door(subject: Subject) -> AsyncIterator[Door]:
    made = Door(subject, Limits(most=3, new_seconds=10.0))
    assert await made.healthy()
    await holds(lambda: not len(made.visitors))
    yield made
    await made.close()


async def test_unfinished_requests_keep_nobody_out(door: Door) -> None:
    readers = [await door.silent() for _ in range(6)]
    assert await door.healthy()
    for reader in readers[:3]:
        assert await ended(reader)
    assert len(door.visitors) <= 3


async def ended(reader: asyncio.StreamReader) -> bool:
    """Waits until the server has closed the connection."""
    try:
        return not await reader.read(1)
    except ConnectionError:
        return True


async def test_an_unfinished_request_ends_in_time(door: Door) -> None:
    reader = await door.silent()
    await holds(lambda: len(door.visitors) == 1)
    door.visitors.tick(asyncio.get_running_loop().time() + 11)
    assert await ended(reader)
    assert len(door.visitors) == 0


async def test_an_expelled_hosts_connection_ends(subject: Subject, tmp_path: Path) -> None:
    """One that is open, and had been accepted."""
    cluster = SecuredCluster(tmp_path)
    first, second = cluster.host("first"), cluster.host("second")
    third = cluster.host("third")
    server = AdminServer()
    listener = listen("admin", Address("0.0.0.0", 0))
    server.take(listener)
    server.start(subject, Visitors(), trust=first)
    callers = [
        await Caller.call(bound_address(listener).port, one.calling("http/1.1")) for one in (second, third)
    ]
    try:
        for one in callers:
            one.writer.write(HEALTHZ)
            assert (await one.reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
        cluster.authority.expel("second")
        for one in callers:
            one.writer.write(HEALTHZ)
        assert await ended(callers[0].reader)
        assert (await callers[1].reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
    finally:
        for one in callers:
            one.close()
        await server.close()


async def test_reference_counts_free_a_closed_connection(door: Door) -> None:
    async with uncollected("AdminConnection", "ChunkProtocol", "Visitor") as more:
        for _ in range(3):
            _, writer = await asyncio.open_connection(door.address.host, door.address.port)
            writer.write(UNFINISHED)
            await holds(lambda: len(door.visitors) == 1)
            writer.close()
            await holds(lambda: len(door.visitors) == 0)
        assert not more()


# --- bodies


class Calls:
    """Stands in for the calls: `ann` may call."""

    def __init__(self) -> None:
        self.bodies: list[int] = []

    async def authenticated(self, request: Request) -> str:
        if request.authorization != "ann":
            raise Problem(401, "not_authorized", "Login failed")
        return "ann"

    async def answer(self, request: Request, user: str) -> Response:
        self.bodies.append(len(request.body))
        return Response(204)


class Pages:
    def __init__(self, most: int) -> None:
        self.calls = Calls()
        self.memory = RequestMemory(most)
        pages = ManagementPages(self.calls, self.memory)  # type: ignore[arg-type]
        app = web.Application()
        app.router.add_route("*", "/api/{path:.*}", pages.handle)
        self._runner = web.AppRunner(app, lingering_time=0.1)  # for a body that nobody reads
        self.port = 0

    async def __aenter__(self) -> Pages:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def begin(self, user: str, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST /api/definitions HTTP/1.1\r\nHost: localhost\r\nAuthorization: {user}\r\n"
        writer.write(f"{head}Content-Length: {size}\r\n\r\n".encode())
        return reader, writer


async def test_a_stranger_is_refused_before_its_body_is_read() -> None:
    async with Pages(1 << 20) as pages:
        reader, writer = await pages.begin("eve", 1 << 26)
        assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        assert (pages.memory.held, pages.calls.bodies) == (0, [])
        writer.close()


async def test_bodies_of_users_count_and_wait_for_memory() -> None:
    async with Pages(1 << 20) as pages:
        _, first = await pages.begin("ann", 2 << 20)
        first.write(bytes(1_000_000))
        await holds(lambda: pages.memory.held == 1_000_000)
        reader, second = await pages.begin("ann", 900_000)
        second.write(bytes(900_000))
        await holds(lambda: pages.memory.short)
        assert pages.memory.held <= pages.memory.hard
        first.transport.abort()
        assert (await reader.readline()).startswith(b"HTTP/1.1 204 ")
        assert pages.calls.bodies == [900_000]
        await holds(lambda: pages.memory.held == 0)
        second.close()
