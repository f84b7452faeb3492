"""Hosts in their own processes that are killed, stopped and started again."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.fabric.channel.hosts import Host, until

from treecast.middleware.api.discovery import Address
from treecast.middleware.fabric.channel import ChannelError

ROOT = Path(__file__).resolve().parents[4]
StartHost = Callable[..., Awaitable[Host]]
StartChild = Callable[[int, int], tuple[subprocess.Popen[bytes], Address]]


@pytest.fixture
def start_child() -> Iterator[StartChild]:
    """Returns `start_child(incarnation, port)`, which starts host 2."""
    children: list[subprocess.Popen[bytes]] = []

    def start(incarnation: int, port: int = 0) -> tuple[subprocess.Popen[bytes], Address]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        child = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("child.py"), "2", str(incarnation), str(port)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        children.append(child)
        assert child.stdout is not None
        return child, Address("127.0.0.1", int(child.stdout.readline()))

    yield start
    for child in children:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


async def test_killed_and_started_again(start_host: StartHost, start_child: StartChild) -> None:
    a = await start_host(1)
    child, address = start_child(1, 0)
    a.channels.set_host(2, address)
    assert (await a.channels.call(2, 41, b"first", timeout=20)).head == b"first by 1"
    for incarnation in (2, 3):
        child.kill()
        child.wait()
        await until(lambda: not a.channels.is_up(2))
        waiting = a.channels.call(2, 41, b"again", timeout=60)
        child, _ = start_child(incarnation, address.port)
        assert (await waiting).head == b"again by %d" % incarnation
    assert a.ups == [(2, 1), (2, 2), (2, 3)]
    assert a.downs == [2, 2]


async def test_stopped_and_continued(
    start_host: StartHost, start_child: StartChild, caplog: pytest.LogCaptureFixture
) -> None:
    """A stopped process is found silent; when it continues it is connected again, in the same run."""
    a = await start_host(1)
    child, address = start_child(1, 0)
    a.channels.set_host(2, address)
    await until(lambda: a.channels.is_up(2))
    child.send_signal(signal.SIGSTOP)
    with caplog.at_level(logging.CRITICAL, "treecast.channel"):
        with pytest.raises(ChannelError, match="silent for too long") as caught:
            await a.channels.call(2, 41, b"lost", timeout=60)
        assert caught.value.sent
        child.send_signal(signal.SIGCONT)
        assert (await a.channels.call(2, 41, b"back", timeout=60)).head == b"back by 1"
    assert a.downs == [2]
