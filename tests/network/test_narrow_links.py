"""Hosts on a LAN of which one has a smaller MTU: at its interface, or at its switch port only, which drops
longer frames silently. Records of Kafka and messages of MQTT that were acknowledged arrive, and operators are
told of the port."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.conftest import StartLab
from tests.network.lan import until

from treecast.middleware.dataplane.lab.lab import Lab

HOSTS = ("h1", "h2", "h3")
PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it
TREECAST = (sys.executable, "-m", "treecast.middleware.cli")
COUNT = 60
BYTES = 1230  # with its headers longer than a packet of 1,280 bytes, and not than one of 1,500


def lan(*mtus: int) -> str:
    """Three hosts on a bridge with these MTUs, at the interface and at the port alike."""
    links = [
        f'[[links]]\nbetween = ["{host}", "lan"]\nmtu = {mtu}\n'
        for host, mtu in zip(HOSTS, mtus, strict=True)
    ]
    return "\n".join([*(f"[hosts.{host}]" for host in HOSTS), "[bridges.lan]", *links])


class Site:
    """A daemon on each host of a lab; the first has the coordinator and leads the topic `t`."""

    def __init__(self, made: Lab, folder: Path, *, ipv6: bool = False, flags: tuple[str, ...] = ()) -> None:
        self.lab = made
        self.folder = folder
        self._ipv6 = ipv6
        self._flags = flags
        for host in HOSTS:
            self._start(host)
        self.treecast("h1", "topics", "create", "t", "--leader", "h1")

    def address(self, host: str) -> str:
        return f"[{self.lab.ipv6(host)}]" if self._ipv6 else self.lab.ipv4(host)

    def _start(self, host: str) -> None:
        ip = self.address(host)
        command = [*TREECAST, "up", "--name", host, "--data", str(self.folder / host), "--amqp", "off"]
        command += ["--kafka", f"{ip}:9092", "--mqtt", f"{ip}:1883", "--admin", "off", "--stare", "off"]
        command += ["--control", f"{ip}:7671", "--fabric", f"{ip}:7672", *self._flags]
        if host != HOSTS[0]:
            token = self.folder / HOSTS[0] / "join-token"
            command += ["--join", f"{self.address(HOSTS[0])}:7671", "--join-token", f"@{token}"]
        started = self.lab.start(host, *command)
        assert started.stdout is not None
        assert started.stdout.readline().decode().startswith("ready ")

    def treecast(self, host: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.lab.run(host, *TREECAST, *words, "--control", f"{self.address(host)}:7671", check=False)

    def listing(self, host: str, *words: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.treecast(host, *words, "--json").stdout)
        return found

    def narrow(self, host: str, mtu: int) -> None:
        """Makes the switch port of a host drop longer frames. The host's own interface stays as it is."""
        port = self.lab.end(host, "lan", "lan").interface
        self.lab.run("lan", "ip", "link", "set", port, "mtu", str(mtu))

    def subscribe(self, host: str) -> subprocess.Popen[bytes]:
        command = ["stdbuf", "-oL", "mosquitto_sub", "-h", self.address(host).strip("[]"), "-V", "mqttv5"]
        command += ["-q", "1", "-d", "-F", "%p", "-t", "s/#", "-C", str(COUNT), "-W", str(int(PATIENCE))]
        started = self.lab.start(host, *command)
        assert started.stdout is not None
        while not (line := started.stdout.readline()).startswith(b"Subscribed"):
            assert line
        return started

    def consume(self, host: str) -> subprocess.Popen[bytes]:
        command = [*TREECAST, "consume", "t", "--beginning", "-n", str(COUNT)]
        return self.lab.start(host, *command, "--kafka", f"{self.address(host)}:9092")

    def publish(self, size: int) -> list[str]:
        """Publishes by MQTT and Kafka at the first host; returns the payloads once all are acknowledged."""
        payloads = [f"{number} ".ljust(size, "x") for number in range(COUNT)]
        text = "".join(f"{payload}\n" for payload in payloads).encode()
        at = self.address("h1")
        mqtt = ["mosquitto_pub", "-h", at.strip("[]"), "-V", "mqttv5", "-q", "1", "-l", "-t", "s/x"]
        kafka = [*TREECAST, "produce", "t", "--kafka", f"{at}:9092"]
        for command in (mqtt, kafka):
            process = self.lab.start("h1", *command, stdin=subprocess.PIPE)
            process.communicate(text, timeout=PATIENCE)
            assert process.returncode == 0
        return payloads

    def problems(self, host: str) -> list[str]:
        found = self.listing(host, "status")["problems"]
        assert isinstance(found, list)
        return found

    def sent_again(self) -> int:
        """Bytes that the first host has sent as repairs and replays, to all hosts and in all streams."""
        streams = self.listing("h1", "streams")
        rows = streams if isinstance(streams, list) else streams["streams"]
        assert isinstance(rows, list)
        return sum(
            sent["bytes"] for row in rows for sent in row["sent"] if sent["purpose"] in ("repair", "replay")
        )

    def delivers(self, size: int) -> None:
        """Publishes, and checks that both other hosts get all of it, once and in order."""
        mqtt = {host: self.subscribe(host) for host in HOSTS[1:]}
        kafka = {host: self.consume(host) for host in HOSTS[1:]}
        payloads = self.publish(size)
        for process in (*mqtt.values(), *kafka.values()):
            lines = process.communicate(timeout=PATIENCE)[0].decode().splitlines()
            assert [line for line in lines if line.endswith("x")] == payloads


@pytest.fixture
def site(lab: StartLab, tmp_path: Path, require_tool: Callable[[str], str]) -> Callable[..., Site]:
    require_tool("mosquitto_sub")
    return lambda described, **more: Site(lab(described), tmp_path, **more)


def test_the_least_mtu_of_three_interfaces_is_used(site: Callable[..., Site]) -> None:
    made = site(lan(9000, 9000, 1500))
    made.delivers(3000)
    assert all(not made.problems(host) for host in HOSTS)
    assert made.treecast("h1", "doctor").returncode == 0


@pytest.mark.parametrize(
    "ipv6", [pytest.param(False, id="IPv4"), pytest.param(True, id="IPv6", marks=pytest.mark.nightly)]
)
def test_a_switch_port_that_drops_long_frames_is_found(site: Callable[..., Site], ipv6: bool) -> None:
    made = site(lan(1500, 1500, 1500), ipv6=ipv6)
    made.narrow("h3", 1280)
    made.delivers(BYTES)
    until(lambda: any("do not arrive at host h3" in text for text in made.problems("h1")), "no problem")
    assert made.sent_again() < 20 * COUNT * BYTES
    until(lambda: "do not arrive at host h3" in made.treecast("h1", "doctor").stdout, "doctor finds nothing")
    assert made.treecast("h1", "doctor").returncode == 1
    assert made.treecast("h1", "streams", "--check").returncode == 0
    until(
        lambda: "longer ones do not arrive at h3" in made.treecast("h1", "explain", "--topic", "t").stdout,
        "explain says nothing of it",
    )


def test_a_host_that_is_told_its_mtu_needs_no_search(site: Callable[..., Site]) -> None:
    made = site(lan(1500, 1500, 1500), flags=("--mtu", "1280"))
    made.narrow("h3", 1280)
    made.delivers(BYTES)
    assert not made.problems("h1")


def test_hosts_that_forward_to_hosts_reach_one_behind_a_narrow_port(site: Callable[..., Site]) -> None:
    made = site(lan(1500, 1500, 1500), flags=("--carrier", "relay", "--zone", "eu/berlin"))
    made.narrow("h3", 1280)
    made.delivers(BYTES)
