"""Bad MQTT clients, one kind after the other, at a real daemon, beside a steady pair of clients.

    python -m tests.fault.mqtt_bad_clients [--sessions 10000] [--seconds 60] [--only KIND] [--json]

After each kind the pair must have received every message, in order, and the daemon's memory must not exceed
the kind's allowance. Exit code: 0 if so, else 1.
"""

from __future__ import annotations

import argparse
import random
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.fault.bad_clients import MIB, Found, ServedDaemon, SteadyPair, add_options, beside, run

from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Connect, FilterRequest, Publish, Subscribe, encode
from treecast.shims.mqtt.codec_properties import Properties

PATIENCE_S = 120.0
QUEUE_BYTES = 2 * MIB
FLAGS = ("--kafka", "off", "--admin", "off", "--stare", "off", "--amqp", "off", "--mqtt", "127.0.0.1:0")


@dataclass
class Scale:
    """The size of the run. `sessions` may exceed the daemon's `limit`."""

    sessions: int
    limit: int
    seconds: float


class Server(ServedDaemon):
    """The daemon, and connections to it."""

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


class Pair(SteadyPair):
    """A publisher and a subscriber. `problem` describes a failure."""

    def __init__(self, server: Server) -> None:
        super().__init__(PATIENCE_S + 10)
        self._sub, self._pub = server.dial("steady-s", filter="steady"), server.dial("steady-p")

    def exchange(self, number: int) -> bool:
        packet = encode(Publish(b"steady", b"%d" % number), V311)
        self._pub.sendall(packet)
        return self._sub.recv(len(packet), socket.MSG_WAITALL) == packet

    def close(self) -> None:
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
    if kind.startswith("many-"):
        room += PER_SESSION * min(scale.sessions, scale.limit)
    return beside(Pair(server), server, kind, lambda: act(server, scale), room)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=10_000, help="sessions that one client opens")
    parser.add_argument(
        "--limit", type=int, default=8_000, help="session limit of the daemon (--mqtt-max-sessions)"
    )
    add_options(parser, KINDS)
    options = parser.parse_args()
    scale = Scale(options.sessions, options.limit, options.seconds)

    flags = [*FLAGS, "--mqtt-queue-bytes", str(QUEUE_BYTES), "--mqtt-max-sessions", str(options.limit)]
    return run(options, flags, KINDS, lambda kind, daemon: look(kind, Server(daemon), scale))


if __name__ == "__main__":
    sys.exit(main())
