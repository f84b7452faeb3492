"""Switches that forget memberships: multicast stops for one host or for all, while unicast goes on.

The relay of a link drops UDP to groups in the direction of a host (`Impairment.forgets`).
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import inside

kafka = pytest.importorskip("kafka")

HOSTS = ("a", "b", "c", "d")
TOPIC = "readings"
PATIENCE = 90.0  # seconds until a test gives up; nothing is asserted about it
GROUP = "ip-multicast"
DIGITS = tuple([b"%d" % digit for digit in range(10)])

LAN = "\n".join(
    [f"[hosts.{host}]" for host in HOSTS]
    + ["[bridges.lan]"]
    + [f'[[links]]\nbetween = ["{host}", "lan"]\nrelay = true' for host in HOSTS]
)


class Cluster:
    """A daemon on each host; `a` has the coordinator, leads the topic and publishes."""

    def __init__(self, made: Lab, folder: Path, *options: str, ipv6: bool = False) -> None:
        self.lab, self.folder, self.ipv6 = made, folder, ipv6
        for host in HOSTS:
            self._start(host, options)
        with self.client() as client:
            client.create_topic(TOPIC, 1, leaders=["a"])

    def ip(self, host: str) -> str:
        return f"[{self.lab.ipv6(host)}]" if self.ipv6 else self.lab.ipv4(host)

    def _start(self, host: str, options: tuple[str, ...]) -> None:
        ip = self.ip(host)
        command = [sys.executable, "-m", "treecast.middleware.cli", "up", "--name", host, *options]
        command += ["--data", str(self.folder / host), "--admin", "off", "--stare", "off", "--amqp", "off"]
        command += ["--kafka", f"{ip}:9092", "--mqtt", f"{ip}:1883"]
        command += ["--control", f"{ip}:7671", "--fabric", f"{ip}:7672"]
        if host != "a":
            token = self.folder / "a" / "join-token"
            command += ["--join", f"{self.ip('a')}:7671", "--join-token", f"@{token}"]
        started = self.lab.start(host, *command)
        assert started.stdout is not None
        assert select.select([started.stdout], [], [], PATIENCE)[0], "nothing was printed"
        assert started.stdout.readline().decode().startswith("ready ")

    @contextlib.contextmanager
    def client(self) -> Iterator[DaemonClient]:
        with DaemonClient(f"unix:{self.lab.folder / 'a' / 'run' / 'control.sock'}") as client:
            yield client

    def forget(self, *hosts: str) -> None:
        for host in hosts:
            self.lab.link(host, "lan").forget_groups("backward")

    def learn(self, *hosts: str) -> None:
        for host in hosts:
            self.lab.link(host, "lan").learn_groups("backward")

    def carriers(self) -> list[dict[str, str]]:
        """The carrier of each receiver, of the streams of `a` that all other hosts receive."""
        with self.client() as client:
            streams = [one.accounts for one in client.list_streams() if one.outgoing]
        found = [{account.host: account.carrier for account in one if account.carrier} for one in streams]
        return [one for one in found if len(one) == len(HOSTS) - 1]

    def until(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < end, (self.carriers(), self.problems())
            time.sleep(0.1)

    def problems(self) -> str:
        with self.client() as client:
            return "\n".join(client.status().problems)

    def told(self, *command: str) -> str:
        done = self.lab.run("a", sys.executable, "-m", "treecast.middleware.cli", *command, check=False)
        return done.stdout

    def reader(self, host: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "treecast.middleware.cli", "consume", TOPIC, "--beginning", "--json"]
        return self.lab.start(host, *command, "--kafka", f"{self.ip(host)}:9092")

    def subscriber(self, host: str, qos: int) -> subprocess.Popen[bytes]:
        """Returns when it has subscribed."""
        options = ("-d", "-q", str(qos), "-t", "s/#", "-F", "%p")
        process = self.lab.start(host, "stdbuf", "-oL", "mosquitto_sub", *self.mqtt(host), *options)
        assert process.stdout is not None
        while line := process.stdout.readline():
            if line.startswith(b"Subscribed"):
                return process
        raise AssertionError("it has ended")

    def mqtt(self, host: str) -> tuple[str, ...]:
        return ("-h", self.ip(host).strip("[]"), "-V", "mqttv5")

    def publish(self, first: int, count: int, pause: float, qos: int = 1) -> None:
        """Publishes numbers to the Kafka topic and to the MQTT topic."""
        numbers = range(first, first + count)
        command = ("mosquitto_pub", *self.mqtt("a"), "-q", str(qos), "-t", "s/x", "-l")
        process = self.lab.start("a", *command, stdin=subprocess.PIPE)
        process.communicate("".join(f"{number}\n" for number in numbers).encode(), timeout=PATIENCE)
        assert process.returncode == 0
        inside(self.lab.namespace("a"), lambda: self._produce(numbers, pause))

    def _produce(self, numbers: range, pause: float) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=f"{self.ip('a')}:9092")
        for number in numbers:
            producer.send(TOPIC, b"%d" % number).get(PATIENCE)
            time.sleep(pause)
        producer.close()


def read(process: subprocess.Popen[bytes], count: int) -> list[int]:
    """Returns the numbers that a reader or subscriber prints."""
    assert process.stdout is not None
    found: list[int] = []
    given_up = threading.Timer(PATIENCE, process.kill)  # readline then returns an empty line
    given_up.start()
    while len(found) < count:
        line = process.stdout.readline()
        assert line, found
        if line.startswith((b"{", *DIGITS)):  # else a word of mosquitto_sub about what it does
            value = json.loads(line)
            found.append(int(value["value"] if isinstance(value, dict) else value))
    given_up.cancel()
    return found


def grouped(cluster: Cluster) -> int:
    """Publishes until both streams of `a` use the group for all receivers. Returns how many were sent."""

    sent, end = 0, time.monotonic() + PATIENCE
    while cluster.carriers() != 2 * [dict.fromkeys(HOSTS[1:], GROUP)]:
        assert time.monotonic() < end, cluster.carriers()
        cluster.publish(sent, 5, 0.02)
        sent += 5
    return sent


@pytest.mark.parametrize("ipv6", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_port_that_forgets_its_memberships_gets_unicast_until_it_knows_them_again(
    lab: StartLab, tmp_path: Path, require_tool: Callable[[str], str], ipv6: bool
) -> None:
    require_tool("mosquitto_sub")
    cluster = Cluster(lab(LAN), tmp_path, ipv6=ipv6)
    readers = [cluster.reader(host) for host in HOSTS[1:]]
    subscribers = [cluster.subscriber(host, 1) for host in HOSTS[1:]]
    sent = grouped(cluster)
    assert "not reach" not in cluster.problems()

    cluster.forget("d")
    cluster.publish(sent, 100, 0.02)
    sent += 100
    alone = {"b": GROUP, "c": GROUP, "d": "unicast"}
    cluster.until(lambda: cluster.carriers() == 2 * [alone])
    cluster.until(lambda: "not reach d, but 2 other hosts" in cluster.problems())
    querier = f"is there an {'MLD' if ipv6 else 'IGMP'} querier"
    for command in (("status",), ("doctor",), ("explain", "--topic", TOPIC), ("streams",)):
        cluster.until(lambda command=command: querier in cluster.told(*command))

    cluster.learn("d")
    cluster.until(lambda: cluster.carriers() == 2 * [dict.fromkeys(HOSTS[1:], GROUP)])
    cluster.until(lambda: "not reach" not in cluster.problems())
    cluster.publish(sent, 20, 0.0)
    sent += 20
    for one in (*readers, *subscribers):
        assert read(one, sent) == list(range(sent))


@pytest.mark.parametrize("qos", [pytest.param(0, marks=pytest.mark.nightly), 1])
def test_quiet_topics_leave_a_group_that_reaches_nobody(
    lab: StartLab, tmp_path: Path, require_tool: Callable[[str], str], qos: int
) -> None:
    """A switch without a querier: nothing but heartbeats is sent until all is by unicast."""
    require_tool("mosquitto_sub")
    cluster = Cluster(lab(LAN), tmp_path)
    readers = [cluster.reader(host) for host in HOSTS[1:]]
    subscribers = [cluster.subscriber(host, qos) for host in HOSTS[1:]]
    sent = grouped(cluster)
    cluster.forget(*HOSTS)
    cluster.until(lambda: cluster.carriers() == 2 * [dict.fromkeys(HOSTS[1:], "unicast")])
    cluster.until(lambda: "reaches no host of b, c, d" in cluster.problems())
    cluster.publish(sent, 5, 0.0, qos)
    sent += 5
    for one in (*readers, *subscribers):
        assert read(one, sent) == list(range(sent))
