"""Bad input between hosts: two daemons of a cluster continue, count it by reason, and do not grow.

In each test records go from one host to the other the whole time; at the end the other has them all, once, in
order, at the acknowledged offsets.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.wire.segment import HEADER_SIZE, KeyRing, Kind, Segment, encode

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.fault

MIB = 1 << 20
TOPIC = "load"
FABRIC = ("--fabric", "127.0.0.1:0")
PATIENCE_S = 60.0
UNREAD = 32 * 1024  # bytes with the kernel's overhead: far below the default of net.core.rmem_max
_UDP_HEADERS = 14 + 20 + 8  # Ethernet, IPv4 without options, UDP


class Flow(threading.Thread):
    """Produces at the first host and reads at the second until it is told to end."""

    def __init__(self, first: DaemonProcess, second: DaemonProcess) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": first.kafka, "enable.idempotence": True, "linger.ms": 1}
        self._producer = confluent_kafka.Producer(settings)
        self._reader = confluent_kafka.Consumer(
            {"bootstrap.servers": second.kafka, "group.id": "unused", "fetch.wait.max.ms": 50}
        )
        self._reader.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        self._over = threading.Event()
        self.acknowledged: list[tuple[int, bytes]] = []
        self.read: list[tuple[int, bytes]] = []

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            for _ in range(20):
                self._producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=self._told)
                number += 1
            self._producer.poll(0)
            self._take(0.01)
        self._producer.flush(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while len(self.read) < len(self.acknowledged) and time.monotonic() < deadline:
            self._take(0.1)
        self._take(0.5)
        self._reader.close()

    def _told(self, error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        self.acknowledged.append((message.offset(), message.value()))

    def _take(self, seconds: float) -> None:
        self.read += [(m.offset(), m.value()) for m in self._reader.consume(1000, seconds) if not m.error()]

    def check(self) -> None:
        self._over.set()
        self.join(3 * PATIENCE_S)
        assert self.acknowledged
        assert self.read == sorted(self.acknowledged)


class Pair:
    """Two daemons, their counters, and their memory."""

    def __init__(self, first: DaemonProcess, second: DaemonProcess) -> None:
        self.first = first
        self.second = second

    def counts(self, family: str) -> dict[str, float]:
        """Returns a counter of the second host, by reason."""
        text = urllib.request.urlopen(f"http://{self.second.admin}/metrics", timeout=30).read().decode()
        return {
            sample.labels.get("reason", ""): sample.value
            for metric in text_string_to_metric_families(text)
            for sample in metric.samples
            if sample.name == family
        }

    def resident(self) -> int:
        [line] = [
            line
            for line in Path(f"/proc/{self.second.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        ]
        return int(line.split()[1]) * 1024

    def logged(self) -> int:
        return self.second.log().count("\n")


@pytest.fixture
def pair(start_daemon: Callable[..., DaemonProcess]) -> Iterator[Pair]:
    first = start_daemon("--name", "a", *FABRIC)
    token = ("--join-token", f"@{first.data / 'join-token'}")
    pair = Pair(first, start_daemon("--name", "b", *FABRIC, "--join", first.control, *token))
    command = [sys.executable, "-m", "treecast.middleware.cli", "topics", "create", TOPIC]
    subprocess.run([*command, "--leader", "a", "--control", first.control], check=True, capture_output=True)
    flow = Flow(first, pair.second)
    flow.start()
    until(lambda: len(flow.read) >= 100, "records flow")
    lines, size = pair.logged(), pair.resident()
    yield pair
    flow.check()
    assert pair.second.running
    assert pair.logged() - lines < 150
    assert pair.resident() - size < 64 * MIB


def datagrams(pair: Pair, packets: list[bytes]) -> None:
    """Sends to the second host's fabric, no faster than it receives."""
    address = pair.second.address("fabric")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for packet in packets:
            sock.sendto(packet, address)
            until(lambda: unread(address[1]) < UNREAD, "the host reads its packets")
        until(lambda: unread(address[1]) == 0, "the host reads its last packets")


