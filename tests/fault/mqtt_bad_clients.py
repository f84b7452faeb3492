"""Bad MQTT clients, one kind after the other, at a real daemon, beside a steady pair of clients.

    mqtt_bad_clients.py [--sessions 10000] [--seconds 60] [--only KIND] [--json]

After each kind the pair must have received every message, in order, and the daemon's memory must not exceed
the kind's allowance. Exit code: 0 if so, else 1.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.daemon.tuning import raise_open_files
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Connect, FilterRequest, Publish, Subscribe, encode
from treecast.shims.mqtt.codec_properties import Properties

PATIENCE_S = 120.0
MIB = 1 << 20
QUEUE_BYTES = 2 * MIB
FLAGS = ("--kafka", "off", "--admin", "off", "--stare", "off", "--amqp", "off", "--mqtt", "127.0.0.1:0")
EVERY_S = 0.02  # seconds between messages of the steady pair


@dataclass
class Scale:
    """The size of the run. `sessions` may exceed the daemon's `limit`."""

    sessions: int
    limit: int
    seconds: float


@dataclass
class Found:
    """The outcome of one kind; `problem` is empty if there was none. Memory in MiB."""

    kind: str
    did: str
    messages: int
    grown: float
    problem: str


class Server:
    """The daemon, and connections to it."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon

    def resident(self) -> int:
        return int(Path(f"/proc/{self.daemon.pid}/statm").read_text().split()[1]) * 4096

    def raw(self) -> socket.socket:
        return socket.create_connection(self.daemon.address("mqtt"), PATIENCE_S)

    def dial(
        self, name: str, version: int = V311, filter: str = "", *, lasting: bool = False
    ) -> socket.socket:
        """Connects a client; raises OSError with the reason if the daemon refuses it."""
        found = self.raw()
        properties = Properties(session_expiry=3600) if lasting and version == V5 else Properties()
        clean = not (lasting and version == V311)
        found.sendall(encode(Connect(version, name, clean, properties=properties), version))
        _, size = found.recv(2, socket.MSG_WAITALL)
        reason = found.recv(size, socket.MSG_WAITALL)[1]
        if reason:
            found.close()
            raise OSError(f"refused with {reason:#x}")
        if filter:
            found.sendall(encode(Subscribe(1, (FilterRequest(filter.encode()),)), version))
            found.recv(5, socket.MSG_WAITALL)
        return found


class Pair(threading.Thread):
    """A publisher and a subscriber. `problem` describes a failure."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._sub, self._pub = server.dial("steady-s", filter="steady"), server.dial("steady-p")
        self._ending = threading.Event()
        self.count = 0
        self.problem = ""

    def run(self) -> None:
        try:
            while self.count == 0 or not self._ending.wait(EVERY_S):
                packet = encode(Publish(b"steady", b"%d" % self.count), V311)
                self._pub.sendall(packet)
                if self._sub.recv(len(packet), socket.MSG_WAITALL) != packet:
                    self.problem = f"message {self.count} did not come as it was sent"
                    return
                self.count += 1
        except OSError as error:
            self.problem = f"message {self.count}: {error}"

    def end(self) -> None:
        self._ending.set()
        self.join(PATIENCE_S + 10)
        if self.is_alive():
            self.problem = f"message {self.count} was waited for too long"
        self._sub.close()
        self._pub.close()


