"""Daemons on the hosts of one switch, with their faces on loopback, for tests that change the LAN."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from treecast.middleware.dataplane.lab.lab import Lab

PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it
KAFKA, MQTT, CONTROL, FABRIC = 9092, 1883, 7671, 7672


def switch(hosts: Sequence[str], more: str = "") -> str:
    """Returns a lab of hosts on a bridge with snooping. `more`: further lines of each link."""
    links = [f'[[links]]\nbetween = ["{host}", "lan"]\n{more}' for host in hosts]
    return "\n".join([*(f"[hosts.{host}]" for host in hosts), "[bridges.lan]", *links])


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class LanHosts:
    """A daemon on each host; the first has the coordinator. `flags`: further ones of all."""

    def __init__(self, made: Lab, folder: Path, hosts: Sequence[str], flags: Sequence[str] = ()) -> None:
        self.lab, self.folder, self.hosts, self.flags = made, folder, hosts, flags
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def log(self, host: str) -> str:
        return (self.folder / f"{host}.log").read_text()

    def start(self, host: str, **instead: str) -> None:
        """Returns when it is ready. `instead`: values of flags."""
        ip, first = self.lab.ipv4(host), self.hosts[0]
        given = {
            "name": host,
            "data": str(self.folder / host),
            "kafka": f"127.0.0.1:{KAFKA}",
            "mqtt": f"127.0.0.1:{MQTT}",
            "control": f"{ip}:{CONTROL}",
            "fabric": f"{ip}:{FABRIC}",
            **dict.fromkeys(("amqp", "stare", "admin"), "off"),
        }
        if host != first:
            given |= {"join": f"{self.lab.ipv4(first)}:{CONTROL}"}
            given |= {"join-token": f"@{self.folder / first / 'join-token'}"}
        given |= {name.replace("_", "-"): value for name, value in instead.items()}
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        with (self.folder / f"{host}.log").open("ab") as log:
            program = (sys.executable, "-m", "treecast.middleware.cli", "up", *words, *self.flags)
            self.daemons[host] = process = self.lab.start(host, *program, stderr=log)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready "), self.log(host)

    def stop(self, host: str) -> None:
        """Returns when it has ended in order."""
        process = self.daemons.pop(host)
        process.terminate()
        assert process.wait(PATIENCE) == 0, self.log(host)

    def ask(self, host: str, *words: str) -> Any:
        """Returns the JSON of a `treecast` command at a host; None if it fails."""
        done = self.command(host, *words, "--json")
        return json.loads(done.stdout) if done.stdout.startswith(("{", "[")) else None

    def command(self, host: str, *words: str) -> subprocess.CompletedProcess[str]:
        program = (sys.executable, "-m", "treecast.middleware.cli")
        return self.lab.run(host, *program, *words, check=False, timeout=PATIENCE)

    def found(self, host: str) -> dict[str, list[tuple[str, str]]]:
        """Returns doctor's findings, (level, detail) by check."""
        by: dict[str, list[tuple[str, str]]] = {}
        for one in self.ask(host, "doctor") or []:
            by.setdefault(one["check"], []).append((one["level"], one["detail"]))
        return by

    # --- MQTT

    def subscribe(self, host: str, topic: str, count: int) -> subprocess.Popen[bytes]:
        """Starts mosquitto_sub for `count` messages; returns when it is subscribed."""
        words = ["-h", "127.0.0.1", "-V", "mqttv5", "-q", "1", "-t", topic, "-d", "-F", "%t %p"]
        limits = ["-C", str(count), "-W", str(int(PATIENCE))]
        process = self.lab.start(host, "stdbuf", "-oL", "mosquitto_sub", *words, *limits)
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith(b"Subscribed"):
            assert line, "it has ended"
        return process

    def publish(self, host: str, topic: str, payloads: Sequence[str]) -> None:
        """Publishes with QoS 1; returns when all are acknowledged."""
        words = ["mosquitto_pub", "-h", "127.0.0.1", "-V", "mqttv5", "-q", "1", "-l", "-t", topic]
        process = self.lab.start(host, *words, stdin=subprocess.PIPE)
        process.communicate("".join(f"{payload}\n" for payload in payloads).encode(), timeout=PATIENCE)
        assert process.returncode == 0


def received(subscriber: subprocess.Popen[bytes], topic: str) -> list[str]:
    """Returns the payloads, once the subscriber has all that it waits for."""
    out, _ = subscriber.communicate(timeout=2 * PATIENCE)
    start = f"{topic} "
    return [line[len(start) :] for line in out.decode().splitlines() if line.startswith(start)]
