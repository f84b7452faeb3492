"""The control address of a secured host: strangers before and after TLS, and renewed certificates."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.secured import Caller, SecuredCluster

from treecast.middleware.api import certificates
from treecast.middleware.api.certificates import identity_of
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.private_file import write_private
from treecast.middleware.api.trust import Trust
from treecast.middleware.api.trust_calls import ALPN, H2, Certificates, Hello, frame, read_answer
from treecast.middleware.api.trust_files import HOST_CERTIFICATE, HOST_KEY
from treecast.middleware.daemon.door import Door
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.visitors import Limits

LIMITS = Limits(most=64, new=8, new_each=8)
LONG = 60.0  # seconds that something may take on a busy machine


class Place:
    """A door of the host `first` in front of a port that echoes, and the host `second`."""

    def __init__(self, folder: Path) -> None:
        self.cluster = SecuredCluster(folder)
        self.first = self.cluster.host("first", coordinator=True)
        self.second = self.cluster.host("second")
        self.door = Door(self.first, self.cluster.authority, LIMITS)
        self.port = 0
        self.strangers: list[socket.socket] = []
        self.callers: list[Caller] = []
        self._inner: asyncio.Server

    async def open(self) -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1000):
                writer.write(data)
            writer.close()

        self._inner = await asyncio.start_server(echo, "127.0.0.1", 0)
        inner = self._inner.sockets[0].getsockname()[1]
        self.port = (await self.door.open(Address("127.0.0.1", 0), inner)).port

    async def close(self) -> None:
        for stranger in self.strangers:
            stranger.close()
        for caller in self.callers:
            caller.close()
        await self.door.close()
        self._inner.close()

    async def call(self, trust: Trust | None = None) -> Caller:
        """Connects as a host; by default as the second one."""
        return await self.come((trust or self.second).calling(H2))

    async def come(self, context: ssl.SSLContext) -> Caller:
        self.callers.append(made := await Caller.call(self.port, context))
        return made

    async def begin(self, count: int) -> None:
        """Opens connections that say nothing."""
        loop = asyncio.get_running_loop()
        for _ in range(count):
            one = socket.socket()
            one.setblocking(False)
            self.strangers.append(one)
            await loop.sock_connect(one, ("127.0.0.1", self.port))

    @property
    def turned_away(self) -> int:
        return self.door.refused.get("CROWDED", 0)


async def until(what: object) -> None:
    assert callable(what)
    async with asyncio.timeout(LONG):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_unfinished_handshakes_are_bounded(place: Place) -> None:
    """The oldest give way; a host comes in all the same, and stays."""
    before = descriptors()
    known = await place.call()
    await place.begin(200)
    await until(lambda: place.turned_away >= 200 - LIMITS.new)
    assert place.door.visitors.new <= LIMITS.new
    await until(lambda: descriptors() - len(place.strangers) - before <= LIMITS.new + 8)
    later = await place.call()
    assert await later.echoes(b"later")
    assert await known.echoes(b"known")
    assert len(place.door.visitors) == 2 + place.door.visitors.new
    for one in (known, later):
        one.close()
    await until(lambda: len(place.door.visitors) == place.door.visitors.new)


async def test_ten_thousand_unfinished_handshakes(place: Place) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[1], most[1]))
    try:
        known = await place.call()
        await place.begin(min(10_000, most[1] - 500))
        later = await place.call()
        assert await later.echoes(b"later")
        assert await known.echoes(b"known")
        assert place.door.visitors.new <= LIMITS.new
    finally:
        for one in place.strangers:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


async def test_strangers_after_tls_give_way_too(place: Place) -> None:
    """They have shown no certificate, and ask the authority nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([ALPN])
    strangers = [await place.come(context) for _ in range(LIMITS.new * 2)]
    assert place.door.visitors.new <= LIMITS.new
    known = await place.call()
    assert await known.echoes(b"known")
    last = strangers[-1]
    last.writer.write(frame(Hello()))
    head = await last.reader.readexactly(4)
    answer = read_answer(await last.reader.readexactly(int.from_bytes(head, "big")))
    assert isinstance(answer, Certificates)
    assert await strangers[0].reader.read() == b""


async def test_a_renewed_certificate_is_served_with_at_once(place: Place) -> None:
    """By listeners that are open, and by this host's own calls; open connections go on."""
    before = await place.call()
    assert before.serial == place.first.identity.serial
    renewed = identity_of(place.cluster.certify("first", coordinator=True))
    told: list[int] = []
    place.first.on_renewed.append(lambda: told.append(place.first.identity.serial))
    assert place.first.look()
    assert not place.first.look()
    after = await place.call()
    assert after.serial == renewed.serial != before.serial
    assert told == [renewed.serial]
    assert await before.echoes(b"goes on")
    own = await place.call(place.first)
    assert await own.echoes(b"own")
    assert await after.echoes(b"after")
    assert {one.serial for one in place.door._callers.values()} == {
        renewed.serial,
        place.second.identity.serial,
    }


async def test_a_certificate_beside_another_key_changes_nothing(place: Place) -> None:
    folder = place.first.folder
    key = (folder / HOST_KEY).read_bytes()
    write_private(folder / HOST_KEY, certificates.new_key())
    with pytest.raises(TreecastError, match="cannot be used"):
        place.first.look()
    write_private(folder / HOST_CERTIFICATE, place.cluster.certify("second"))
    write_private(folder / HOST_KEY, key)
    with pytest.raises(TreecastError, match="is of host second now"):
        place.first.look()
    after = await place.call()
    assert after.serial == place.first.identity.serial
