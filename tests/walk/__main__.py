"""Traces a message from socket to socket over two hosts, and prints the files and functions it crosses.

    python -m tests.walk                a Kafka record, and an MQTT message of QoS 1
    python -m tests.walk kafka --json   the first alone

Two daemons run interpreted, each in a process of its own: A, where the message is produced, and B, where it
is consumed. What counts is every function of ours that begins, in any thread of either, from the moment
before the request is sent until, at A, the answer is written and the message sent to B, and, at B, the
consumer's bytes are written. The consumer's request (a Fetch that waits, a subscription) came before. The
first messages of a connection are not traced; of those that are, only what all have in common counts, so that
timers are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec

from treecast.middleware.daemon.process import DaemonProcess

from .clients import Carried, KafkaRecord, MqttMessage
from .host import TracedDaemon
from .way import Entry, Way, as_rows, as_text, host_way, in_every, until_written

MESSAGES: dict[str, Callable[[DaemonProcess, DaemonProcess], Carried]] = {
    "kafka": KafkaRecord,
    "mqtt": MqttMessage,
}
WRITERS = ("", "shims/")  # whose last write ends a trace: A has to answer and to send, B to hand over
PAUSE = 0.05  # seconds after what comes before a message, for what it sets off


def traced(hosts: Sequence[TracedDaemon], work: Callable[[], int]) -> list[list[Entry]]:
    """What each host enters for `work`, which answers when it was done."""
    for host in hosts:
        host.begin()
    done = work()
    return [until_written(host.end(), room, done) for host, room in zip(hosts, WRITERS, strict=True)]


def waited(seconds: float) -> int:
    """Nothing is sent."""
    time.sleep(seconds)
    return time.monotonic_ns()


def walk(carried: Carried, hosts: Sequence[TracedDaemon], before: int, traces: int) -> Way:
    """`before` messages that are not traced, then `traces` that are, each followed by as long without any."""
    found: list[list[list[Entry]]] = []
    quiet: list[list[Entry]] = []
    for number in range(before + traces):
        carried.ready()
        time.sleep(PAUSE)
        began = time.monotonic()
        if number < before:
            carried.carry()
            continue
        found.append(traced(hosts, carried.carry))
        took = time.monotonic() - began
        time.sleep(PAUSE)
        quiet.append(list(chain(*traced(hosts, partial(waited, took)))))
    ways = [host_way(name, [trace[at] for trace in found]) for at, name in enumerate("AB")]
    return Way(carried.name, traces, tuple(ways), in_every(quiet))


def joined(stack: ExitStack, folder: Path) -> list[TracedDaemon]:
    """Two daemons of one cluster, the first with the coordinator."""
    flags = ("--fabric", "127.0.0.1:0", "--admin", "off", "--stare", "off", "--amqp", "off")
    a = TracedDaemon(folder / "a", "--name", "a", *flags)
    stack.enter_context(a)
    token = f"@{a.data / 'join-token'}"
    b = TracedDaemon(folder / "b", "--name", "b", *flags, "--join", a.control, "--join-token", token)
    stack.enter_context(b)
    return [a, b]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.walk", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "messages", nargs="*", choices=[*MESSAGES, []], help="kafka, mqtt; both where none is named"
    )
    parser.add_argument(
        "--before", type=int, default=9, help="messages that come first and are not traced (9)"
    )
    parser.add_argument("--traces", type=int, default=20, help="how many are traced (20)")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(words)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treecast-walk-")))
        hosts = joined(stack, folder)
        ways = []
        for name in chosen.messages or MESSAGES:
            carried = MESSAGES[name](*hosts)
            ways.append(walk(carried, hosts, chosen.before, chosen.traces))
            carried.close()
    if chosen.json:
        print(json.dumps(msgspec.to_builtins([as_rows(way) for way in ways]), indent=1))
    else:
        print("\n\n".join(as_text(way) for way in ways))
    return 0


if __name__ == "__main__":
    sys.exit(main())
