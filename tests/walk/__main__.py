"""Traces a message from socket to socket over two hosts, and prints the files and functions it crosses.

    python -m tests.walk                a Kafka record, an MQTT message, an AMQP message
    python -m tests.walk kafka --json   the first alone

Two daemons run interpreted, each in its own process: A, where the message is produced, and B, where it is
consumed; the AMQP message is in a queue at B, and consumed at A. Every function of ours that starts counts,
in any thread of either. At A the trace runs from the moment before the request is sent until the reply is
written and the message sent to B; at B it runs until the consumer's bytes are written. The consumer's request
(a Fetch that waits, a subscription) came before. The first messages of a connection are not traced; of the
traced ones, only what all have in common counts, so that timers are left out.
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

from .clients import AmqpMessage, Carried, KafkaRecord, MqttMessage
from .host import TracedDaemon
from .way import Entry, Way, as_rows, as_text, host_way, in_every, until_written

MESSAGES: dict[str, Callable[[DaemonProcess, DaemonProcess], Carried]] = {
    "kafka": KafkaRecord,
    "mqtt": MqttMessage,
    "amqp": AmqpMessage,
}
WITHOUT = {"amqp": ("kafka", "mqtt"), "mqtt": ("amqp",)}  # by the face that is off: messages
PAUSE = 0.05  # seconds for the effects of what precedes a message


def traced(
    hosts: Sequence[TracedDaemon], writers: Sequence[str], work: Callable[[], int]
) -> list[list[Entry]]:
    """Returns the functions that each host enters during `work`, which returns the time of its end."""
    for host in hosts:
        host.begin()
    done = work()
    return [until_written(host.end(), room, done) for host, room in zip(hosts, writers, strict=True)]


def waited(seconds: float) -> int:
    """Sends nothing."""
    time.sleep(seconds)
    return time.monotonic_ns()


def walk(carried: Carried, hosts: Sequence[TracedDaemon], before: int, traces: int) -> Way:
    """Carries `before` untraced messages, then `traces` traced ones, each followed by a quiet window of equal
    length."""
    found: list[list[list[Entry]]] = []
    quiet: list[list[Entry]] = []
    for number in range(before + traces):
        if number == before:
            carried.begun()
        carried.ready()
        time.sleep(PAUSE)
        began = time.monotonic()
        if number < before:
            carried.carry()
            continue
        found.append(traced(hosts, carried.writers, carried.carry))
        took = time.monotonic() - began
        time.sleep(PAUSE)
        quiet.append(list(chain(*traced(hosts, carried.writers, partial(waited, took)))))
    ways = [host_way(name, [trace[at] for trace in found]) for at, name in enumerate("AB")]
    return Way(carried.name, traces, tuple(ways), in_every(quiet))


def joined(stack: ExitStack, folder: Path, without: str) -> list[TracedDaemon]:
    """Starts two daemons of one cluster, the first with the coordinator. `without`: a face that is off. Each
    face speaks at the end of every turn."""
    flags = ("--fabric", "127.0.0.1:0", "--admin", "off", "--stare", "off", f"--{without}", "off")
    a = TracedDaemon(folder / "a", "--name", "a", *flags)
    stack.enter_context(a)
    token = f"@{a.data / 'join-token'}"
    b = TracedDaemon(folder / "b", "--name", "b", *flags, "--join", a.control, "--join-token", token)
    stack.enter_context(b)
    return [a, b]


def ways_of(names: Sequence[str], without: str, before: int, traces: int) -> list[Way]:
    """Returns the ways of these messages over two hosts of their own."""
    ways = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treecast-walk-")))
        hosts = joined(stack, folder, without)
        for name in names:
            carried = MESSAGES[name](*hosts)
            ways.append(walk(carried, hosts, before, traces))
            carried.close()
    return ways


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.walk", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "messages", nargs="*", choices=[*MESSAGES, []], help="kafka, mqtt, amqp; default: all"
    )
    parser.add_argument("--before", type=int, default=9, help="untraced messages before the traced ones (9)")
    parser.add_argument("--traces", type=int, default=20, help="number of traced messages (20)")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(words)
    names = chosen.messages or list(MESSAGES)
    ways: list[Way] = []
    for without, some in WITHOUT.items():
        if here := [name for name in names if name in some]:
            ways += ways_of(here, without, chosen.before, chosen.traces)
    if chosen.json:
        print(json.dumps(msgspec.to_builtins([as_rows(way) for way in ways]), indent=1))
    else:
        print("\n\n".join(as_text(way) for way in ways))
    return 0


if __name__ == "__main__":
    sys.exit(main())
