"""Bad MQTT clients against a real daemon: they end or wait, and never affect a neighbour."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault import mqtt_bad_clients as bad

from treecast.middleware.daemon.process import DaemonProcess
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Connect, FilterRequest, Ping, Publish, Subscribe, encode
from treecast.shims.mqtt.codec_properties import Properties

pytestmark = pytest.mark.fault

PATIENCE_S = 60.0
MIB = 1 << 20
QUEUE_BYTES = 2 * MIB


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    flags = ["--kafka", "off", "--admin", "off", "--mqtt", "127.0.0.1:0"]
    flags += ["--mqtt-queue-bytes", str(QUEUE_BYTES)]
    made = DaemonProcess(tmp_path_factory.mktemp("bad") / "data", flags)
    try:
        yield made.start()
    finally:
        if made.running:
            made.stop()
        print(made.clean_up())


def resident(daemon: DaemonProcess) -> int:
    """Returns the resident memory in bytes."""
    return int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) * 4096


_open: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


def raw(daemon: DaemonProcess) -> socket.socket:
    """Opens a connection that is closed when the test ends."""
    found = socket.create_connection(daemon.address("mqtt"), PATIENCE_S)
    _open.append(found)
    return found


def dial(daemon: DaemonProcess, name: str, version: int = V311, filter: str = "") -> socket.socket:
    """A connected client, with one subscription of QoS 0 if `filter` is given."""
    found = raw(daemon)
    found.sendall(encode(Connect(version, name), version))
    kind, size = found.recv(2, socket.MSG_WAITALL)
    assert kind == 0x20
    found.recv(size, socket.MSG_WAITALL)
    if filter:
        found.sendall(encode(Subscribe(1, (FilterRequest(filter.encode()),)), version))
        assert found.recv(5, socket.MSG_WAITALL)[:1] == b"\x90"
    return found


class Neighbour:
    """A publisher and a subscriber that must be served whatever other clients do."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._sub, self._pub = dial(daemon, "good-s", filter="good"), dial(daemon, "good-p")
        self._number = 0

    def check(self) -> None:
        self._number += 1
        packet = encode(Publish(b"good", b"%d" % self._number), V311)
        self._pub.sendall(packet)
        assert self._sub.recv(len(packet), socket.MSG_WAITALL) == packet


@pytest.fixture
def neighbour(daemon: DaemonProcess, _closed: None) -> Iterator[Neighbour]:
    made = Neighbour(daemon)
    made.check()
    yield made
    made.check()


def ended(client: socket.socket) -> bytes:
    """Reads everything until the daemon closes."""
    found = b""
    while True:
        try:
            piece = client.recv(65536)
        except ConnectionError:
            return found
        if not piece:
            return found
        found += piece


def test_a_client_that_never_reads_costs_its_queue_and_nobody_else(
    daemon: DaemonProcess, neighbour: Neighbour
) -> None:
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(daemon.address("mqtt"))
    deaf.sendall(encode(Connect(V311, "deaf"), V311))
    deaf.sendall(encode(Subscribe(1, (FilterRequest(b"flood"),)), V311))
    reader, publisher = dial(daemon, "reader", filter="flood"), dial(daemon, "flooder")
    packet = encode(Publish(b"flood", b"x" * 1000), V311)
    before = resident(daemon)
    rounds, each = 48, 1000
    for _ in range(rounds):
        publisher.sendall(packet * each)
        got = 0
        while got < each * len(packet):
            got += len(reader.recv(MIB))
        neighbour.check()
    grown = resident(daemon) - before
    assert grown < 24 * MIB, (
        f"{rounds * each * len(packet) / MIB:.0f} MiB were sent, {grown / MIB:.0f} MiB kept"
    )
    deaf.close()


def test_a_client_that_sends_a_byte_at_a_time(daemon: DaemonProcess, neighbour: Neighbour) -> None:
    slow, sub = dial(daemon, "slow"), dial(daemon, "slow-sub", filter="slow")
    packet = encode(Publish(b"slow", b"byte by byte"), V311)
    for byte in packet:
        slow.sendall(bytes([byte]))
        neighbour.check()
    assert sub.recv(len(packet), socket.MSG_WAITALL) == packet