def never_reads(server: Server, scale: Scale) -> str:
    """Subscribes to a flood that others read, and never reads."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(server.daemon.address("mqtt"))
    deaf.sendall(encode(Connect(V311, "deaf"), V311))
    deaf.sendall(encode(Subscribe(1, (FilterRequest(b"flood"),)), V311))
    reader, publisher = server.dial("reader", filter="flood"), server.dial("flooder")
    packet = encode(Publish(b"flood", b"x" * 1000), V311)
    sent, end = 0, time.monotonic() + scale.seconds
    while time.monotonic() < end or sent < 16 * QUEUE_BYTES:
        publisher.sendall(packet * 1000)
        got, wanted = 0, 1000 * len(packet)
        while got < wanted:
            got += len(reader.recv(min(MIB, wanted - got)))
        sent += wanted
    for one in (deaf, reader, publisher):
        one.close()
    return f"{sent / MIB:.0f} MiB sent"


def byte_a_second(server: Server, scale: Scale) -> str:
    """Clients send a byte a second, in a session or in a CONNECT; the daemon disconnects the latter."""
    known = [server.dial(f"slow-{number}") for number in range(20)]
    unknown = [server.raw() for _ in range(20)]
    publish, connect = encode(Publish(b"slow", b"x" * 1000), V311), encode(Connect(V311, "late" * 20), V311)
    for number in range(max(1, int(scale.seconds))):
        for one in known:
            one.sendall(publish[number : number + 1])
        for one in list(unknown):
            try:
                one.sendall(connect[number : number + 1])
            except OSError:
                unknown.remove(one)
        time.sleep(min(1.0, scale.seconds))
    for one in (*known, *unknown):
        one.close()
    return f"{len(known)} known, {20 - len(unknown)} of 20 unknown were sent away"


def many_sessions(server: Server, scale: Scale) -> str:
    """Makes persistent sessions with a subscription and leaves them; the daemon takes no more than its
    limit."""
    taken = refused = 0
    for number in range(scale.sessions):
        version = V5 if number % 2 else V311
        try:
            server.dial(f"one-{number}", version, f"many/{number}/+", lasting=True).close()
            taken += 1
        except OSError:
            refused += 1
    if taken > scale.limit or taken + refused != scale.sessions or (taken < scale.sessions and not refused):
        raise AssertionError(f"{taken} sessions taken, {refused} refused, {scale.limit} are the limit")
    return f"{taken} sessions taken, {refused} refused"


def many_connections(server: Server, scale: Scale) -> str:
    """Opens all connections at once and leaves them idle."""
    clients = [server.dial(f"rest-{number}") for number in range(min(scale.sessions, scale.limit - 10))]
    for one in clients:
        one.close()
    return f"{len(clients)} connections at once"


def broken_packets(server: Server, scale: Scale) -> str:
    """Sends invalid UTF-8, wildcards in a topic name, reused ids, endless lengths, noise."""
    rng = random.Random(6)
    kinds = [
        encode(Publish(b"a/#", b"x"), V5),
        bytes.fromhex("3005 0002 c328 00"),
        bytes.fromhex("30ffffff7f"),
        bytes.fromhex("30ffffffff01"),
        encode(Publish(b"again", b"x", 2, packet_id=7), V5) * 50,
        encode(Subscribe(0xFFFF, (FilterRequest(b"a/#/b"),)), V5),
        b"",
    ]
    count, end = 0, time.monotonic() + scale.seconds
    while time.monotonic() < end or count < 10 * len(kinds):
        client = server.dial("broken", V5) if count % 8 else server.raw()
        client.sendall(kinds[count % len(kinds)] or rng.randbytes(rng.randrange(1, 300)))
        client.close()
        count += 1
    return f"{count} clients"


KINDS: dict[str, tuple[Callable[[Server, Scale], str], int]] = {
    "never-reads": (never_reads, 32 * MIB),
    "byte-a-second": (byte_a_second, 8 * MIB),
    "broken-packets": (broken_packets, 8 * MIB),
    "many-connections": (many_connections, 8 * MIB),
    "many-sessions": (many_sessions, 8 * MIB),
}
"""What they do, and by how much memory may grow; of sessions and connections, each by PER_SESSION too."""
PER_SESSION = 16 * 1024


def look(kind: str, server: Server, scale: Scale) -> Found:
    """Runs one kind beside a steady pair."""
    act, room = KINDS[kind]
    pair = Pair(server)
    pair.start()
    before, did, problem = server.resident(), "", ""
    try:
        did = act(server, scale)
    except (OSError, AssertionError) as error:
        problem = f"{type(error).__name__}: {error}"
    grown = server.resident() - before
    pair.end()
    if kind.startswith("many-"):
        room += PER_SESSION * min(scale.sessions, scale.limit)
    if grown > room:
        problem = problem or f"memory grew by {grown / MIB:.0f} MiB, {room / MIB:.0f} MiB is the limit"
    if "Traceback" in server.daemon.log():
        problem = problem or "the daemon logged an error of its own"
    return Found(kind, did, pair.count, round(grown / MIB, 1), pair.problem or problem)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000, help="sessions that one client opens")
    parser.add_argument(
        "--limit", type=int, default=8_000, help="session limit of the daemon (--mqtt-max-sessions)"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the other kinds")
    parser.add_argument("--only", choices=sorted(KINDS))
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemon")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    raise_open_files()
    scale = Scale(options.sessions, options.limit, options.seconds)
    flags = [*FLAGS, "--mqtt-queue-bytes", str(QUEUE_BYTES), "--mqtt-max-sessions", str(options.limit)]
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        DaemonProcess(Path(folder) / "data", flags, python=options.python) as daemon,
    ):
        for kind in [options.only] if options.only else KINDS:
            one = look(kind, Server(daemon), scale)
            found.append(one)
            if not options.json:
                print(
                    f"{kind}: {one.did}; beside it {one.messages} messages, {one.grown} MiB more", flush=True
                )
    problems = [f"{one.kind}: {one.problem}" for one in found if one.problem]
    if options.json:
        print(json.dumps([asdict(one) for one in found]))
    else:
        print("\n".join(problems) or "no other client was affected")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
