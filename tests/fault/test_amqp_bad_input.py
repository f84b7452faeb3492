"""Bad AMQP clients against a real daemon: they end or wait, and never affect a neighbour."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pamqp import commands
from tests.fault import amqp_bad_clients as bad
from tests.fault.amqp_bad_frames import CASES, begin
from tests.fault.amqp_wire import (
    PROTOCOL_HEADER,
    Basic,
    Channel,
    Connection,
    Queue,
    Refused,
    Wire,
    head,
    method,
    outcome,
    publish,
    raw_frame,
)

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.fault

MIB = 1 << 20
Exchange = commands.Exchange


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    made = DaemonProcess(tmp_path_factory.mktemp("bad") / "data", bad.FLAGS)
    try:
        yield made.start()
    finally:
        if made.running:
            made.stop()
        print(made.clean_up())


class Neighbour:
    """A publisher and a consumer that must be served whatever other clients do."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._consumer, self._publisher = Wire(daemon.address("amqp")).open(), Wire(daemon.address("amqp"))
        self._publisher.open()
        self._consumer.declare("good")
        self._consumer.consume("good")
        self._number = 0

    def check(self) -> None:
        self._number += 1
        sent = b"%d" % self._number
        self._publisher.send(publish("good", sent))
        assert self._consumer.message()[1] == sent

    def close(self) -> None:
        self._consumer.close()
        self._publisher.close()


@pytest.fixture
def neighbour(daemon: DaemonProcess) -> Iterator[Neighbour]:
    made = Neighbour(daemon)
    made.check()
    yield made
    made.check()
    made.close()
    assert "Traceback" not in daemon.log()


@pytest.fixture
def wire(daemon: DaemonProcess, neighbour: Neighbour) -> Iterator[Wire]:
    made = Wire(daemon.address("amqp"))
    yield made
    made.close()


def ended(wire: Wire) -> bytes:
    """Reads everything until the daemon closes."""
    found = b""
    while True:
        try:
            piece = wire.socket.recv(65536)
        except ConnectionError:
            return found
        if not piece:
            return found
        found += piece


@pytest.mark.parametrize(
    ("sent", "logged"),
    [
        (b"AMQP\x00\x01\x00\x00", "the client speaks AMQP 1.0, which is not served"),
        (b"AMQP\x03\x01\x00\x00", "the client speaks AMQP 1.0, which is not served"),
        (b"AMQP\x01\x01\x00\x0a", "the client speaks another protocol"),
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks another protocol"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "the client speaks another protocol"),
    ],
)
def test_another_protocol_gets_the_header_and_a_line_in_the_log(
    daemon: DaemonProcess, wire: Wire, until: Callable[..., None], sent: bytes, logged: str
) -> None:
    wire.send(sent)
    assert ended(wire) == PROTOCOL_HEADER
    until(lambda: logged in daemon.log(), "the line in the log")


@pytest.mark.parametrize("name", CASES)
def test_a_bad_frame_has_its_code(daemon: DaemonProcess, neighbour: Neighbour, name: str) -> None:
    data, expected = CASES[name]
    wire = begin(daemon.address("amqp"))
    assert outcome(wire, data, closes=expected is not None) == expected
    wire.close()


@pytest.mark.parametrize(
    "sent",
    [
        raw_frame(1, 0, b"\0\x0a\0\x0b"),
        raw_frame(1, 0, b"\0\x0a\0\x28\1/\0\0"),
        method(Channel.Open()),
        publish("good", b"unknown"),
        random.Random(1).randbytes(400),
        b"\1\0\0\x7f\xff\xff\xff" + bytes(100),
    ],
)
def test_garbage_before_the_log_in_ends_the_connection(wire: Wire, sent: bytes) -> None:
    wire.send(PROTOCOL_HEADER)
    wire.expect(Connection.Start)
    wire.send(sent)
    with pytest.raises(Refused) as refused:
        wire.expect(Connection.Tune)
    assert refused.value.channel == 0


def test_missed_heartbeats_end_the_connection_alone(
    daemon: DaemonProcess, wire: Wire, until: Callable[..., None]
) -> None:
    wire.open(every=1)
    wire.declare("beaten")
    ended(wire)  # heartbeats, and then the end
    until(lambda: "missed heartbeats from client, timeout: 1s" in daemon.log(), "the line in the log")


def test_an_exchange_deleted_between_two_publishes(daemon: DaemonProcess, wire: Wire) -> None:
    wire.open()
    wire.ask(Exchange.Declare(exchange="brief", durable=True), Exchange.DeclareOk)
    wire.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
    wire.send(publish("k", b"1", "brief"))
    wire.expect(Basic.Ack)
    other = Wire(daemon.address("amqp")).open()
    other.ask(Exchange.Delete(exchange="brief"), Exchange.DeleteOk)
    other.close()
    wire.send(publish("k", b"2", "brief"))
    with pytest.raises(Refused) as refused:
        wire.expect(Basic.Ack)
    assert (refused.value.channel, refused.value.code) == (1, 404)
    wire.send(publish("k", b"3", "brief"))  # ignored until close-ok
    wire.send(method(Channel.CloseOk()))
    wire.ask(Channel.Open(), Channel.OpenOk)