def test_very_many_connections(daemon: DaemonProcess, neighbour: Neighbour) -> None:
    before = resident(daemon)
    clients = [dial(daemon, f"many-{number}", filter=f"many/{number}") for number in range(1000)]
    neighbour.check()
    each = (resident(daemon) - before) / len(clients)
    assert each < 40_000, f"{each:.0f} bytes for a connection at rest"


@pytest.mark.parametrize(
    ("data", "clause"),
    [
        (encode(Publish(b"a/#", b"x"), V5), b"[MQTT-3.3.2-2]"),
        (bytes.fromhex("3005 0002 c328 00"), b"[MQTT-1.5.4-1]"),
        (bytes.fromhex("3005 0002 6100 00"), b"[MQTT-1.5.4-2]"),
        (bytes.fromhex("36 06 0001 61 0001 00"), b"[MQTT-3.3.1-4]"),
        (bytes.fromhex("30ffffff7f"), b"3.1.2.11.4"),
        (bytes.fromhex("30ffffffff01"), b"[MQTT-1.5.5-1]"),
        (encode(Publish(b"", b"x", properties=Properties(topic_alias=0xFFFF)), V5), b"[MQTT-3.3.2-9]"),
        (bytes.fromhex("8000"), b"[MQTT-3.8.1-1]"),
        (bytes.fromhex("00 00"), b"2.1.2"),
    ],
)
def test_broken_rules_end_with_their_clause(
    daemon: DaemonProcess, neighbour: Neighbour, data: bytes, clause: bytes
) -> None:
    client = dial(daemon, "broken", V5)
    client.sendall(data)
    told = ended(client)
    assert told[:1] == b"\xe0"
    assert clause in told


def test_a_packet_id_used_again(daemon: DaemonProcess, neighbour: Neighbour) -> None:
    client, sub = dial(daemon, "again"), dial(daemon, "again-sub", filter="again")
    packet = encode(Publish(b"again", b"x", 2, packet_id=7), V311)
    client.sendall(packet * 3)
    assert client.recv(12, socket.MSG_WAITALL) == bytes.fromhex("50020007") * 3
    expected = encode(Publish(b"again", b"x"), V311)
    assert sub.recv(len(expected), socket.MSG_WAITALL) == expected
    sub.settimeout(0.3)
    with pytest.raises(TimeoutError):
        sub.recv(1)


def test_noise(daemon: DaemonProcess, neighbour: Neighbour) -> None:
    rng = random.Random(3)
    for number in range(60):
        client = dial(daemon, f"noise-{number}") if number % 2 else raw(daemon)
        client.sendall(rng.randbytes(rng.randrange(1, 300)))
        client.close()
        neighbour.check()
    assert "Traceback" not in daemon.log()


def test_the_long_form_in_short() -> None:
    """`mqtt_bad_clients.py`, short: one kind after the other beside a steady pair."""
    command = [sys.executable, "-m", "tests.fault.mqtt_bad_clients", "--sessions", "60", "--limit", "40"]
    command += ["--seconds", "0.5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {one["kind"]: one for one in json.loads(done.stdout)}
    assert found["many-sessions"]["did"] == "38 sessions taken, 22 refused"  # two sessions are the pair's
    assert all(one["messages"] for one in found.values())


def test_the_long_form_finds_out(daemon: DaemonProcess) -> None:
    """The run reports a daemon that exceeds its session limit, and a disturbed pair."""
    server = bad.Server(daemon)
    assert "30 sessions taken" in bad.look("many-sessions", server, bad.Scale(30, 20, 0)).problem
    pair = bad.Pair(server)
    other = dial(daemon, "x")
    other.sendall(encode(Publish(b"steady", b"of another"), V311) + encode(Ping(codec.PINGREQ), V311))
    assert other.recv(2, socket.MSG_WAITALL) == b"\xd0\0"  # so the publish was processed
    pair.start()
    pair.end()
    assert "did not come as it was sent" in pair.problem
