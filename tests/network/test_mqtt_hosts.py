"""MQTT over three daemons in network namespaces, on links that lose and reorder, and on a link that is
cut."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

from treecast.middleware.dataplane.lab.lab import Lab

HOSTS = ("h1", "h2", "h3")
PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it


def topology(*, h1: str = "", h2: str = "", h3: str = "") -> str:
    """Returns three hosts on a bridge; arguments add settings of a host's link."""
    links = {"h1": h1, "h2": h2, "h3": h3}
    said = [f'[[links]]\nbetween = ["{host}", "lan"]\n{more}\n' for host, more in links.items()]
    return "\n".join([*(f"[hosts.{host}]" for host in links), "[bridges.lan]", *said])


BAD = topology(h1="relay = true", h2='loss = "1%"\nreorder = "2%"', h3='loss = "1%"\nduplicate = "2%"')
COUNT = 300


def line_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().decode()  # daemons and clients that cannot continue end by themselves
    assert line, "it has ended"
    return line


class Cluster:
    """A daemon on each host of a lab; the first has the coordinator."""

    def __init__(self, made: Lab, folder: Path) -> None:
        self.lab = made
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        for host in HOSTS:
            self.start(host)

    def start(self, host: str) -> None:
        data, ip = self.folder / host, self.lab.ipv4(host)
        command = [sys.executable, "-m", "treecast.middleware.cli", "up", "--name", host, "--data", str(data)]
        command += [
            "--kafka",
            "off",
            "--admin",
            "off",
            "--stare",
            "off",
            "--amqp",
            "off",
            "--mqtt",
            f"{ip}:1883",
        ]
        command += ["--control", f"{ip}:7671", "--fabric", f"{ip}:7672"]
        if host != HOSTS[0]:
            token = self.folder / HOSTS[0] / "join-token"
            command += ["--join", f"{self.lab.ipv4(HOSTS[0])}:7671", "--join-token", f"@{token}"]
        self.daemons[host] = self.lab.start(host, *command)
        assert line_of(self.daemons[host]).startswith("ready ")

    def kill(self, host: str) -> None:
        self.daemons[host].send_signal(signal.SIGKILL)
        self.daemons[host].wait(PATIENCE)

    def at(self, host: str) -> list[str]:
        return ["-h", self.lab.ipv4(host), "-V", "mqttv5"]

    def subscribe(self, host: str, *options: str, count: int) -> subprocess.Popen[bytes]:
        """Starts mosquitto_sub; returns when its SUBACK has arrived."""
        command = ["stdbuf", "-oL", "mosquitto_sub", *self.at(host), "-d", "-F", "%t %p", "-C", str(count)]
        command += ["-W", str(int(PATIENCE))]
        process = self.lab.start(host, *command, *options)
        while not line_of(process).startswith("Subscribed"):
            pass
        return process

    def publish(self, host: str, topic: str, payloads: Sequence[str], qos: int) -> None:
        """Publishes all with one client; returns when all are acknowledged."""
        command = ["mosquitto_pub", *self.at(host), "-t", topic, "-q", str(qos), "-l"]
        process = self.lab.start(host, *command, stdin=subprocess.PIPE)
        process.communicate("".join(f"{payload}\n" for payload in payloads).encode(), timeout=PATIENCE)
        assert process.returncode == 0

    def account(self, host: str, of: str) -> tuple[int, int, int]:
        """Returns records addressed to `of` by `host`, delivered, and outstanding, over all runs, as in
        `treecast streams`."""
        done = self.lab.run(host, sys.executable, "-m", "treecast.middleware.cli", "streams", "--json")
        rows = [row for stream in json.loads(done.stdout) for row in stream["accounts"] if row["host"] == of]
        delivered = sum(row["live"] + row["repaired"] + row["replayed"] for row in rows)
        return sum(row["addressed"] for row in rows), delivered, sum(row["outstanding"] for row in rows)

    def closes(self, host: str, of: str, records: int) -> None:
        """Waits until every record was addressed once and delivered."""
        deadline = time.monotonic() + PATIENCE
        while (found := self.account(host, of)) != (records, records, 0):
            assert time.monotonic() < deadline, found
            time.sleep(0.5)


