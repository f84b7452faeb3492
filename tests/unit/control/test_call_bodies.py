"""Requests of calls: few are read at a time, in turn by connection, and those that never come end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest
from tests.unit.loops import holds

from treecast.middleware.api import call_bodies
from treecast.middleware.api.call_bodies import EACH, OTHERS, CallBodies
from treecast.middleware.model.errors import Fault, TreecastError


class Context:
    """A call whose request comes when the test says so."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.asked = False

    def peer(self) -> str:
        return self._peer

    async def read(self) -> bytes:
        self.asked = True
        return await asyncio.shield(self.message)


class Calls:
    def __init__(self) -> None:
        self.bodies = CallBodies()
        self.tasks: list[asyncio.Task[bytes]] = []

    def call(self, peer: str, *, trusted: bool = False) -> tuple[Context, asyncio.Task[bytes]]:
        context = Context(peer)
        task = asyncio.ensure_future(self.bodies.read(context, trusted))
        self.tasks.append(task)
        return context, task

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    made = Calls()
    yield made
    await made.close()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_request_is_read(calls: Calls) -> None:
    context, task = calls.call("a")
    context.message.set_result(b"body")
    assert await task == b"body"


async def test_few_are_read_at_a_time_and_fewer_of_one_connection(calls: Calls) -> None:
    contexts = [calls.call(peer)[0] for peer in "abcdef" for _ in range(10)]
    await settle()
    asked = [one.peer() for one in contexts if one.asked]
    assert len(asked) == OTHERS
    assert {peer: asked.count(peer) for peer in asked} == dict.fromkeys("abcd", EACH)


async def test_turns_come_by_connection(calls: Calls) -> None:
    flood = [calls.call(peer)[0] for peer in "abcd" for _ in range(20)]
    late, _ = calls.call("e")
    await settle()
    assert not late.asked
    first = next(one for one in flood if one.asked)
    first.message.set_result(b"")
    await settle()
    others = [one.asked for one in flood].count(True)
    assert late.asked or others == OTHERS + 1
    for one in [one for one in flood if one.asked and not one.message.done()][:4]:
        one.message.set_result(b"")
        await settle()
    assert late.asked


async def test_a_holder_of_the_key_does_not_wait_for_strangers(calls: Calls) -> None:
    for peer in "abcdefgh":
        for _ in range(20):
            calls.call(peer)
    await settle()
    context, task = calls.call("host", trusted=True)
    context.message.set_result(b"body")
    assert await task == b"body"


async def test_slow_ones_end_when_others_wait(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.bodies._others, "_hurry", 0.01)
    slow = [calls.call(peer)[1] for peer in "abcd" for _ in range(EACH)]
    await settle()
    context, task = calls.call("e")
    context.message.set_result(b"body")
    assert await task == b"body"
    ended = [one for one in slow if one.done()]
    assert ended
    with pytest.raises(TreecastError) as refused:
        ended[0].result()
    assert refused.value.fault is Fault.TIMED_OUT


async def test_a_request_that_never_comes_ends(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_bodies, "SECONDS", 0.01)
    _, task = calls.call("a")
    with pytest.raises(TreecastError, match="did not arrive in time"):
        await task
    assert calls.bodies.ended == 1
    assert not calls.bodies._of


async def test_the_connection_with_the_most_calls_loses_some(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_bodies, "UNREAD", 30)
    _, alone = calls.call("host")
    flood = [calls.call(peer)[1] for peer in "ab" for _ in range(40)]
    await holds(lambda: sum(one.done() for one in flood) == 51)
    assert not alone.done()


async def test_a_call_without_a_request_is_refused(calls: Calls) -> None:
    context, task = calls.call("a")
    context.message.set_result(grpc.aio.EOF)
    with pytest.raises(TreecastError, match="no request"):
        await task


async def test_turns_of_calls_that_leave_are_not_lost(calls: Calls) -> None:
    for _ in range(3):
        tasks = [calls.call(peer)[1] for peer in "abcdef" for _ in range(10)]
        await settle()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    contexts = [calls.call(peer)[0] for peer in "abcd" for _ in range(EACH)]
    await settle()
    assert all(one.asked for one in contexts)
    assert not calls.bodies._others._waiting or all(
        one.done() for queue in calls.bodies._others._waiting.values() for one in queue
    )
