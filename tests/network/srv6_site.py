"""Three daemons on six SRv6 routers with a network controller, for tests."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from kafka import KafkaProducer
from tests.network.conftest import StartLab

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.dataplane.lab.description import Description, Host, Link, Switch
from treecast.middleware.dataplane.lab.namespaces import inside

PROGRAM = Path(__file__).resolve().parents[2] / "p4" / "srv6_replication.p4"
HOSTS = ("alpha", "beta", "gamma")
READERS = HOSTS[1:]
ROUTERS = ("r1", "r2", "r3", "r4", "r5", "r6")
# Two rows, r1 r2 r3 and r4 r5 r6. Any router without a host, and any link between routers, can be done
# without.
LINKS = (
    *(("alpha", "r1"), ("beta", "r3"), ("gamma", "r6")),
    *(("r1", "r2"), ("r2", "r3"), ("r4", "r5"), ("r5", "r6"), ("r1", "r4"), ("r2", "r5"), ("r3", "r6")),
)
BLOCK = "fcbb:bb00::"
TOPIC = "readings"
RECORD = b"x" * 1000
PATIENCE = 300.0  # seconds until a test gives up; nothing is asserted about it


def needed(require: Callable[[object, str], None], require_tool: Callable[[str], str]) -> None:
    """Skips a test, or fails it in CI, where these are not installed."""
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    require_tool("mosquitto_sub")


def line(process: subprocess.Popen[bytes]) -> str:
    """Returns the next line; it is empty at the end. Reads no byte more: `select` does not see buffers."""
    assert process.stdout is not None
    found = b""
    while not found.endswith(b"\n"):
        assert select.select([process.stdout], [], [], PATIENCE)[0], "nothing was printed"
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            break
        found += byte
    return found.decode()


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Fails with `what` if it does not come."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.1)


class Site:
    """A lab with its controller and daemons.

    `relayed`: the links that can be cut. `beside`: the routers of further hosts, which have no daemons, by
    name. `capacity`: of a link, for the controller; 0: trees ignore load.
    """

    carrier = "srv6"

    def __init__(
        self,
        start: StartLab,
        folder: Path,
        relayed: Sequence[tuple[str, str]] = (),
        *,
        beside: Mapping[str, str] = MappingProxyType({}),
        capacity: int = 0,
    ) -> None:
        self.folder = folder
        self.links = (*LINKS, *beside.items())
        self._beside = tuple(beside)
        self._capacity = capacity
        self.lab = start(
            Description(
                hosts=dict.fromkeys((*HOSTS, *beside), Host()),
                switches=dict.fromkeys(ROUTERS, Switch(str(PROGRAM))),
                links=tuple([Link(pair, relay=pair in relayed) for pair in self.links]),
            )
        )
        self.token = f"@{folder / 'alpha' / 'join-token'}"
        for host in HOSTS:
            self._route_sids(host)
        self.controller = self.start_controller()
        for host in HOSTS:
            self._start_daemon(host)

    def _route_sids(self, host: str) -> None:
        """Adds a route to the SIDs by any neighbour: a router accepts every frame."""
        other = next(one for one in HOSTS if one != host)
        route = ("ip", "-6", "route", "add", f"{BLOCK}/32", "via", self.lab.ipv6(other), "dev", "eth0")
        self.lab.run(host, *route)

    def start_controller(self) -> subprocess.Popen[bytes]:
        file = self.folder / "segments.toml"
        file.write_text(self._described())
        module = "treecast.middleware.control.segments"
        process = self.lab.start("alpha", sys.executable, "-m", module, str(file), "--token", self.token)
        assert line(process).startswith("ready ")
        return process

    def _described(self) -> str:
        lab = self.lab
        lines = [f"links = {json.dumps(self.links)}", f'block = "{BLOCK}"', "packet_life = 0.1", "look = 0.5"]
        lines += ["probe = 1.0", f"capacity = {self._capacity}", "[routers]"]
        lines += [f'{name} = "{lab.p4runtime(name)}"' for name in ROUTERS]
        for host in (*HOSTS, *self._beside):
            ip = lab.ipv6(host)
            lines += [f"[hosts.{host}]", f'address = "{ip}"', f'mac = "{lab.interface(host).mac}"']
            lines += [f'control = "[{ip}]:7671"'] if host in HOSTS else []
        return "\n".join(lines)

    def ip(self, host: str) -> str:
        return self.lab.ipv6(host)

    def url(self, host: str) -> str:
        """Returns a host's address as it stands before a port."""
        return f"[{self.ip(host)}]"

    def _start_daemon(self, host: str) -> None:
        ip = self.url(host)
        command = [sys.executable, "-m", "treecast.middleware.cli", "up", "--name", host]
        command += ["--data", str(self.folder / host), "--kafka", f"{ip}:9092", "--mqtt", f"{ip}:1883"]
        command += ["--admin", "off", "--stare", "off", "--amqp", "off"]
        command += ["--control", f"{ip}:7671", "--fabric", f"{ip}:7672", "--carrier", self.carrier]
        if host != HOSTS[0]:
            command += ["--join", f"{self.url(HOSTS[0])}:7671", "--join-token", self.token]
        assert line(self.lab.start(host, *command)).startswith("ready ")

    def control(self, host: str) -> DaemonClient:
        return DaemonClient(f"unix:{self.lab.folder / host / 'run' / 'control.sock'}")

    def create_topic(self) -> None:
        with self.control("alpha") as client:
            client.create_topic(TOPIC, 1, leaders=["alpha"])

    # --- trees

    def hosts_by_trees(self) -> int:
        """Returns the accounts of alpha's streams that are carried by trees, one for each stream and host."""
        with self.control("alpha") as client:
            found = [account for stream in client.list_streams() for account in stream.accounts]
        return sum(account.carrier == self.carrier for account in found)

    def ways(self, **message: str) -> list[pb.MessageWay]:
        """Returns how a message that is published at alpha goes to other hosts."""
        with self.control("alpha") as client:
            return [
                way for way in client.explain(pb.ExplainRequest(**message)).ways if way.carrier != "local"
            ]

    def received(self, links: Sequence[tuple[str, str]]) -> dict[tuple[str, str], tuple[int, int]]:
        """Returns bytes and packets that have arrived over each link, by the counters of its end."""
        found = {}
        for tail, head in links:
            pair = (tail, head) if (tail, head) in self.links else (head, tail)
            counters = self.lab.counters(head, self.lab.end(*pair, at=head).interface)
            found[tail, head] = counters["rx_bytes"], counters["rx_packets"]
        return found

    # --- clients

    def produce(self, count: int, first: int) -> None:
        def run() -> None:
            producer = KafkaProducer(bootstrap_servers=f"{self.url('alpha')}:9092")
            for number in range(first, first + count):
                producer.send(TOPIC, b"%d:" % number + RECORD)
            producer.flush(PATIENCE)
            producer.close()

        inside(self.lab.namespace("alpha"), run)

    def reader(self, host: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "treecast.middleware.cli", "consume", TOPIC, "--beginning", "--json"]
        return self.lab.start(host, *command, "--kafka", f"{self.url(host)}:9092")

    def publish(self, topic: str, count: int, first: int) -> None:
        """Publishes numbered messages of QoS 1; returns when all are acknowledged."""
        command = [
            "mosquitto_pub",
            "-h",
            self.ip("alpha"),
            "-V",
            "mqttv5",
            "-t",
            topic,
            "-q",
            "1",
            "-l",
        ]
        process = self.lab.start("alpha", *command, stdin=subprocess.PIPE)
        lines = [b"%d:" % number + RECORD + b"\n" for number in range(first, first + count)]
        process.communicate(b"".join(lines), timeout=PATIENCE)
        assert process.returncode == 0

    def subscribe(self, host: str, topic: str) -> Subscriber:
        """Starts mosquitto_sub; returns when its SUBACK has arrived."""
        command = ["stdbuf", "-oL", "mosquitto_sub", "-h", self.ip(host), "-V", "mqttv5", "-d"]
        return Subscriber(self.lab.start(host, *command, "-t", topic, "-q", "1", "-F", "message %p"))


