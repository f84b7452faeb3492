"""Three hosts with their daemons on one P4 switch, in network namespaces of this machine."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from treecast.middleware.dataplane.lab.description import Bridge, Description, Host, Link, Switch
from treecast.middleware.dataplane.lab.lab import Lab

from .places import VNFS

ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 60.0


class AmissError(Exception):
    """Something did not start."""


def description(design: str) -> Description:
    """Returns the lab. `design`: register, embedded, or bridge for a plain one."""
    hosts, links = dict.fromkeys(VNFS, Host()), tuple(Link((host, "s")) for host in VNFS)
    if design == "bridge":
        return Description(hosts=hosts, bridges={"s": Bridge()}, links=links)
    program = ROOT / "p4" / f"stare_{design}.p4"
    return Description(hosts=hosts, switches={"s": Switch(str(program))}, links=links)


def line_of(process: subprocess.Popen[bytes], seconds: float = _SECONDS) -> str:
    """Returns the next line of standard output. Raises AmissError if none comes."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], seconds)[0]:
        raise AmissError(f"{str(process.args)[-200:]} says nothing")
    return process.stdout.readline().decode()


def program_switch(lab: Lab, design: str) -> None:
    """Writes configuration, routes and groups; in the embedded design a controller stays."""
    routes = [
        f"--route={lab.ipv4(host)}/32={port},{lab.interface(host).mac}" for port, host in enumerate(VNFS, 1)
    ]
    own = str(lab.interface("h1").ipv4.network[-2])
    command = [sys.executable, "-m", "treecast.middleware.control.stare_switch", lab.p4runtime("s")]
    command += ["--design", design, "--ports", "1,2,3", "--mac", "02:00:00:00:00:fe", "--ip", own, *routes]
    if line_of(lab.start("s", *command)) != "ready\n":
        raise AmissError("the switch cannot be programmed")


def start_daemons(lab: Lab, folder: Path) -> None:
    """Starts one daemon on each host; the first has coordinator and replica controller."""
    first = next(iter(VNFS))
    for host in VNFS:
        ip = lab.ipv4(host)
        command = [sys.executable, "-m", "treecast.middleware.cli", "up", "--name", host]
        command += ["--data", str(folder / host), "--kafka", "off", "--admin", "off"]
        command += ["--control", f"{ip}:7671", "--fabric", f"{ip}:7672", "--log-level", "warning"]
        if host != first:
            token = folder / first / "join-token"
            command += ["--join", f"{lab.ipv4(first)}:7671", "--join-token", f"@{token}"]
        with (folder / f"{host}.log").open("wb") as log:
            if not line_of(lab.start(host, *command, stderr=log)).startswith("ready "):
                raise AmissError(f"{host} does not start:\n{(folder / f'{host}.log').read_text()}")


def start_vnf(lab: Lab, host: str, place: str, options: list[str]) -> subprocess.Popen[bytes]:
    """Starts a VNF as a process of the host; it prints `ready` once subscribed."""
    module = [sys.executable, "-m", "examples.mobility_tracking.vnf", "--place", place, *options]
    return lab.start(host, *module, stdin=subprocess.PIPE)


def switch_counts(lab: Lab, design: str) -> dict[str, Any]:
    """Returns counts of the switch's pipeline; empty for a bridge."""
    if design == "bridge":
        return {}
    path = lab.switch_stats("s")
    for pid in _pids_with(str(path)):
        os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + _SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    counts: dict[str, Any] = json.loads(path.read_text())["pipeline"]
    return counts


def _pids_with(word: str) -> list[int]:
    """Processes that have the word on their command line: the switch, by its file of counts."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in words and b"switch" in words:
                found.append(int(folder.name))
    return found