def unread(port: int) -> int:
    """Returns the bytes of packets that the kernel keeps for a UDP port; beyond its bound it drops them."""
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return sum(int(row[4].split(":")[1], 16) for row in rows if int(row[1].split(":")[1], 16) == port)


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:.0f} s"
        time.sleep(0.005)


def forged(rng: random.Random, keys: KeyRing) -> bytes:
    """Returns a segment that claims to be from the first host, far ahead in its first streams."""
    kind = rng.choice([Kind.DATA, Kind.REPAIR])
    sequence = rng.choice([0, rng.randrange(10_000), 2**40])
    segment = Segment(kind, 1, rng.randrange(4), rng.randrange(3), sequence, 1, 0, 1, 1, b"forged")
    return encode(segment, keys)


def test_garbage_in_packets(pair: Pair) -> None:
    rng = random.Random(1)
    datagrams(pair, [rng.randbytes(rng.choice([0, 1, HEADER_SIZE, 1000, 9000])) for _ in range(5000)])
    assert sum(pair.counts("treecast_fabric_refused_total").values()) > 0


def test_forged_and_truncated_segments(pair: Pair) -> None:
    rng = random.Random(2)
    whole = [forged(rng, KeyRing({1: rng.randbytes(32)}, 1)) for _ in range(2000)]
    bare = [forged(rng, KeyRing({}, None)) for _ in range(2000)]
    cut = [segment[: rng.randrange(len(segment))] for segment in whole]
    datagrams(pair, whole + bare + cut)
    counted = pair.counts("treecast_fabric_refused_total")
    assert counted["FORGED"] + counted.get("UNKNOWN_KEY", 0) >= 2000
    assert counted["UNAUTHENTICATED"] >= 1000
    assert counted["TOO_SHORT"] + counted.get("TRUNCATED", 0) > 0


def test_replayed_packets(pair: Pair, require: Callable[[object, str], None]) -> None:
    require(sys.platform == "linux" and os.geteuid() == 0, "listening to loopback's packets needs root")
    captured = capture(pair.second.address("fabric")[1], 200)
    datagrams(pair, captured * 20)
    assert pair.counts("treecast_fabric_received_packets_total")[""] >= 2000


def capture(port: int, count: int) -> list[bytes]:
    """Captures the payloads of `count` UDP packets to `port` on loopback."""
    found: list[bytes] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as sock:
        sock.bind(("lo", 0))
        sock.settimeout(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            frame = sock.recv(65535)
            udp = len(frame) > _UDP_HEADERS and frame[12:14] == b"\x08\0" and frame[23] == 17
            if udp and int.from_bytes(frame[36:38]) == port:
                found.append(frame[_UDP_HEADERS:])
    assert found, "no packet was seen"
    return found


def test_garbage_in_the_channel(pair: Pair) -> None:
    rng = random.Random(3)
    for _ in range(100):
        sock = socket.create_connection(pair.second.address("fabric"), timeout=30)
        with sock, contextlib.suppress(ConnectionError):
            sock.sendall(rng.randbytes(rng.randrange(1, 20_000)))
    silent = [socket.create_connection(pair.second.address("fabric"), timeout=30) for _ in range(300)]
    problems = "treecast_channel_problems_total"
    until(lambda: sum(pair.counts(problems).values()) > 0, "a connection is refused")
    for sock in silent:
        sock.close()


def test_a_host_of_another_cluster(pair: Pair, start_daemon: Callable[..., DaemonProcess]) -> None:
    """It has the address and a token, but one of its own cluster: both ends refuse it with a reason."""
    other = start_daemon("--name", "c", *FABRIC)
    token = ("--join-token", f"@{other.data / 'join-token'}")
    stranger = start_daemon("--name", "d", *FABRIC, "--join", pair.first.control, *token, start=False)
    stranger.start(wait=False)
    assert stranger.process.wait(PATIENCE_S) != 0
    assert "cluster" in stranger.log()