def shown(subscriber: subprocess.Popen[bytes], topic: str) -> list[str]:
    """Returns the received payloads, once the subscriber has everything that it waits for."""
    out, _ = subscriber.communicate(timeout=PATIENCE)
    lines = out.decode().splitlines()
    return [line.removeprefix(f"{topic} ") for line in lines if line.startswith(f"{topic} ")]


@pytest.fixture
def cluster(lab: StartLab, tmp_path: Path, require_tool: Callable[[str], str]) -> Callable[[str], Cluster]:
    require_tool("mosquitto_sub")
    return lambda described: Cluster(lab(described), tmp_path)


def test_three_hosts_on_bad_links(cluster: Callable[[str], Cluster]) -> None:
    """Every subscriber gets every message, once and in order, whatever host it is published at."""
    made = cluster(BAD)
    topics = {host: f"from/{host}" for host in HOSTS}
    subscribers = {host: made.subscribe(host, "-t", "from/+", "-q", "2", count=3 * COUNT) for host in HOSTS}
    payloads = [str(number) for number in range(COUNT)]
    for qos, (host, topic) in enumerate(topics.items()):
        made.publish(host, topic, payloads, qos)
    for subscriber in subscribers.values():
        out = subscriber.communicate(timeout=PATIENCE)[0].decode().splitlines()
        for topic in topics.values():
            assert [line.split()[1] for line in out if line.startswith(topic)] == payloads


def test_a_host_that_is_cut_off_gets_what_it_missed(cluster: Callable[[str], Cluster]) -> None:
    """No other host waits for it."""
    made = cluster(BAD)
    near = made.subscribe("h2", "-t", "t", "-q", "1", count=2 * COUNT)
    far = made.subscribe("h3", "-t", "t", "-q", "1", count=2 * COUNT)
    payloads = [str(number) for number in range(2 * COUNT)]
    made.publish("h1", "t", payloads[:COUNT], 1)
    made.lab.link("h3", "lan").cut()
    made.publish("h1", "t", payloads[COUNT:], 1)
    assert shown(near, "t") == payloads
    made.lab.link("h3", "lan").heal()
    assert shown(far, "t") == payloads


def test_both_ends_are_killed(cluster: Callable[[str], Cluster]) -> None:
    """Messages acknowledged at a host that is then killed reach a session that was away. The account
    agrees."""
    made = cluster(BAD.replace('"1%"', '"0%"'))
    session = ["-i", "lasting", "-c", "-x", "3600", "-t", "t", "-q", "2"]
    first = made.subscribe("h2", *session, count=1)
    made.publish("h3", "t", ["0"], 2)
    assert shown(first, "t") == ["0"]
    made.kill("h2")
    payloads = [str(number) for number in range(1, COUNT)]
    made.publish("h3", "t", payloads, 2)
    made.kill("h3")
    made.start("h2")
    again = made.subscribe("h2", *session, count=COUNT - 1)
    made.start("h3")
    assert shown(again, "t") == payloads
    made.closes("h3", "h2", COUNT)


ROUNDS = 20
LARGE, EACH = 20, 20_000  # messages of a round, and bytes per message


def test_two_hosts_get_one_copy(cluster: Callable[[str], Cluster]) -> None:
    """By unicast there are two copies; once the rate has earned a group there is one. The sender's wire shows
    it in bytes."""
    made = cluster(topology())
    subscribers = [
        made.subscribe(host, "-t", "big", "-q", "1", "-F", "%t", "-W", "600", count=ROUNDS * LARGE)
        for host in HOSTS[1:]
    ]
    payload, copies = "x" * EACH, []
    for _ in range(ROUNDS):
        before = made.lab.counters("h1")["tx_bytes"]
        made.publish("h1", "big", [payload] * LARGE, 1)
        for subscriber in subscribers:
            for _ in range(LARGE):
                while line_of(subscriber) != "big\n":
                    pass
        copies.append((made.lab.counters("h1")["tx_bytes"] - before) / (LARGE * EACH))
        if copies[-1] < 1.3:
            break
        time.sleep(0.5)
    assert 1.0 < copies[-1] < 1.3, copies
