"""The face's edge over real sockets: turns, disk faults, syncs, closing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.unit.mqtt.face import packets_of

from treecast.middleware.broker import HostPubSub
from treecast.middleware.broker.pubsub import PubSubSettings
from treecast.middleware.model.counters import Counters, FaceCounters
from treecast.middleware.model.ration import Ration
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    Ping,
    Publish,
    Subscribe,
    encode,
)
from treecast.shims.mqtt.codec_properties import NONE, Properties
from treecast.shims.mqtt.codec_read import read_length
from treecast.shims.mqtt.connection import Connection
from treecast.shims.mqtt.server import MqttFace
from treecast.shims.mqtt.settings import MqttSettings

PATIENCE_S = 30.0
STILL_S = 3.0  # beyond the shortest keep-alive, 1.5 s; the loop has to stand, so no waiting task will do


class MovableDisk(Disk):
    """Refuses writes or syncs on demand, and counts them."""

    full = False
    broken = False
    writes = 0
    syncs = 0

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        if self.full:
            raise OSError(28, "no space left on device")
        self.writes += 1
        return super().write(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        if self.broken:
            raise OSError(5, "input/output error")
        self.syncs += 1
        super().sync(descriptor)


class Site:
    """A face on a port of its own, and its clients."""

    def __init__(self, folder: Path, *, fsync: FsyncPolicy = FsyncPolicy.INTERVAL, **settings: Any) -> None:
        self.disk = MovableDisk()
        self.counters = FaceCounters()
        self.pubsub = HostPubSub(PubSubSettings(), str(folder), fsync, Counters(), time.time, self.disk)
        self.journal = self.pubsub.journal
        self._clients: list[StreamClient] = []
        self.face = MqttFace(
            self.pubsub.hub, self.pubsub.turn, MqttSettings(port=0, **settings), self.counters
        )

    def dial(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], version: int) -> StreamClient:
        made = StreamClient(*streams, version)
        self._clients.append(made)
        return made

    async def client(self, name: str, filter: str = "", expiry: int = 100) -> StreamClient:
        made = self.dial(await asyncio.open_connection(*self.face.address), V5)
        made.send(Connect(V5, name, False, properties=Properties(session_expiry=expiry)))
        await made.next()
        if filter:
            made.send(Subscribe(1, (FilterRequest(filter.encode(), 2),)))
            await made.next()
        return made

    async def close(self) -> None:
        for client in self._clients:
            client.writer.close()
        await asyncio.gather(*(one.writer.wait_closed() for one in self._clients), return_exceptions=True)
        await self.face.close(PATIENCE_S)
        await self.pubsub.close()


class StreamClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._reader, self.writer, self._version = reader, writer, version

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(packet, self._version) for packet in packets))

    async def next(self) -> Packet | None:
        """Returns the next packet, or None if the connection has ended."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                head = await self._reader.readexactly(2)
                while head[-1] >= 0x80:
                    head += await self._reader.readexactly(1)
                size, _ = read_length(head, 0, len(head))
                body = await self._reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
        return packets_of(head + body, self._version)[0]


