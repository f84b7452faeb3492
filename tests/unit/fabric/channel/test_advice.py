"""Advice names ports only where a port can be the cause."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.fabric.channel.hosts import Host, until

from treecast.middleware.fabric.channel.advice import PORTS, next_step
from treecast.middleware.fabric.channel.codec import Problem

StartHost = Callable[..., Awaitable[Host]]


@pytest.mark.parametrize("problem", list(Problem))
def test_each_problem_has_a_next_step(problem: Problem) -> None:
    assert next_step(problem)
    assert (next_step(problem) == PORTS) is (problem is Problem.UNREACHABLE)


@pytest.mark.parametrize(
    "code", [errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL]
)
def test_what_the_kernel_knows_is_no_port(code: int) -> None:
    assert "open its --fabric port" not in next_step(Problem.UNREACHABLE, code)
    assert next_step(Problem.UNREACHABLE, errno.ETIMEDOUT) == PORTS


class Refusing:
    """The loop of a host, whose connections all fail in one way."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fail: Callable[[], Awaitable[Any]]) -> None:
        self._loop, self._fail = loop, fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, *_: Any, **__: Any) -> Any:
        return await self._fail()


async def hang() -> None:
    await asyncio.Event().wait()


async def refuse() -> None:
    raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


@pytest.mark.parametrize(
    ("fail", "reason", "step"),
    [(hang, "nobody answered within 0.05 s", PORTS), (refuse, "Connection refused", "no daemon listens")],
)
async def test_a_connection_that_fails_has_a_reason_and_a_step(
    start_host: StartHost, fail: Callable[[], Awaitable[Any]], reason: str, step: str
) -> None:
    from msgspec.structs import replace

    a, b = await start_host(1), await start_host(2)
    a.channels.settings = replace(a.channels.settings, dial=0.05)
    a.channels._loop = Refusing(asyncio.get_running_loop(), fail)  # type: ignore[assignment]
    a.knows(b)
    await until(lambda: a.channels.peers()[0].last_error)
    (peer,) = a.channels.peers()
    assert peer.last_error.endswith(reason)
    assert step in peer.advice
    a.channels._loop = asyncio.get_running_loop()
    await until(lambda: a.channels.is_up(2))
    (peer,) = a.channels.peers()
    assert (peer.last_error, peer.advice) == ("", "")
