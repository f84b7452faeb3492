"""How long a host waits for others, and connections that the loop drops while they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fabric.channel.hosts import Host, connected, until
from tests.unit.fabric.channel.pairs import identity, open_pair, session

from treecast.middleware.fabric.channel.codec import Problem
from treecast.middleware.fabric.channel.deadlines import Patience
from treecast.middleware.fabric.channel.settings import ChannelSettings

StartHost = Callable[..., Awaitable[Host]]
SETTINGS = ChannelSettings(silent_after=3.0, patience_for=30.0)


def test_it_doubles_with_each_silence_and_comes_back() -> None:
    patience = Patience(SETTINGS)
    assert patience.now(0.0) == 1
    for at in (100.0, 100.1, 101.0):  # several connections in one outage
        patience.in_vain(at)
    assert patience.now(102.0) == 2
    patience.in_vain(110.0)
    patience.in_vain(120.0)
    assert patience.now(121.0) == 4
    assert patience.now(149.9) == 4
    assert patience.now(150.0) == 2
    assert patience.now(180.0) == 1
    assert patience.now(500.0) == 1


@given(st.lists(st.tuples(st.floats(0, 50), st.booleans()), max_size=40))
def test_it_stays_between_one_and_four(steps: list[tuple[float, bool]]) -> None:
    patience = Patience(SETTINGS)
    now = 0.0
    for passed, silent in steps:
        now += passed
        if silent:
            patience.in_vain(now)
        assert 1 <= patience.now(now) <= 4
    assert patience.now(now + 31) <= 2
    patience.now(now + 62)
    assert patience.now(now + 93) == 1


async def test_a_connection_that_was_just_made_when_the_loop_gave_it_up(start_host: StartHost) -> None:
    """Its socket is closed and refuses writes: the host is dialled again."""
    a, b = await start_host(1), await start_host(2)
    loop = asyncio.get_running_loop()
    given_up: list[Any] = []

    class Loop:
        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        async def create_connection(self, factory: Callable[[], Any], **where: Any) -> Any:
            made = await loop.create_connection(factory, **where)
            if not given_up:
                given_up.append(made)
                made[0].abort()
                raise TimeoutError
            return made

    a.channels._loop = Loop()  # type: ignore[assignment]
    a.knows(b)
    await connected(a, b)
    assert given_up
    await until(lambda: len(a.channels._links) == 1)
    assert a.channels.counters.problems["UNREACHABLE"] == 1


@pytest.mark.parametrize("patience", [1.0, 4.0])
def test_a_session_waits_so_many_times_longer(patience: float) -> None:
    settings = ChannelSettings(silent_after=3.0, tick=0.25)
    pair = open_pair(settings)
    waiting = session(identity(1), 2, settings)
    for one in (pair.dialler.session, waiting):
        one.patience = patience
    for step in range(int(4 * 3 * patience)):
        assert not pair.dialler.session.closed
        assert not waiting.closed
        pair.dialler.take(pair.dialler.session.tick(step / 4))
        waiting.tick(step / 4)
    pair.dialler.take(pair.dialler.session.tick(3 * patience))
    waiting.tick(3 * patience)
    assert pair.dialler.end.problem is Problem.SILENT
    assert waiting.closed
