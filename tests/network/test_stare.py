"""Real daemons on a P4 switch of either design, in network namespaces: it forwards states, and acknowledges
them."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.network.conftest import StartLab
from tests.network.test_carriers import MESSAGES, carry, fabrics, in_host, stream
from tests.unit.fabric.edges import STREAM, join, leave, until

from treecast.middleware.dataplane.lab.description import Bridge, Description, Host, Link, Switch
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.fabric.carriers.stare import Stare
from treecast.middleware.fabric.settings import FabricSettings
from treecast.shims import stare

PROGRAMS = Path(__file__).resolve().parents[2] / "p4"
HOSTS = ("h1", "h2", "h3")
PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it
READY = 60.0


def built(lab: StartLab, design: str) -> Lab:
    """Builds three hosts on a switch, or on a plain bridge."""
    hosts, links = dict.fromkeys(HOSTS, Host()), tuple(Link((host, "s")) for host in HOSTS)
    if design == "bridge":
        return lab(Description(hosts=hosts, bridges={"s": Bridge(snooping=False)}, links=links))
    switch = Switch(str(PROGRAMS / f"stare_{design}.p4"))
    made = lab(Description(hosts=hosts, switches={"s": switch}, links=links))
    routes = [
        f"--route={address}={port},{made.interface(host).mac}"
        for port, host in enumerate(HOSTS, 1)
        for address in (f"{made.ipv4(host)}/32", f"{made.ipv6(host)}/128")
    ]
    command = [sys.executable, "-m", "treecast.middleware.control.stare_switch", made.p4runtime("s")]
    command += ["--design", design, "--ports", "1,2,3", "--mac", "02:00:00:00:00:fe"]
    controller = made.start("s", *command, "--ip", _own_address(made), *routes)
    assert _line(controller) == "ready\n"
    return made


def _own_address(made: Lab) -> str:
    """Returns the last address of the hosts' network."""
    return str(made.interface("h1").ipv4.network[-2])


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], READY)[0]
    return process.stdout.readline().decode()


def start_daemons(made: Lab, folder: Path) -> None:
    """Starts one daemon on each host; the first has the coordinator, the others start right after it."""
    started = []
    for host in HOSTS:
        data, ip = folder / host, made.ipv4(host)
        command = [sys.executable, "-m", "treecast.middleware.cli", "up", "--name", host, "--data", str(data)]
        command += ["--kafka", "off", "--admin", "off", "--stare", f"{ip}:65431", "--amqp", "off"]
        command += ["--control", f"{ip}:7671", "--fabric", f"{ip}:7672"]
        if host != HOSTS[0]:
            token = folder / HOSTS[0] / "join-token"
            command += ["--join", f"{made.ipv4(HOSTS[0])}:7671", "--join-token", f"@{token}"]
        started.append(made.start(host, *command))
        if host == HOSTS[0]:
            assert _line(started.pop()).startswith("ready ")
    for daemon in started:
        assert _line(daemon).startswith("ready ")


@contextlib.contextmanager
def vnfs(made: Lab, *hosts: str) -> Iterator[list[stare.Vnf]]:
    """Yields clients of this process, connected to the daemons' Unix sockets."""
    with contextlib.ExitStack() as opened:
        yield [
            opened.enter_context(
                stare.Vnf(host, environment={"TREECAST_RUNTIME_DIR": str(made.folder / host / "run")})
            )
            for host in hosts
        ]


def until_value(vnf: stare.Vnf, publisher: int, value: bytes) -> list[stare.Update]:
    found: list[stare.Update] = []
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        update = vnf.receive(1.0)
        if update is not None:
            found.append(update)
            if (update.vnf, update.value) == (publisher, value):
                return found
    pytest.fail(f"{value!r} did not come, but {found[-3:]}")


@pytest.mark.parametrize("design", ["register", "embedded", "bridge"])
def test_states_between_three_hosts(
    lab: StartLab, tmp_path: Path, design: str, require: Callable[[object, str], None]
) -> None:
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    made = built(lab, design)
    start_daemons(made, tmp_path)
    with vnfs(made, *HOSTS) as (one, two, three):
        state = one.state("shared/x")
        acknowledged = two.subscribe(state)
        assert acknowledged == (design != "bridge")
        assert three.subscribe(state) == acknowledged
        values = [b"first", bytes(range(256)) * 200, *(b"%d" % n for n in range(50)), b"last"]
        for value in values:
            one.publish(state, value)
        for vnf in (two, three):
            assert [update.value for update in until_value(vnf, one.id, b"last")] == values
        two.unsubscribe(state)
        one.publish(state, b"after")
        until_value(three, one.id, b"after")
        assert two.receive(0.2) is None
    if design != "bridge":
        assert _replicas(made) > 0


def _replicas(made: Lab) -> int:
    """Returns the number of copies that the switch has made."""
    path = made.switch_stats("s")
    pid = next(child.pid for child in made._children if str(path) in child.args and child.poll() is None)
    os.kill(pid, signal.SIGUSR1)
    end = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return int(json.loads(path.read_text())["pipeline"]["replicas"])


STATE = 5000


@pytest.mark.parametrize(("design", "ipv6"), [("register", False), ("register", True), ("embedded", True)])
async def test_streams_travel_by_the_stare_carrier(
    lab: StartLab, design: str, ipv6: bool, require: Callable[[object, str], None]
) -> None:
    """Segments have VNF id 0: the switch copies them to registered hosts only."""
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    made = await asyncio.to_thread(built, lab, design)
    settings = FabricSettings(stream=STREAM, carriers=("stare",))
    async with fabrics(made, *HOSTS, ipv6=ipv6, settings=settings) as at:
        heard: set[int] = set()
        fabric = at["h2"]
        in_host(made, "h2", lambda: join(fabric, STATE))
        fabric.on_probe = lambda *_: heard.add(2)
        carrier = fabric.carriers.named("stare")
        assert isinstance(carrier, Stare)
        await until(lambda: carrier.registered)
        origin, sinks = stream(at["h1"], fabric)
        await carry(origin, sinks, 1)
        at["h1"].send_probe("stare", STATE, 1, [2])
        await until(lambda: heard == {2})
        origin.use_carrier("stare", {2}, STATE)
        before = made.counters("h3")["rx_bytes"]
        await carry(origin, sinks)
        assert [peer.carrier for peer in origin.peers()] == ["stare"]
        assert fabric.state().carriers[1].name == "stare"
        assert made.counters("h3")["rx_bytes"] - before < 20_000  # h2 got a million
        leave(fabric, STATE)
        await until(lambda: not carrier.registered)
    assert _replicas(made) >= MESSAGES
