"""The STARE face: its session's table, and its server over a middleware in memory, with bad and slow
clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import pytest_asyncio

from treecast.middleware.model.counters import FaceCounters, StareCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.wire.stare_signals import Update
from treecast.shims import stare
from treecast.shims.stare.codec import VERSION, Code, Frame, Type, encode
from treecast.shims.stare.ports import Vnf
from treecast.shims.stare.server import StareFace, code_of
from treecast.shims.stare.session import EXPECTED, Session, State
from treecast.shims.stare.settings import FaceSettings

PATIENCE = 30.0


# --- the session


def in_state(state: State) -> Session:
    session = Session(1000)
    if state in (State.OPENING, State.OPEN):
        session.receive(encode(Frame(Type.HELLO, version=VERSION)))
    if state is State.OPEN:
        session.welcome(5, 100)
    if state is State.OVER:
        session.fail(Code.PROTOCOL, "before")
    session.data_to_send()
    assert session.state is state
    return session


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("type", Type)
def test_every_frame_in_every_state(state: State, type: Type) -> None:
    session = in_state(state)
    asked = session.receive(encode(Frame(type, version=VERSION, request=1, state=300)))
    if type in EXPECTED[state]:
        assert session.state is not State.OVER
        assert bool(asked) == (type is not Type.PING)
    else:
        assert (asked, session.state) == ([], State.OVER)


def test_what_follows_a_protocol_error_is_not_taken() -> None:
    session = in_state(State.OPEN)
    good = encode(Frame(Type.PUBLISH, request=1, state=300))
    asked = session.receive(good + encode(Frame(Type.WELCOME)) + good)
    assert len(asked) == 1
    assert b"WELCOME" in session.data_to_send()
    assert session.receive(good) == []


def test_another_version_is_told_ours() -> None:
    session = Session(1000)
    session.receive(encode(Frame(Type.HELLO, version=9)))
    assert b"version 1" in session.data_to_send()


def test_every_fault_has_a_code() -> None:
    assert {code_of(fault) for fault in Fault} <= set(Code)
    assert code_of(Fault.STORAGE) is Code.INTERNAL


# --- the server


class Memory:
    """A `ports.Middleware` that only records its calls."""

    largest = 50_000

    def __init__(self) -> None:
        self.vnfs: dict[int, Vnf] = {}
        self.published: list[tuple[int, int, bytes]] = []
        self.refuse: TreecastError | None = None
        self.count = 0

    async def open(self, vnf: Vnf) -> int:
        if self.refuse is not None:
            raise self.refuse
        self.count += 1
        self.vnfs[self.count] = vnf
        return self.count

    def close_vnf(self, vnf: int) -> None:
        del self.vnfs[vnf]

    async def state_of(self, levels: Sequence[str]) -> int:
        if levels == ("broken",):
            raise RuntimeError("a bug of ours")
        return 300 + len(levels)

    async def subscribe(self, vnf: int, state: int) -> bool:
        if state < 256:
            raise TreecastError(Fault.INVALID_REQUEST, "no id")
        return True

    def unsubscribe(self, vnf: int, state: int) -> None: ...

    def publish(self, vnf: int, state: int, value: bytes) -> int:
        if state < 256:
            raise TreecastError(Fault.INVALID_REQUEST, "no id")
        self.published.append((vnf, state, value))
        return len(self.published)


def address(face: StareFace) -> tuple[str, int]:
    [server] = face._servers
    name: tuple[str, int] = server.sockets[0].getsockname()  # type: ignore[attr-defined]
    return name


Start = Callable[..., Awaitable[tuple[StareFace, Memory]]]


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    faces: list[StareFace] = []

    async def started(**settings: object) -> tuple[StareFace, Memory]:
        memory = Memory()
        given = FaceSettings(**settings)  # type: ignore[arg-type]
        face = StareFace(memory, given, FaceCounters(), StareCounters())
        await face.start([socket.create_server(("127.0.0.1", 0))])
        faces.append(face)
        return face, memory

    yield started
    for face in faces:
        await face.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_calls_and_updates(start: Start) -> None:
    face, memory = await start()
    async with await stare.connect("x", address(face)) as vnf:
        assert (vnf.id, vnf.largest) == (1, memory.largest)
        assert await vnf.state("a/b/c") == 303
        assert await vnf.subscribe(303)
        assert await vnf.publish(303, b"value") == 1
        vnf.publish_soon(303, b"soon")
        await vnf.unsubscribe(303)
        assert memory.published == [(1, 303, b"value"), (1, 303, b"soon")]
        memory.vnfs[1].deliver([Update(303, 9, 4, b"v")])
        async for update in vnf:
            assert update == stare.Update(303, 9, 4, b"v")
            break
    await until(lambda: not memory.vnfs)


async def test_refusals_and_bugs_are_answered(start: Start) -> None:
    face, memory = await start()
    async with await stare.connect("x", address(face)) as vnf:
        for call in (vnf.subscribe(5), vnf.publish(5, b"")):
            with pytest.raises(stare.StareError) as refused:
                await call
            assert refused.value.code is Code.INVALID
        with pytest.raises(stare.StareError) as refused:
            await vnf.state("broken")
        assert refused.value.code is Code.INTERNAL
        assert await vnf.state("works") == 301
    memory.refuse = TreecastError(Fault.COORDINATOR_UNAVAILABLE, "away")
    with pytest.raises(stare.ConnectionLost) as lost:
        await stare.connect("y", address(face))
    assert lost.value.code is Code.AWAY


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", bytes(4), b"\xff" * 8, encode(Frame(Type.PING)), b"\0\0\0\x05\x63abcd"],
)
async def test_garbage_ends_the_connection_and_no_other(start: Start, data: bytes) -> None:
    face, _ = await start()
    async with await stare.connect("x", address(face)) as vnf:
        reader, writer = await asyncio.open_connection(*address(face))
        writer.write(data)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        assert answer[4] == Type.ERROR
        writer.close()
        assert face.counters.protocol_errors == {"protocol": 1}
        assert await vnf.state("a") == 301


async def test_a_vnf_that_does_not_read_gets_the_last_of_each_state(start: Start) -> None:
    face, memory = await start(send_buffer=20_000)
    reader, writer = await asyncio.open_connection(*address(face), limit=1000)
    writer.write(encode(Frame(Type.HELLO, version=VERSION)))
    await until(lambda: memory.vnfs)
    for number in range(2000):
        memory.vnfs[1].deliver([Update(300 + number % 2, 9, number, bytes(20_000))])
    assert face.stare.conflated > 0
    seen = {}
    async with asyncio.timeout(PATIENCE):
        while seen.get(300) != 1998 or seen.get(301) != 1999:
            head = await reader.readexactly(5)
            body = await reader.readexactly(int.from_bytes(head[:4]) - 1)
            if head[4] == Type.UPDATE:
                seen[int.from_bytes(body[:4])] = int.from_bytes(body[6:14])
    writer.close()


async def test_a_vnf_that_reads_nothing_for_too_long_is_closed(start: Start) -> None:
    face, memory = await start(send_buffer=20_000, unread_bytes=100_000)
    _, writer = await asyncio.open_connection(*address(face), limit=1000)
    writer.write(encode(Frame(Type.HELLO, version=VERSION)))
    await until(lambda: memory.vnfs)
    vnf = memory.vnfs[1]
    for number in range(3000):
        vnf.deliver([Update(300 + number, 9, 0, bytes(20_000))])
    await until(lambda: not memory.vnfs)
    assert face.counters.protocol_errors == {"slow": 1}
    writer.close()


async def test_too_many_and_silent_connections_are_closed(start: Start) -> None:
    face, _ = await start(most_connections=1, hello_seconds=0.2)
    async with await stare.connect("x", address(face)) as vnf:
        with pytest.raises(stare.ConnectionLost) as lost:
            await stare.connect("y", address(face))
        assert lost.value.code is Code.LIMIT
        await until(lambda: len(face.connections) == 1)
        assert await vnf.state("a") == 301
    await until(lambda: not face.connections)
    reader, writer = await asyncio.open_connection(*address(face))
    assert (await asyncio.wait_for(reader.read(), PATIENCE))[4] == Type.ERROR
    writer.close()


async def test_a_face_that_closes_says_so(start: Start) -> None:
    face, _ = await start()
    vnf = await stare.connect("x", address(face))
    await face.close()
    with pytest.raises(stare.ConnectionLost) as lost:
        async for _ in vnf:
            pass
    assert lost.value.code is Code.CLOSING
    await vnf.close()


async def test_the_blocking_client(start: Start) -> None:
    face, memory = await start()

    def use() -> None:
        with stare.Vnf("x", address(face), timeout=PATIENCE) as vnf:
            assert vnf.state("a/b") == 302
            assert vnf.subscribe(302)
            assert vnf.publish(302, b"v") == 1
            assert vnf.receive(0.01) is None
            with pytest.raises(stare.StareError):
                vnf.publish(5, b"")
            memory.vnfs[vnf.id].deliver([])
            vnf.unsubscribe(302)

    await asyncio.to_thread(use)
    await until(lambda: not memory.vnfs)