class Subscriber:
    """mosquitto_sub. A thread reads what it prints: it sends no pings while a full pipe blocks it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._stdout = process.stdout
        while not self._stdout.readline().startswith(b"Subscribed"):
            assert process.poll() is None
        self._numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for text in self._stdout:
            if text.startswith(b"message "):
                self._numbers.put(int(text.split()[1].partition(b":")[0]))

    def heard(self, count: int) -> list[int]:
        """Returns the next `count` numbers of messages; fewer if no more come."""
        found: list[int] = []
        with contextlib.suppress(queue.Empty):
            while len(found) < count:
                found.append(self._numbers.get(timeout=PATIENCE))
        return found


def read(process: subprocess.Popen[bytes], count: int) -> list[int]:
    """Returns the next `count` numbers of records; an empty line, if no more come, fails the test."""
    assert process.stdout is not None
    given_up = threading.Timer(PATIENCE, process.kill)
    given_up.start()
    found = [int(json.loads(process.stdout.readline())["value"].partition(":")[0]) for _ in range(count)]
    given_up.cancel()
    return found


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE)


class Load:
    """Records and messages from alpha, in a thread, until it is ended: batches, with pauses between them."""

    def __init__(self, site: Site, batch: int, pause: float) -> None:
        self.sent = 0
        self._site = site
        self._batch = batch
        self._pause = pause
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            self._site.produce(self._batch, self.sent)
            self._site.publish("a/b", self._batch, self.sent)
            self.sent += self._batch

    def more(self, batches: int = 2) -> None:
        """Returns when that many more batches were acknowledged."""
        before = self.sent
        wait_until(lambda: self.sent >= before + batches * self._batch, "nothing is acknowledged any more")

    def end(self) -> int:
        """Returns how many records, and as many messages, were acknowledged."""
        self._ended.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.sent


@contextlib.contextmanager
def under_load(site: Site, batch: int = 100, pause: float = 0.0) -> Iterator[Load]:
    """Loads the site meanwhile; asserts that all readers and subscribers then have everything, in order."""
    site.create_topic()
    readers = [site.reader(host) for host in READERS]
    subscribers = [site.subscribe(host, "a/b") for host in READERS]
    load = Load(site, batch, pause)
    try:
        yield load
    finally:
        sent = load.end()
    for reader in readers:
        assert read(reader, sent) == list(range(sent))
    for subscriber in subscribers:
        assert subscriber.heard(sent) == list(range(sent))


def told(site: Site, beginning: str) -> str:
    """Returns the controller's next line that begins so."""
    found = ""
    while not found.startswith(beginning):
        found = line(site.controller)
        assert found, "the controller has ended"
    return found


def quiet(site: Site) -> list[str]:
    """Returns what the controller has said until now."""
    assert site.controller.stdout is not None
    found = []
    while select.select([site.controller.stdout], [], [], 0)[0]:
        found.append(line(site.controller))
        assert found[-1]
    return found


def on_trees(site: Site) -> None:
    """Waits until records and messages to both readers go by trees."""
    wait_until(lambda: site.hosts_by_trees() >= 2 * len(READERS), "streams do not go by trees")