@pytest.fixture
async def site(tmp_path: Path, request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    made = Site(tmp_path / "pubsub", **getattr(request, "param", {}))
    await made.face.start()
    yield made
    await made.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110  (a deadline's effect, which nothing announces)
            await asyncio.sleep(0.01)


def test_a_daemon_that_stood_still_blames_no_client(tmp_path: Path) -> None:
    """A disk may hold up the event loop: neither keep-alives nor the time until CONNECT count then."""

    async def scenario(site: Site) -> None:
        lively, joining = [
            site.dial(await asyncio.open_connection(*site.face.address), V311) for _ in range(2)
        ]
        lively.send(Connect(V311, "lively", True, 1))
        assert isinstance(await lively.next(), Connack)
        await until(lambda: site.face.connections == 2)

        def stand_still() -> None:
            """Runs as a disk's fault would, when the loop has read its sockets and deadlines come next."""
            loop.remove_reader(here)
            time.sleep(STILL_S)
            lively.send(Ping(codec.PINGREQ))
            joining.send(Connect(V311, "joining", True))

        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        with here, there:
            loop.add_reader(here, stand_still)
            there.send(b"x")
            assert isinstance(await joining.next(), Connack)
        assert await lively.next() == Ping(codec.PINGRESP)
        assert site.counters.protocol_errors == {}

    async def run() -> None:
        site = Site(tmp_path, connect_seconds=1.0)
        await site.face.start()
        try:
            await scenario(site)
        finally:
            await site.close()

    uvloop.run(run())


async def test_what_comes_in_one_turn_is_written_once(site: Site) -> None:
    sub, pub = await site.client("s", "t"), await site.client("p")
    before = site.disk.writes
    pub.send(*(Publish(b"t", b"x", 1, packet_id=number) for number in range(1, 201)))
    assert [await pub.next() for _ in range(200)] == [Ack(codec.PUBACK, n) for n in range(1, 201)]
    assert site.disk.writes - before < 20
    assert isinstance(await sub.next(), Publish)


async def test_a_full_disk_ends_who_depends_on_it_and_nobody_is_promised_anything(site: Site) -> None:
    await site.client("s", "kept")
    watcher, other = await site.client("w", "free", 0), await site.client("o", "", 0)
    pub = await site.client("p", "", 0)
    site.disk.full = True
    pub.send(Publish(b"kept", b"x", 1, packet_id=1))
    assert await pub.next() is None
    other.send(Publish(b"free", b"still"))
    found = await watcher.next()
    assert isinstance(found, Publish)
    assert found.payload == b"still"
    other.send(Publish(b"kept", b"y", 1, packet_id=1))
    refused = await other.next()
    assert isinstance(refused, Disconnect)
    assert refused.reason == codec.IMPLEMENTATION_ERROR
    site.disk.full = False
    journal = site.journal
    await until(lambda: not journal.failing)
    again = await site.client("p")
    again.send(Publish(b"kept", b"x", 1, True, packet_id=1))
    assert await again.next() == Ack(codec.PUBACK, 1)


@pytest.mark.parametrize(("version", "reason"), [(V5, codec.SERVER_UNAVAILABLE), (V311, 3)])
async def test_a_lasting_session_is_not_begun_while_the_disk_is_full_and_its_client_is_told(
    site: Site, version: int, reason: int
) -> None:
    await site.client("s", "kept")
    pub = await site.client("p", "", 0)
    site.disk.full = True
    pub.send(Publish(b"kept", b"x", 1, packet_id=1))
    assert await pub.next() is None
    lasting = Properties(session_expiry=100) if version == V5 else NONE
    refused = site.dial(await asyncio.open_connection(*site.face.address), version)
    refused.send(Connect(version, "late", False, properties=lasting))
    told = await refused.next()
    assert isinstance(told, Connack)
    assert told.reason == reason
    site.disk.full = False
    journal = site.journal
    again = site.dial(await asyncio.open_connection(*site.face.address), version)
    again.send(Connect(version, "other", True))
    assert await again.next() is not None
    await until(lambda: not journal.failing)
    late = site.dial(await asyncio.open_connection(*site.face.address), version)
    late.send(Connect(version, "late", False, properties=lasting))
    told = await late.next()
    assert isinstance(told, Connack)
    assert (told.reason, told.session_present) == (0, False)


@pytest.mark.parametrize("site", [{"fsync": FsyncPolicy.BATCH}], indirect=True)
async def test_with_a_sync_for_each_turn_answers_wait_for_it(site: Site) -> None:
    await site.client("s", "t")
    pub = await site.client("p")
    for number in range(1, 6):
        before = site.disk.syncs
        pub.send(Publish(b"t", b"x", 1, packet_id=number))
        assert await pub.next() == Ack(codec.PUBACK, number)
        assert site.disk.syncs > before
    site.disk.broken = True
    pub.send(Publish(b"t", b"x", 1, packet_id=9))
    assert await pub.next() is None


async def test_clients_are_told_of_the_end(site: Site) -> None:
    client = await site.client("c")
    closing = asyncio.create_task(site.face.close(5.0))
    told = await client.next()
    assert isinstance(told, Disconnect)
    assert told.reason == codec.SHUTTING_DOWN
    client.writer.close()
    await closing
    assert site.face.connections == 0
    assert site.counters.connections_closed == site.counters.connections_opened


class ReadTransport(asyncio.Transport):
    """Records only whether it is read from."""

    reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignored: writes never wait."""

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None:
        """Ignores the answers."""

    def abort(self) -> None:
        """Ignored: the face is closed."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def test_who_sends_much_is_read_from_once_in_a_turn(site: Site) -> None:
    """uvloop would read on, and other clients would wait for all that this one has sent."""
    connection, transport = Connection(site.face), ReadTransport()
    connection.connection_made(transport)
    connection._ration = Ration(asyncio.get_running_loop().call_soon, 1000)
    connection.data_received(encode(Connect(V5, "c", True), V5))
    assert transport.reading
    connection.data_received(encode(Publish(b"t", bytes(2000)), V5))
    assert not transport.reading
    await asyncio.sleep(0)
    assert transport.reading
    connection.data_received(encode(Publish(b"t", bytes(2000)), V5))
    connection.pause_reading()  # it publishes with QoS 1 or 2, and other hosts do not keep up
    await asyncio.sleep(0)
    assert not transport.reading
    connection.resume_reading()
    assert transport.reading
    connection.connection_lost(None)


async def test_who_is_not_read_is_not_silent(site: Site) -> None:
    """While other hosts do not keep up, or a quota is used up, what a client sends stays in its socket."""
    connection, transport = Connection(site.face), ReadTransport()
    connection.connection_made(transport)
    connection.data_received(encode(Connect(V5, "c", True, 10), V5))
    connection.pause_reading()
    later = site.face.loop.time() + 100
    site.face.sessions.look_at_clients(later)
    assert not connection.output.closing
    connection.resume_reading()
    assert connection.session.connection.last_activity < later
    site.face.sessions.look_at_clients(later + 16)
    assert connection.output.closing
    connection.connection_lost(None)
