"""The writing side: all bytes arrive in order, whatever their buffers are and however slow the client is."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from treecast.middleware.model.buffers import Chunk
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.file_range import LogRange
from treecast.middleware.storage.files import FilePool
from treecast.shims.kafka.sender import JOIN_BYTES, Sender

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


class Line(asyncio.Protocol):
    """A sender on one end of a socket pair, the client on the other."""

    def __init__(self) -> None:
        self.resumed = 0
        self.lost = asyncio.Event()
        self.told = asyncio.Event()

    @classmethod
    async def open(cls) -> Line:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
        theirs.setblocking(False)
        transport, line = await loop.create_connection(cls, sock=ours)
        line.client, line.transport = theirs, transport
        line.sender = Sender(loop, transport, line._resumed)
        return line

    def _resumed(self) -> None:
        self.resumed += 1
        self.told.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.sender.close()
        self.lost.set()

    def send(self, *chunks: Chunk) -> None:
        self.sender.send(list(chunks), sum(map(len, chunks)))

    async def read(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        data = bytearray()
        while len(data) < size:
            part = await loop.sock_recv(self.client, min(size - len(data), 10_000))
            if not part:
                break
            data += part
        return bytes(data)

    async def close(self) -> None:
        self.transport.abort()
        await self.lost.wait()
        self.client.close()

    client: socket.socket
    transport: asyncio.Transport
    sender: Sender


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_bytes(random.Random(1).randbytes(1 << 20))
    return path


def part(path: Path, offset: int, size: int) -> LogRange:
    pool = FilePool(Disk())
    return LogRange(pool, pool.file(str(path)), offset, size)


def run(
    loop: Callable[[], asyncio.AbstractEventLoop], scenario: Callable[[], Coroutine[None, None, None]]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(8))
def test_bytes_come_whole_and_in_order(
    loop: Callable[[], asyncio.AbstractEventLoop], seed: int, log_file: Path
) -> None:
    rng = random.Random(seed)
    content = log_file.read_bytes()

    def chunk() -> Chunk:
        size = rng.choice([1, 100, 5_000, JOIN_BYTES, 3 * JOIN_BYTES])
        offset = rng.randrange(len(content) - size)
        if rng.random() < 0.5:
            return part(log_file, offset, size)
        return rng.choice([bytes, bytearray, memoryview])(content[offset : offset + size])

    async def scenario() -> None:
        line = await Line.open()
        expected = b""
        for _ in range(12):
            chunks = [chunk() for _ in range(rng.randrange(1, 5))]
            expected += b"".join(map(bytes, chunks))
            line.send(*chunks)
            if rng.random() < 0.3:
                size = rng.randrange(len(expected) + 1)
                assert await line.read(size) == expected[:size]
                expected = expected[size:]
        assert await line.read(len(expected)) == expected
        await line.close()

    run(loop, scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_small_answer_is_with_the_client_before_the_loop_turns(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        line = await Line.open()
        line.send(b"now")
        assert line.client.recv(10) == b"now"
        parts = [bytes([number]) * 30_000 for number in range(20)]
        for one in parts:  # more than the socket's buffer
            line.send(one)
        assert line.transport.get_write_buffer_size() > 0
        assert await line.read(600_000) == b"".join(parts)
        line.client.close()
        line.send(b"for nobody")
        line.send(b"for nobody")
        await line.lost.wait()

    run(loop, scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_who_waits_is_told_when_the_client_has_read(
    loop: Callable[[], asyncio.AbstractEventLoop], log_file: Path
) -> None:
    content = log_file.read_bytes()

    async def scenario() -> None:
        line = await Line.open()
        line.send(b"head", part(log_file, 0, 1 << 20), b"tail")
        assert line.sender.waiting
        assert line.resumed == 0
        assert await line.read(8 + (1 << 20)) == b"head" + content + b"tail"
        await line.told.wait()
        assert line.resumed == 1
        assert not line.sender.waiting
        await line.close()

    run(loop, scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_file_that_ends_early_ends_the_connection(
    loop: Callable[[], asyncio.AbstractEventLoop], log_file: Path
) -> None:
    async def scenario() -> None:
        line = await Line.open()
        line.send(b"head", part(log_file, 1 << 19, 1 << 20))
        assert len(await line.read(1 << 20)) == 4 + (1 << 19)
        await line.lost.wait()
        assert not line.sender.waiting
        line.client.close()

    run(loop, scenario)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_leaves_amid_an_answer(
    loop: Callable[[], asyncio.AbstractEventLoop], log_file: Path
) -> None:
    async def scenario() -> None:
        line = await Line.open()
        line.send(part(log_file, 0, 1 << 20))
        assert line.sender.waiting
        line.client.close()
        await line.lost.wait()
        assert not line.sender.waiting

    run(loop, scenario)


def test_a_range_outlives_its_file(log_file: Path) -> None:
    content = log_file.read_bytes()
    kept = part(log_file, 5, 100)
    log_file.unlink()
    assert bytes(kept) == content[5:105]
    assert kept.read_from(40) == content[45:105]