def test_an_exchange_deleted_amid_a_publish(daemon: DaemonProcess, wire: Wire) -> None:
    wire.open()
    wire.ask(Exchange.Declare(exchange="brief", durable=True), Exchange.DeclareOk)
    wire.send(method(Basic.Publish(exchange="brief", routing_key="k")) + head(6) + raw_frame(3, 1, b"abc"))
    other = Wire(daemon.address("amqp")).open()
    other.ask(Exchange.Delete(exchange="brief"), Exchange.DeleteOk)
    other.close()
    wire.send(raw_frame(3, 1, b"def"))
    with pytest.raises(Refused) as refused:
        wire.expect(Basic.Ack)
    assert (refused.value.channel, refused.value.code) == (1, 404)


def test_bodies_of_two_channels_frame_by_frame(wire: Wire) -> None:
    wire.open(1, 2)
    wire.declare("mixed")
    for channel in (1, 2):
        wire.send(method(Basic.Publish(routing_key="mixed"), channel))
    for channel in (2, 1):
        wire.send(head(4, channel))
    for channel, piece in ((1, b"ab"), (2, b"cd"), (1, b"ef"), (2, b"gh")):
        wire.send(raw_frame(3, channel, piece))
    wire.consume("mixed")
    assert [wire.message()[1], wire.message()[1]] == [b"abef", b"cdgh"]


def test_noise(daemon: DaemonProcess, neighbour: Neighbour) -> None:
    rng = random.Random(3)
    for number in range(60):
        client = Wire(daemon.address("amqp"))
        if number % 2:
            client.open()
        client.send(rng.randbytes(rng.randrange(1, 300)))
        client.close()
        neighbour.check()


def blocked(daemon: DaemonProcess) -> tuple[Wire, str]:
    """Returns a connection that was told that publishers wait, and the reason."""
    wire = Wire(daemon.address("amqp"))
    wire.send(PROTOCOL_HEADER)
    wire.expect(Connection.Start)
    given = {"capabilities": {"connection.blocked": True}}
    wire.ask(Connection.StartOk(given, "PLAIN", "\0guest\0guest"), Connection.Tune, 0)  # type: ignore[arg-type]
    wire.send(method(Connection.TuneOk(10, 131072, 0), 0))
    wire.ask(Connection.Open("/"), Connection.OpenOk, 0)
    reason = wire.expect(Connection.Blocked).reason
    wire.ask(Channel.Open(), Channel.OpenOk)
    return wire, reason


def shown_while_blocked(daemon: DaemonProcess, expected: str) -> None:
    """Publishes are not read; connections that do not publish are served."""
    publisher, reason = blocked(daemon)
    assert reason == expected
    publisher.send(publish("waits", b"first") + method(Basic.Qos(0, 0)))
    publisher.expect(Basic.QosOk)  # it came in the chunk of the publish, before reading was paused
    publisher.send(method(Basic.Qos(0, 0)))
    publisher.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        publisher.read()
    reader, _ = blocked(daemon)
    assert reader.ask(Queue.Declare(queue="waits", passive=True), Queue.DeclareOk).queue == "waits"
    reader.close()
    publisher.close()


def test_without_memory_publishers_wait_and_know_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with DaemonProcess(data, bad.FLAGS) as before:
        client = Wire(before.address("amqp")).open()
        client.declare("waits")
        client.close()
    with DaemonProcess(data, [*bad.FLAGS, "--amqp-max-memory-bytes", "1"]) as daemon:
        shown_while_blocked(daemon, "low on memory")


def test_without_disk_publishers_wait_and_know_why(small_disk: Path) -> None:
    with DaemonProcess(small_disk / "data", bad.FLAGS) as daemon:
        client, reason = blocked(daemon)
        assert reason == "low on disk"
        client.declare("waits")
        client.close()
        shown_while_blocked(daemon, "low on disk")


def test_the_long_form_in_short() -> None:
    """`amqp_bad_clients.py`, short: one kind after the other beside a steady pair."""
    command = [sys.executable, "-m", "tests.fault.amqp_bad_clients", "--count", "100", "--seconds", "0.2"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {one["kind"]: one for one in json.loads(done.stdout)}
    assert set(found) == set(bad.KINDS)
    assert all(one["messages"] for one in found.values())


def test_the_long_form_finds_out(daemon: DaemonProcess) -> None:
    """The run reports a pair that is disturbed."""
    server = bad.Server(daemon)
    pair = bad.Pair(server)
    other = server.dial()
    other.send(publish("steady", b"of another"))
    other.ask(Basic.Qos(0, 0), Basic.QosOk)
    pair.start()
    pair.end()
    other.close()
    assert "did not come as it was sent" in pair.problem
