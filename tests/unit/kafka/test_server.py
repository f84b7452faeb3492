"""The face on real sockets: addresses, Unix sockets, a port in use, idle connections."""

from __future__ import annotations

import asyncio
import socket
import stat
import struct
from pathlib import Path
from typing import Any

import pytest

from treecast.middleware.broker import Broker
from treecast.middleware.model.counters import FaceCounters
from treecast.shims.kafka import KafkaFace, KafkaSettings, serve


@pytest.fixture
def metadata_request(client: Any) -> bytes:
    return bytes(client.request("Metadata", 1, topics=[]))


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[str, int]:
    """Returns the broker's address from a Metadata 1 response."""
    writer.write(request)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(size)
    count, node_id, length = struct.unpack_from(">iih", frame, 4)
    assert (count, node_id) == (1, 7)
    host, port = struct.unpack_from(f">{length}si", frame, 14)
    return host.decode(), port


async def started(broker: Broker, **options: Any) -> KafkaFace:
    face = serve(broker, KafkaSettings(**{"port": 0} | options), FaceCounters())
    await face.start()
    return face


async def test_clients_are_told_the_address_that_they_reached(
    broker: Broker, metadata_request: bytes
) -> None:
    face = await started(broker, host="0.0.0.0")
    port = face.address[1]
    for host in ("127.0.0.1", "127.0.0.2"):
        reader, writer = await asyncio.open_connection(host, port)
        assert await ask(reader, writer, metadata_request) == (host, port)
        writer.close()
    await face.close(1)


async def test_an_advertised_address_is_told_instead(broker: Broker, metadata_request: bytes) -> None:
    face = await started(broker, advertised=("broker.example", 19092))
    reader, writer = await asyncio.open_connection(*face.address)
    assert await ask(reader, writer, metadata_request) == ("broker.example", 19092)
    writer.close()
    await face.close(1)


async def test_unix_socket(broker: Broker, metadata_request: bytes, tmp_path: Path) -> None:
    path = tmp_path / "kafka.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    face = await started(broker, unix_path=path)
    assert stat.S_ISSOCK(path.stat().st_mode)
    reader, writer = await asyncio.open_unix_connection(str(path))
    assert await ask(reader, writer, metadata_request) == face.address
    writer.close()
    await face.close(1)
    assert not path.exists()


async def test_a_file_in_the_way_of_the_unix_socket_stays(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "kafka.sock"
    path.write_text("mine")
    with pytest.raises(OSError, match=r"kafka\.sock"):
        await started(broker, unix_path=path)
    assert path.read_text() == "mine"


async def test_a_port_in_use(broker: Broker) -> None:
    face = await started(broker)
    with pytest.raises(OSError, match="address already in use"):
        await started(broker, port=face.address[1])
    await face.close(1)


async def test_nagle_is_off(broker: Broker, metadata_request: bytes) -> None:
    face = await started(broker)
    reader, writer = await asyncio.open_connection(*face.address)
    await ask(reader, writer, metadata_request)
    (connection,) = face._connections
    assert connection._transport is not None
    own = connection._transport.get_extra_info("socket")
    assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    writer.close()
    await face.close(1)


async def test_idle_connections_are_closed(broker: Broker) -> None:
    face = await started(broker, connections_max_idle_ms=40)
    reader, writer = await asyncio.open_connection(*face.address)
    assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    await face.close(1)


async def test_large_frames_go_through_a_socket(broker: Broker, metadata_request: bytes) -> None:
    """A request of some MiB, split arbitrarily by the kernel, between small ones."""
    face = await started(broker)
    reader, writer = await asyncio.open_connection(*face.address)
    large = struct.pack(">hhih", 22, 0, 5, -1) + struct.pack(">hi", -1, 0)
    large = struct.pack(">i", len(large)) + large
    writer.write(metadata_request + large)
    for _ in range(2):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(size)
    writer.write(struct.pack(">i", 3 * 2**20) + struct.pack(">hhih", 1, 11, 5, -1) + b"\0" * (3 * 2**20 - 10))
    assert await asyncio.wait_for(reader.read(), 20) == b""
    assert face.counters.protocol_errors == {"malformed request": 1}
    writer.close()
    await face.close(1)
