"""VNFs beside real daemons: on one host, and on two hosts whose states travel by multicast on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from treecast.middleware.daemon.process import DaemonProcess
from treecast.shims import stare

pytestmark = pytest.mark.clients

PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it
FABRIC = ("--fabric", "127.0.0.1:0")


@pytest.fixture
def hosts(start_daemon: Callable[..., DaemonProcess]) -> list[DaemonProcess]:
    first = start_daemon("--name", "a", *FABRIC)
    token = ("--join-token", f"@{first.data / 'join-token'}")
    return [first, start_daemon("--name", "b", *FABRIC, "--join", first.control, *token)]


def until_value(vnf: stare.Vnf, publisher: int, value: bytes) -> list[stare.Update]:
    """Returns all updates up to the one with `value` of `publisher`."""
    found: list[stare.Update] = []
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        update = vnf.receive(1.0)
        if update is not None:
            found.append(update)
            if (update.vnf, update.value) == (publisher, value):
                return found
    pytest.fail(f"{value!r} did not come, but {found[-5:]}")


def metrics(daemon: DaemonProcess, prefix: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{daemon.admin}/metrics") as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith(prefix)]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_a_vnf_finds_the_daemon_of_its_host(daemon: DaemonProcess) -> None:
    for environment in (
        {"TREECAST_STARE": daemon.ready["stare"]},
        {"TREECAST_RUNTIME_DIR": str(daemon.runtime_dir)},
    ):
        with stare.Vnf("x", environment=environment) as vnf:
            assert vnf.state("a/b") == vnf.state("a/b") != vnf.state("a")


async def test_vnfs_of_one_host_need_no_network(daemon: DaemonProcess) -> None:
    address = daemon.address("stare")
    async with await stare.connect("x", address) as one, await stare.connect("y", address) as two:
        state = await two.state("shared")
        await one.publish(state, b"before")
        assert not await two.subscribe(state)  # there is no switch
        updates = aiter(two)
        assert (await asyncio.wait_for(anext(updates), PATIENCE)).value == b"before"
        for number in range(100):
            one.publish_soon(state, b"%d" % number)
        found = [await asyncio.wait_for(anext(updates), PATIENCE) for _ in range(100)]
        assert [(u.vnf, u.number, u.value) for u in found] == [
            (one.id, 1 + number, b"%d" % number) for number in range(100)
        ]
        with pytest.raises(stare.StareError) as refused:
            await one.publish(state, bytes(one.largest + 1))
        assert refused.value.code is stare.Code.TOO_LARGE


def test_states_come_from_another_host_small_and_large(hosts: list[DaemonProcess]) -> None:
    with (
        stare.Vnf("x", hosts[0].address("stare")) as one,
        stare.Vnf("y", hosts[1].address("stare")) as two,
    ):
        state = one.state("shared/x")
        assert two.state("shared/x") == state
        assert one.id != two.id
        two.subscribe(state)
        large = bytes(range(256)) * 1000
        values = [b"small", large, *(json.dumps({"n": n}).encode() for n in range(200)), b"last"]
        numbers = [one.publish(state, value) for value in values]
        assert numbers == list(range(len(values)))
        found = until_value(two, one.id, b"last")
        assert [(u.number, u.value) for u in found] == list(enumerate(values))
        state_of_two = two.state("shared/y")
        two.publish(state_of_two, b"back")
        one.subscribe(state_of_two)
        until_value(one, two.id, b"back")
        assert metrics(hosts[0], "treecast_replicas_updates")["treecast_replicas_updates_total"] > 200


def test_a_subscriber_that_comes_late_gets_the_last_value(hosts: list[DaemonProcess]) -> None:
    with stare.Vnf("x", hosts[1].address("stare")) as one:
        state = one.state("late")
        for number in range(10):
            one.publish(state, b"%d" % number)
        with stare.Vnf("y", hosts[0].address("stare")) as two:
            two.subscribe(state)
            until_value(two, one.id, b"9")


def test_daemons_that_restart(hosts: list[DaemonProcess]) -> None:
    """The subscriber's daemon restarts first, then the one with replica controller and coordinator: no last
    value is lost."""
    with stare.Vnf("x", hosts[0].address("stare")) as one:
        state = one.state("s")
        one.publish(state, b"0")
        with stare.Vnf("y", hosts[1].address("stare")) as two:
            two.subscribe(state)
            until_value(two, one.id, b"0")
            hosts[1].kill()
            with pytest.raises(stare.ConnectionLost):
                two.publish(state, b"")
        one.publish(state, b"1")
        hosts[1].restart()
        with stare.Vnf("y", hosts[1].address("stare")) as two:
            assert two.state("s") == state
            two.subscribe(state)
            until_value(two, one.id, b"1")
            two.publish(state, b"of two")
            hosts[0].kill()
            hosts[0].restart()
            with stare.Vnf("z", hosts[0].address("stare")) as three:
                assert three.id not in (one.id, two.id)
                three.subscribe(state)
                until_value(three, two.id, b"of two")
                two.publish(state, b"more")
                until_value(three, two.id, b"more")


@pytest.fixture
def raw(daemon: DaemonProcess) -> Iterator[socket.socket]:
    with socket.create_connection(daemon.address("stare")) as sock:
        sock.settimeout(PATIENCE)
        yield sock


def test_garbage_is_answered_and_harms_nobody(daemon: DaemonProcess, raw: socket.socket) -> None:
    with stare.Vnf("x", daemon.address("stare")) as vnf:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := raw.recv(1000):
                answer += piece
        assert b"a frame of" in answer
        assert vnf.state("still/there")
