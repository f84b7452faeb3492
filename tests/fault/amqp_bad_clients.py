"""Bad AMQP clients, one kind after the other, at a real daemon, beside a steady pair of clients.

    python -m tests.fault.amqp_bad_clients [--count 10000] [--seconds 60] [--only KIND] [--json]

`--count` is the number of connections and queues; messages without an acknowledgement are 100 times as many,
bindings 10 times. After each kind the pair must have received every message, in order, and the daemon's
memory must not exceed the kind's allowance. Exit code: 0 if so, else 1.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fault.amqp_bad_frames import CASES
from tests.fault.amqp_wire import PATIENCE_S, Basic, Queue, Wire, content, method, outcome, publish
from tests.fault.bad_clients import MIB, Found, ServedDaemon, SteadyPair, add_options, beside, run

FLAGS = ("--kafka", "off", "--admin", "off", "--stare", "off", "--mqtt", "off", "--amqp", "127.0.0.1:0")
KEYS = 2000  # new routing keys for which the cost of matching is taken


@dataclass
class Scale:
    """The size of the run."""

    count: int
    seconds: float


class Server(ServedDaemon):
    """The daemon, and connections to it."""

    def processor(self) -> float:
        """Returns the processor time that the daemon has used, in seconds."""
        fields = Path(f"/proc/{self.daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def raw(self, receive_bytes: int = 0) -> Wire:
        return Wire(self.daemon.address("amqp"), receive_bytes=receive_bytes)

    def dial(self, *channels: int) -> Wire:
        return self.raw().open(*channels)


class Pair(SteadyPair):
    """A publisher and a consumer. `problem` describes a failure."""

    def __init__(self, server: Server) -> None:
        super().__init__(PATIENCE_S + 10)
        self._consumer, self._publisher = server.dial(), server.dial()
        self._consumer.declare("steady")
        self._consumer.consume("steady")

    def exchange(self, number: int) -> bool:
        sent = b"%d" % number
        self._publisher.send(publish("steady", sent))
        return self._consumer.message()[1] == sent

    def close(self) -> None:
        self._consumer.close()
        self._publisher.close()


def never_reads(server: Server, scale: Scale) -> str:
    """Consumes a flood without acknowledgements and never reads: it waits in the queue, on disk."""
    deaf, flooder = server.raw(4096).open(), server.dial()
    deaf.declare("flood")
    deaf.consume("flood")
    flooder.ask(Basic.Qos(0, 0), Basic.QosOk)
    run = publish("flood", b"x" * 1000) * 1000
    sent, end = 0, time.monotonic() + scale.seconds
    while time.monotonic() < end or sent < 48 * MIB:
        flooder.send(run)
        flooder.ask(Basic.Qos(0, 0), Basic.QosOk)
        sent += len(run)
    deaf.close()
    flooder.delete("flood")
    flooder.close()
    return f"{sent / MIB:.0f} MiB sent"


def never_acks(server: Server, scale: Scale) -> str:
    """Takes messages without end and acknowledges none. All of them come back when it is gone."""
    total, each = 100 * scale.count, 1000
    holder, publisher = server.dial(), server.dial()
    holder.declare("owed")
    holder.consume("owed", no_ack=False)
    for _ in range(0, total, each):
        publisher.send(publish("owed", b"x" * 100) * each)
        for _ in range(each):
            holder.message()
    answer = publisher.ask(Queue.Declare(queue="owed", passive=True), Queue.DeclareOk)
    if answer.message_count:
        raise AssertionError(f"{answer.message_count} of the messages are still in the queue")
    holder.close()
    end = time.monotonic() + PATIENCE_S
    while answer.message_count < total and time.monotonic() < end:
        answer = publisher.ask(Queue.Declare(queue="owed", passive=True), Queue.DeclareOk)
    if answer.message_count != total:
        raise AssertionError(f"{answer.message_count} of {total} messages came back")
    publisher.delete("owed")
    publisher.close()
    return f"{total} messages were not acknowledged"


def many_queues(server: Server, scale: Scale) -> str:
    """Declares queues, puts a message into each, and leaves them."""
    client = server.dial()
    for first in range(0, scale.count, 100):
        names = [f"many-{number}" for number in range(first, min(first + 100, scale.count))]
        client.send(b"".join(method(Queue.Declare(queue=name, durable=True)) for name in names))
        for _ in names:
            client.expect(Queue.DeclareOk)
        client.send(b"".join(publish(name, b"one") for name in names))
    for number in range(0, scale.count, 100):
        client.ask(Basic.Get(queue=f"many-{number}", no_ack=True), Basic.GetOk)
        client.read()
        client.read()
    client.close()
    return f"{scale.count} queues"


def many_connections(server: Server, scale: Scale) -> str:
    """Opens all connections at once and leaves them idle."""
    clients = [server.dial() for _ in range(scale.count)]
    did = f"{len(clients)} connections at once, {server.resident() / MIB:.0f} MiB meanwhile"
    for one in clients:
        one.close()
    return did


def many_bindings(server: Server, scale: Scale) -> str:
    """Binds one queue to `amq.topic` with very many keys. A new key is matched at the cost of its own levels,
    whatever the number of bindings."""
    client = server.dial()
    client.declare("bound")
    few = 100
    _bind(client, 0, few)
    cost = _matching(server, client, "few")
    _bind(client, few, 10 * scale.count)
    more = _matching(server, client, "many")
    client.delete("bound")
    client.close()
    if more > 10 * cost + 1:
        raise AssertionError(f"{KEYS} new keys took {more:.2f} s, and {cost:.2f} s with {few} bindings")
    return (
        f"{10 * scale.count} bindings; processor time for {KEYS} new keys {more:.2f} s, "
        f"with {few} bindings {cost:.2f} s"
    )


def _bind(client: Wire, first: int, end: int) -> None:
    for begin in range(first, end, 100):
        asked = [
            Queue.Bind(queue="bound", exchange="amq.topic", routing_key=f"a.{number}.*.{number % 7}.#")
            for number in range(begin, begin + 100)
        ]
        client.send(b"".join(map(method, asked)))
        for _ in asked:
            client.expect(Queue.BindOk)


def _matching(server: Server, client: Wire, word: str) -> float:
    """Returns the processor time that publishes with new keys take, of which every second one matches."""
    before = server.processor()
    for number in range(KEYS):
        key = f"a.{number % 100}.{word}{number}.{number % 100 % 7 if number % 2 else 'no'}"
        client.send(publish(key, b"x", "amq.topic"))
    client.ask(Basic.Qos(0, 0), Basic.QosOk)
    spent = server.processor() - before
    taken = client.ask(Queue.Purge(queue="bound"), Queue.PurgeOk).message_count
    if taken != KEYS // 2:
        raise AssertionError(f"{taken} of {KEYS // 2} messages were routed")
    return spent


def bad_frames(server: Server, scale: Scale) -> str:
    """Sends each of `amqp_bad_frames`, noise, and other protocols, again and again."""
    rng = random.Random(6)
    count, end = 0, time.monotonic() + scale.seconds
    kinds = list(CASES.values())
    while time.monotonic() < end or count < 2 * len(kinds):
        data, expected = kinds[count % len(kinds)]
        client = server.dial(1, 2)
        client.declare("bad")
        client.send(content(b""))  # an error already: what follows is not looked at
        client.close()
        client = server.dial(1, 2)
        if outcome(client, data, closes=expected is not None) != expected:
            raise AssertionError(f"{list(CASES)[count % len(kinds)]} was not answered with {expected}")
        client.close()
        client = server.raw()
        client.send(rng.randbytes(rng.randrange(1, 300)))
        client.close()
        count += 1
    return f"{3 * count} clients"


KINDS: dict[str, tuple[Callable[[Server, Scale], str], int, int]] = {
    "bad-frames": (bad_frames, 8 * MIB, 0),
    "never-reads": (never_reads, 32 * MIB, 0),
    "many-connections": (many_connections, 8 * MIB, 24 * 1024),
    "many-queues": (many_queues, 8 * MIB, 16 * 1024),
    "many-bindings": (many_bindings, 16 * MIB, 10 * 4 * 1024),
    "never-acks": (never_acks, 48 * MIB, 100 * 64),
}
"""What they do, and by how many bytes memory may grow: once, and for each of `Scale.count`."""


def look(kind: str, server: Server, scale: Scale) -> Found:
    """Runs one kind beside a steady pair."""
    act, room, each = KINDS[kind]
    return beside(Pair(server), server, kind, lambda: act(server, scale), room + each * scale.count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="connections and queues")
    add_options(parser, KINDS)
    options = parser.parse_args()
    scale = Scale(options.count, options.seconds)

    return run(options, FLAGS, KINDS, lambda kind, daemon: look(kind, Server(daemon), scale))


if __name__ == "__main__":
    sys.exit(main())
