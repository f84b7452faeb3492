"""Hosts over real sockets: calls, order, refusals, reconnecting, ties."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.fabric.channel.hosts import QUICK, Host, connected, until

from treecast.middleware.api.discovery import Address
from treecast.middleware.fabric.channel import Answer, ChannelError, ChannelSettings
from treecast.middleware.model.errors import Fault, TreecastError

GARBAGE = (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(100), b"\xff" * 100, b"\0\0\0\x05\0\0" + bytes(50))
StartHost = Callable[..., Awaitable[Host]]


@pytest.fixture
async def pair(start_host: StartHost) -> tuple[Host, Host]:
    """Two hosts that know each other and are connected."""
    a, b = await start_host(1), await start_host(2)
    a.knows(b)
    b.knows(a)
    await connected(a, b)
    return a, b


async def test_calls_both_ways(pair: tuple[Host, Host]) -> None:
    a, b = pair
    for asks, other in ((a, b), (b, a)):
        answer = await asks.channels.call(other.host_id, 7, b"head", b"body", timeout=5)
        assert (answer.head, bytes(answer.body)) == (b"head", b"body")
        assert other.seen == [(asks.host_id, 7, b"head")]


async def test_the_body_that_a_handler_gets_is_writable_and_its_own(start_host: StartHost) -> None:
    kept: list[memoryview] = []

    def keep(host: int, method: int, head: bytes, body: memoryview) -> Answer:
        body[0] = ord("X")
        kept.append(body)
        return Answer()

    a, b = await start_host(1), await start_host(2, keep)
    a.knows(b)
    await asyncio.gather(*(a.channels.call(2, 1, b"", b"body%d" % n, timeout=5) for n in range(10)))
    assert [bytes(body) for body in kept] == [b"Xody%d" % n for n in range(10)]


async def test_callbacks_get_answers_and_refusals_like_futures(start_host: StartHost) -> None:
    def refuse_three(host: int, method: int, head: bytes, body: memoryview) -> Answer:
        if head == b"3":
            raise TreecastError(Fault.NOT_LEADER, "three")
        return Answer(head, body)

    a, b = await start_host(1), await start_host(2, refuse_three)
    a.knows(b)
    found = list[str]()

    def take(outcome: Answer | TreecastError) -> None:
        found.append(outcome.detail if isinstance(outcome, TreecastError) else outcome.head.decode())
        if found[-1] == "1":
            raise ValueError("a mistake of the caller, which costs no connection")

    for n in range(5):
        a.channels.call_then(2, 7, take, b"%d" % n, timeout=60)
    await until(lambda: len(found) == 5)
    assert sorted(found) == ["0", "1", "2", "4", "three"]
    assert a.counters.answered == a.counters.calls == 5
    assert a.ups == [(2, 1)]
    assert a.downs == []


async def test_a_callback_is_never_called_within_the_call(start_host: StartHost) -> None:
    a = await start_host(1)
    found = list[Answer | TreecastError]()
    a.channels.call_then(1, 7, found.append, timeout=60)
    assert found == []
    await until(lambda: found)
    assert isinstance(found[0], ChannelError)
    assert "no channel to itself" in found[0].detail
    a.channels.call_then(2, 7, found.append, timeout=0.05)  # nobody knows host 2
    await until(lambda: len(found) == 2)
    assert isinstance(found[1], ChannelError)
    assert found[1].fault is Fault.TIMED_OUT
    assert a.counters.failed_unsent == 2


async def test_a_call_waits_for_the_connection(start_host: StartHost) -> None:
    a, b = await start_host(1), await start_host(2)
    waiting = a.channels.call(2, 1, b"early", timeout=20)
    a.knows(b)
    assert (await waiting).head == b"early"


async def test_a_call_to_nobody_fails_as_not_sent(start_host: StartHost) -> None:
    a = await start_host(1)
    with pytest.raises(ChannelError) as caught:
        await a.channels.call(2, 1, timeout=0.05)
    assert caught.value.fault is Fault.TIMED_OUT
    assert not caught.value.sent
    assert a.counters.failed_unsent == 1


async def test_a_call_without_an_answer_fails_as_unknown(start_host: StartHost) -> None:
    never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    a, b = await start_host(1), await start_host(2, lambda *_: never)
    a.knows(b)
    await connected(a)
    await until(lambda: a.channels.is_up(2))
    with pytest.raises(ChannelError) as caught:
        await a.channels.call(2, 1, timeout=0.1)
    assert caught.value.sent
    assert a.counters.failed_unknown == 1


async def test_refusals_are_raised_at_the_caller(
    start_host: StartHost, caplog: pytest.LogCaptureFixture
) -> None:
    async def later() -> Answer:
        await asyncio.sleep(0)
        raise TreecastError(Fault.NOT_LEADER, "ask host 3")

    def handle(host: int, method: int, head: bytes, body: memoryview) -> Answer | Awaitable[Answer]:
        if method == 1:
            raise TreecastError(Fault.UNKNOWN_TOPIC, "no topic ü")
        if method == 2:
            return later()
        raise RuntimeError("a bug")

    a, b = await start_host(1), await start_host(2, handle)
    a.knows(b)
    found = []
    with caplog.at_level(logging.CRITICAL, "treecast.channel"):
        for method in (1, 2, 3):
            with pytest.raises(TreecastError) as caught:
                await a.channels.call(2, method, timeout=5)
            found.append((caught.value.fault, caught.value.detail))
    assert found[:2] == [(Fault.UNKNOWN_TOPIC, "no topic ü"), (Fault.NOT_LEADER, "ask host 3")]
    assert found[2][0] is Fault.INTERNAL
    assert b.counters.faults == 3


async def test_handlers_begin_in_order_and_answers_overtake(start_host: StartHost) -> None:
    gates: dict[bytes, asyncio.Future[Answer]] = {}

    def handle(host: int, method: int, head: bytes, body: memoryview) -> Awaitable[Answer]:
        gates[head] = asyncio.get_running_loop().create_future()
        return gates[head]

    a, b = await start_host(1), await start_host(2, handle)
    a.knows(b)
    calls = [a.channels.call(2, 41 + n % 3, b"%d" % n, timeout=20) for n in range(50)]
    await until(lambda: len(b.seen) == 50)
    assert [head for _, _, head in b.seen] == [b"%d" % n for n in range(50)]
    for n in reversed(range(50)):
        gates[b"%d" % n].set_result(Answer(b"%d" % n))
        await calls[n]
        assert not any(call.done() for call in calls[:n])


async def test_notices(pair: tuple[Host, Host]) -> None:
    a, b = pair
    assert all(a.channels.notify(2, 25, b"%d" % n, bytes(1000)) for n in range(1000))
    await until(lambda: len(b.seen) == 1000)
    assert [head for _, _, head in b.seen] == [b"%d" % n for n in range(1000)]
    assert not a.channels.notify(3, 25)
    assert a.counters.notices_dropped == 1


async def test_large_bodies_do_not_hold_up_small_calls(pair: tuple[Host, Host]) -> None:
    a, _ = pair
    body = bytes(range(256)) * (20 << 12)  # 20 MiB
    large = a.channels.call(2, 41, b"large", body, timeout=60)
    await asyncio.sleep(0)
    small = await a.channels.call(2, 21, b"small", timeout=60)
    assert small.head == b"small"
    assert not large.done()
    answer = await large
    assert bytes(answer.body) == body


async def test_a_request_of_any_size_gets_its_turn(start_host: StartHost) -> None:
    settings = ChannelSettings(window=64 * 1024, longest=4 << 20)
    a, b = await start_host(1, settings=settings), await start_host(2, settings=settings)
    a.knows(b)
    sizes = [0, 1, 100, 70_000, 4 << 20, 3, 50_000, 300_000, 10]
    calls = [a.channels.call(2, 41, b"", bytes(min(size, (4 << 20))), timeout=60) for size in sizes]
    assert [len(answer.body) for answer in await asyncio.gather(*calls)] == sizes


async def test_what_is_too_long_is_refused_here(pair: tuple[Host, Host]) -> None:
    a, _ = pair
    with pytest.raises(ChannelError, match="are taken") as caught:
        await a.channels.call(2, 1, b"", bytes(QUICK.longest + 1), timeout=5)
    assert not caught.value.sent


async def test_killed_and_started_again(start_host: StartHost) -> None:
    never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    a, b = await start_host(1), await start_host(2, lambda *_: never)
    a.knows(b)
    b.knows(a)
    await connected(a, b)
    in_flight = a.channels.call(2, 1, timeout=60)
    await until(lambda: b.seen)
    b.kill()
    with pytest.raises(ChannelError) as caught:
        await in_flight
    assert caught.value.sent
    await until(lambda: a.downs == [2])
    waiting = a.channels.call(2, 1, b"after", timeout=60)
    await start_host(2, address=b.address, incarnation=2)
    assert (await waiting).head == b"after"
    assert a.ups == [(2, 1), (2, 2)]


async def test_both_dial_at_once_and_one_connection_is_used(start_host: StartHost) -> None:
    for round_number in range(20):
        a, b = await start_host(1), await start_host(2)
        a.knows(b)
        b.knows(a)
        await connected(a, b)
        answers = await asyncio.gather(
            *(a.channels.call(2, 1, b"%d" % n, timeout=10) for n in range(10)),
            *(b.channels.call(1, 1, b"%d" % n, timeout=10) for n in range(10)),
        )
        assert len(answers) == 20, round_number
        assert (a.counters.opened, b.counters.opened) == (1, 1)
        await until(lambda a=a, b=b: len(a.channels._links) == len(b.channels._links) == 1)
        await a.channels.close()
        await b.channels.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"cluster": "another"}, "CLUSTER"),
        ({"key": b"x" * 32}, "PROOF"),
        ({"key": None}, "AUTHENTICATION"),
        ({"host_id": 3}, "WRONG_HOST"),
    ],
)
async def test_who_is_refused(
    start_host: StartHost, options: dict[str, object], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    b = await start_host(**{"host_id": 2, **options})
    with caplog.at_level(logging.CRITICAL, "treecast.channel"):
        a = await start_host(1)
        a.channels.set_host(2, b.address)
        await until(lambda: a.counters.problems.get(problem, 0) > 1)
    assert a.counters.opened == b.counters.opened == 0
    assert a.channels.peers()[0].last_error


async def test_without_a_key(start_host: StartHost) -> None:
    a, b = await start_host(1, key=None), await start_host(2, key=None)
    a.knows(b)
    assert (await a.channels.call(2, 1, b"open", timeout=10)).head == b"open"


async def test_a_host_that_is_taken_away(start_host: StartHost) -> None:
    never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    a, b = await start_host(1), await start_host(2, lambda *_: never)
    a.knows(b)
    a.channels.set_host(3, Address("127.0.0.1", 1))
    calls = [a.channels.call(host, 1, timeout=60) for host in (2, 3)]
    await until(lambda: b.seen)
    a.channels.set_host(2, None)
    a.channels.set_host(3, None)
    failed = await asyncio.gather(*calls, return_exceptions=True)
    assert [error.sent for error in failed if isinstance(error, ChannelError)] == [True, False]
    assert a.downs == [2]
    assert a.channels.peers() == []


async def test_a_socket_of_the_caller_on_one_number(start_host: StartHost) -> None:
    from treecast.middleware.fabric.channel import listen_on_one_number

    stream, datagrams = listen_on_one_number(Address("127.0.0.1", 0))
    with datagrams:
        assert stream.getsockname() == datagrams.getsockname()
        b = Host(2)
        b.address = await b.channels.start(Address("127.0.0.1", 0), stream)
        assert b.address.port == datagrams.getsockname()[1]
        a = await start_host(1)
        a.knows(b)
        assert (await a.channels.call(2, 1, b"x", timeout=10)).head == b"x"
        await b.channels.close()
        with pytest.raises(OSError, match="in use"):
            listen_on_one_number(Address(*datagrams.getsockname()))


async def test_garbage_at_the_port(start_host: StartHost, caplog: pytest.LogCaptureFixture) -> None:
    a = await start_host(1)
    loop = asyncio.get_running_loop()
    with caplog.at_level(logging.CRITICAL, "treecast.channel"):
        for data in (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            bytes(100),
            b"\xff" * 100,
            b"\0\0\0\x05\0\0" + bytes(50),
        ):
            with socket.create_connection((a.address.host, a.address.port)) as client:
                client.setblocking(False)
                await loop.sock_sendall(client, data)
                assert await loop.sock_recv(client, 100) in (b"",), data
    assert a.counters.problems == {"NOT_A_CHANNEL": 4}
    assert not a.channels._links


async def test_a_call_before_the_start(start_host: StartHost) -> None:
    b = await start_host(2)
    a = Host(1)
    a.channels.set_host(2, b.address)
    early = a.channels.call(2, 41, b"early", timeout=20)
    await a.start()
    assert (await early).head == b"early"
    await a.channels.close()
    with pytest.raises(ChannelError, match="closed"):
        await a.channels.call(2, 41, timeout=20)


async def test_a_newer_run_replaces_an_older_one_that_still_stands(start_host: StartHost) -> None:
    for lower, higher in ((1, 2), (2, 1)):  # with either of them as the chooser
        a = await start_host(lower)
        old = await start_host(higher, incarnation=5)
        old.knows(a)
        await until(lambda a=a, other=higher: a.ups == [(other, 5)])
        new = await start_host(higher, incarnation=6)
        new.knows(a)
        await until(lambda a=a, other=higher: a.ups == [(other, 5), (other, 6)])
        await until(lambda a=a, old=old: a.counters.problems.get("STALE", 0) > 1)  # the old run keeps trying
        assert a.downs == [higher]
        assert (await a.channels.call(higher, 41, b"new", timeout=10)).head == b"new"
        assert new.seen
        assert not old.seen
        await old.channels.close()


async def test_an_answer_that_is_too_long(start_host: StartHost) -> None:
    small = ChannelSettings(longest=4096)
    a = await start_host(1, settings=small)
    b = await start_host(2, lambda host, method, head, body: Answer(b"", bytes(5000)))
    a.knows(b)
    with pytest.raises(TreecastError) as caught:
        await a.channels.call(2, 41, timeout=10)
    assert caught.value.fault is Fault.BATCH_TOO_LARGE
    with pytest.raises(ChannelError, match="are taken"):
        await b.channels.call(1, 41, b"", bytes(5000), timeout=10)
    assert a.channels.is_up(2)


async def test_a_listener_or_handler_that_fails_ends_nothing(
    start_host: StartHost, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await start_host(1), await start_host(2, lambda *_: 7)
    a.channels.on_up = lambda host, run: [].pop()
    a.knows(b)
    with caplog.at_level(logging.CRITICAL, "treecast.channel"):
        await until(lambda: a.channels.is_up(2))
        with pytest.raises(TreecastError) as caught:
            await a.channels.call(2, 41, timeout=10)
        assert a.channels.notify(2, 41)
        await until(lambda: len(b.seen) == 2)
    assert caught.value.fault is Fault.INTERNAL
    assert (a.downs, b.downs) == ([], [])
