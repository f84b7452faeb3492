"""Bounds: deaf peers, slow handlers, unread answers and strangers do not affect other hosts."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.fabric.channel.hosts import CLUSTER, KEY, QUICK, Host, connected, until

from treecast.middleware.fabric.channel import Answer, ChannelError, ChannelSettings
from treecast.middleware.fabric.channel.channels import Channels
from treecast.middleware.fabric.channel.codec import Frame, Kind, Problem, encode_frame
from treecast.middleware.fabric.channel.greeting import Identity
from treecast.middleware.fabric.channel.incoming import Ended, Event, Opened, Scratch
from treecast.middleware.fabric.channel.link import Link
from treecast.middleware.fabric.channel.outgoing import Call, CallQueue
from treecast.middleware.fabric.channel.session import Session
from treecast.middleware.fabric.channel.settings import MINIMUM_CHARGE
from treecast.middleware.model.errors import Fault

StartHost = Callable[..., Awaitable[Host]]

MIB = 1 << 20
TIGHT = ChannelSettings(
    window=MIB,
    longest=8 * MIB,
    queue=2 * MIB,
    unsent_answers=MIB,
    tick=0.05,
    ping_every=0.1,
    silent_after=30.0,
)


class RawHost:
    """Host 2 as a plain socket; the test does every read and write."""

    def __init__(self, settings: ChannelSettings) -> None:
        self.session = Session(Identity(2, 1, CLUSTER, KEY), settings, Scratch(), b"n" * 16, 0.0, expected=1)
        self.loop = asyncio.get_running_loop()
        self.events: list[Event] = []
        self.queue = CallQueue()

    async def connect(self, host: Host) -> RawHost:
        self.socket = socket.create_connection((host.address.host, host.address.port))
        self.socket.setblocking(False)
        while not any(isinstance(event, Opened) for event in self.events):
            await self.send()
            await self.read()
        self.session.attach(self.queue)
        return self

    async def send(self) -> None:
        for part in self.session.data_to_send(1 << 30):
            await self.loop.sock_sendall(self.socket, part)

    async def read(self) -> bytes:
        data = await self.loop.sock_recv(self.socket, 1 << 16)
        self.events += self.session.receive(data, self.loop.time())
        return data


@pytest.fixture
async def deaf(start_host: StartHost) -> tuple[Host, RawHost]:
    """A host, and a peer connected to it that has stopped reading."""
    a = await start_host(1, settings=TIGHT)
    return a, await RawHost(TIGHT).connect(a)


def held(channels: Channels, host_id: int) -> int:
    """Returns the bytes of calls and answers that wait for one host."""
    peer = channels._peers[host_id]
    total = peer.queue.bytes
    if peer.link is not None:
        assert peer.link._transport is not None
        total += peer.link._transport.get_write_buffer_size()
        total += peer.link.session.answers_unsent
        total += sum(call.size for call in peer.link.session.pending)
    return total


async def test_a_deaf_host_bounds_what_waits_for_it(
    deaf: tuple[Host, RawHost], start_host: StartHost
) -> None:
    a, raw = deaf
    calls = []
    for n in range(200):
        calls.append(a.channels.call(2, 41 + 20 * (n % 3), b"", bytes(100_000), timeout=60))
        await asyncio.sleep(0)
    other = await start_host(3)
    a.knows(other)
    for n in range(100):  # others are served in the meantime
        assert (await a.channels.call(3, 41, b"%d" % n, bytes(1000), timeout=20)).head == b"%d" % n
    failed = [call.exception() for call in calls if call.done()]
    assert len(failed) > 100
    assert all(isinstance(error, ChannelError) and not error.sent for error in failed)
    windows = 3 * TIGHT.window  # of three groups
    assert held(a.channels, 2) <= TIGHT.queue + windows + TIGHT.write_buffer + 2 * 256 * 1024
    raw.socket.close()
    a.channels.set_host(2, None)
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, ChannelError) for error in ended)


async def test_a_deaf_host_is_found_out(start_host: StartHost, caplog: pytest.LogCaptureFixture) -> None:
    a = await start_host(1)
    raw = await RawHost(QUICK).connect(a)
    call = a.channels.call(2, 41, timeout=60)
    with caplog.at_level(logging.CRITICAL, "treecast.channel"), pytest.raises(ChannelError) as caught:
        await call
    assert "silent for too long" in str(caught.value)
    assert caught.value.sent
    assert a.downs == [2]
    await until(lambda: not a.channels._links)
    raw.socket.close()


async def test_unread_answers_hold_back_requests(deaf: tuple[Host, RawHost]) -> None:
    """No further handlers begin for a peer that does not read its answers."""
    a, raw = deaf
    a.handler = lambda host, method, head, body: Answer(head, bytes(200_000))
    frames = b""
    seal = raw.session._frames.seal
    assert seal is not None
    for number in range(500):
        header = encode_frame(Frame(0, Kind.CALL, 41, number, 0, 0))
        frames += header + seal.tag(header, b"")
    sending = asyncio.create_task(raw.loop.sock_sendall(raw.socket, frames))
    await until(lambda: a.channels.peers()[0].handling > 100)
    await sending
    await until(lambda: a.channels.peers()[0].handling == 500 - len(a.seen))
    assert len(a.seen) < 100
    assert held(a.channels, 2) < TIGHT.unsent_answers + 1_000_000
    raw.queue.add(other := Call(Kind.CALL, 61, b"another group", b""))
    raw.session._calling._next = 500
    raw.session.call_added(other)
    await raw.send()
    await until(lambda: a.seen[-1][2] == b"another group")
    reads = 0
    while len(a.seen) < 501 and reads < 100_000:  # the peer begins to read
        data = await raw.loop.sock_recv(raw.socket, 1 << 20)
        assert data
        reads += 1
    assert len(a.seen) == 501
    raw.socket.close()


async def test_a_slow_handler_holds_back_its_group_and_no_other(start_host: StartHost) -> None:
    never: list[asyncio.Future[Answer]] = []

    def handle(host: int, method: int, head: bytes, body: memoryview) -> Answer | Awaitable[Answer]:
        if method != 41:
            return Answer(head)
        never.append(asyncio.get_running_loop().create_future())
        return never[-1]

    a, b = await start_host(1, settings=TIGHT), await start_host(2, handle, settings=TIGHT)
    a.knows(b)
    slow = [a.channels.call(2, 41, b"", bytes(10_000), timeout=60) for _ in range(200)]
    assert (await a.channels.call(2, 61, b"quick", timeout=20)).head == b"quick"
    window = TIGHT.window // (10_000 + MINIMUM_CHARGE)
    await until(lambda: len(never) >= window)
    assert (await a.channels.call(2, 61, b"quick", timeout=20)).head == b"quick"
    assert len(never) == window
    for done in range(200):
        await until(lambda done=done: len(never) > done)
        never[done].set_result(Answer())
    await asyncio.gather(*slow)


async def test_a_call_that_finds_no_room_says_so(start_host: StartHost) -> None:
    a, b = await start_host(1, settings=TIGHT), await start_host(2, settings=TIGHT)
    calls = [a.channels.call(2, 41, b"", bytes(900_000), timeout=60) for _ in range(3)]
    assert [call.done() for call in calls] == [False, False, True]
    error = calls[2].exception()
    assert isinstance(error, ChannelError)
    assert (error.fault, error.sent) == (Fault.LEADER_UNAVAILABLE, False)
    assert "wait for host 2 already" in error.detail
    a.knows(b)
    assert len(await asyncio.gather(*calls[:2])) == 2


async def test_calls_that_are_given_up_leave_nothing_behind(start_host: StartHost) -> None:
    a = await start_host(1)
    calls = [a.channels.call(2, 41, b"", bytes(1000), timeout=60) for _ in range(5000)]
    timed = [a.channels.call(2, 41, timeout=0.01) for _ in range(5000)]
    for call in calls:
        call.cancel()
    await asyncio.gather(*timed, return_exceptions=True)
    await until(lambda: not a.channels.peers())
    assert a.channels._outcomes.waiting == 0
    late = a.channels.call(2, 41, timeout=60)
    assert len(a.channels._deadlines) < 5000
    late.cancel()


async def test_cancelling_tells_the_handler_where_it_may(start_host: StartHost) -> None:
    stopped: list[int] = []

    async def wait(method: int) -> Answer:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(method)
            raise
        return Answer()

    a, b = await start_host(1), await start_host(2, lambda host, method, head, body: wait(method))
    b.channels.cancellable.add(41)
    a.knows(b)
    calls = [a.channels.call(2, method, timeout=60) for method in (41, 42)]
    await until(lambda: len(b.seen) == 2)
    for call in calls:
        call.cancel()
    await until(lambda: a.channels.peers()[0].in_flight == 1)
    assert stopped == [41]
    for handled in next(iter(b.channels._links))._running.values():
        handled.future.cancel()
    await until(lambda: a.channels.peers()[0].in_flight == 0)


async def test_strangers_are_bounded(start_host: StartHost, caplog: pytest.LogCaptureFixture) -> None:
    settings = ChannelSettings(handshakes=5, handshake=30.0)
    a = await start_host(1, settings=settings)
    with caplog.at_level(logging.CRITICAL, "treecast.channel"):
        strangers = [socket.create_connection((a.address.host, a.address.port)) for _ in range(20)]
        await until(lambda: a.counters.problems.get(Problem.CROWDED.name) == 15)
        assert len(a.channels._links) <= 5 + 15
        b = await start_host(2, settings=settings)
        a.knows(b)  # hosts that are dialled have their own places
        await until(lambda: a.channels.is_up(2))
    for stranger in strangers:
        stranger.close()


async def test_problems_are_logged_without_flooding(
    start_host: StartHost, caplog: pytest.LogCaptureFixture
) -> None:
    a = await start_host(1)
    loop = asyncio.get_running_loop()
    for _ in range(50):
        with socket.create_connection((a.address.host, a.address.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, b"\xff" * 64)
            await loop.sock_recv(client, 100)
    assert a.counters.problems == {"NOT_A_CHANNEL": 50}
    assert len(caplog.records) == 6  # 1, 2, 4, 8, 16, 32
    assert "does not speak the channel's protocol" in caplog.text


async def test_a_hundred_hosts(start_host: StartHost) -> None:
    """One host with a hundred others, all of which dial it while it dials them."""
    hub = await start_host(50)
    others = [await start_host(n) for n in range(1, 102) if n != 50]
    for other in others:
        other.knows(hub)
        hub.knows(other)
    await until(lambda: len(hub.ups) == 100)
    answers = await asyncio.gather(
        *(hub.channels.call(other.host_id, 41, b"%d" % other.host_id, timeout=60) for other in others),
        *(other.channels.call(50, 41, b"%d" % other.host_id, timeout=60) for other in others),
    )
    assert [answer.head for answer in answers] == 2 * [b"%d" % other.host_id for other in others]
    await until(lambda: len(hub.channels._links) == 100)
    assert hub.counters.opened == 100
    assert hub.downs == []
    assert [peer.host_id for peer in hub.channels.peers()] == [other.host_id for other in others]


async def test_a_lost_connection_is_not_taken_for_a_second_one(start_host: StartHost) -> None:
    """The host with the higher id alone loses its end; a new connection is accepted at once."""
    a, b = await start_host(1, settings=TIGHT), await start_host(2, settings=TIGHT)
    b.knows(a)
    await connected(b)
    await until(lambda: b.channels.is_up(1))
    link = b.channels._peers[1].link
    assert isinstance(link, Link)
    assert link._transport is not None
    link._transport.pause_reading()  # a's goodbye would not arrive, as on a broken path
    b.channels._peers[1].link = None
    link._over = True
    b.channels._dial(b.channels._peers[1])
    await until(lambda: a.ups == [(2, 1), (2, 1)] and b.channels.is_up(1))  # a notices first
    assert a.counters.problems.get("REPLACED") == 1
    assert a.downs == [2]
    link._owner.ended(link, Ended(Problem.LOST, "", False))
    assert b.channels.is_up(1)
