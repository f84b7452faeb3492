"""`treecast bench fanout`: one load, and its delivery to the other hosts that read its topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins

from treecast.middleware.api.copies import copies_per_payload

from .options import daemon_at
from .output import CommandError, print_json, print_pairs, print_table, size_text

if TYPE_CHECKING:
    from treecast.middleware.api.daemon_client import DaemonClient
    from treecast.middleware.api.v1 import daemon_pb2 as pb
    from treecast.middleware.load import BenchOptions, Result

_LOOK_EVERY: Final = 0.05  # seconds
_PATIENCE: Final = 30.0  # seconds without progress at any host


class Receiver(Struct, frozen=True):
    """One host's deliveries. `seconds`: from the sending of the first record until the host had all."""

    host: str
    live: int
    repaired: int
    replayed: int
    lost: int
    seconds: float
    megabytes_per_second: float
    left: int  # times that it left the group because it was slow


class Fanout(Struct, frozen=True):
    """`sent`: bytes of segments by purpose, each copy counted. `copies`: those with payload (`api.copies`),
    divided by the payload.
    """

    topic: str
    records: int
    payload: int
    seconds: float  # until the last host had all
    sent: dict[str, int]
    copies: float
    receivers: list[Receiver]


class _Counts(Struct, frozen=True):
    """Counts of a topic's streams together, by host where a receiver is concerned."""

    payload: int
    sent: dict[str, int]
    settled: dict[str, tuple[int, int, int, int, int]]  # live, repaired, replayed, lost, left
    outstanding: dict[str, int]


def fanout(options: BenchOptions, control: str | None, json: bool) -> None:
    """Sends the load and waits until all hosts that read the topic have it.

    Raises CommandError if no other host reads it, or one receives nothing for too long.
    """
    from treecast.middleware import load

    with daemon_at(control) as client:
        before = _look(client, options.topic)
        if not before.settled:
            raise CommandError(
                f"no other host reads {options.topic}: run `treecast consume {options.topic} >/dev/null` on"
                " the receiving hosts, and leave it running"
            )
        with ThreadPoolExecutor(1, "load") as executor:
            sending = executor.submit(load.run_bench, "produce", options)
            done, after = _follow(client, options, before, sending)
    result = _result(options, before, after, done)
    if json:
        print_json(to_builtins(result))
    else:
        _show(result)


def _look(client: DaemonClient, topic: str) -> _Counts:
    """Returns the present counts of the topic's records."""
    counts = _Counts(0, {}, {}, {})
    payload = 0
    for stream in client.streams().streams:
        if stream.outgoing and stream.name.rpartition("-")[0] == topic:
            payload += stream.pace.payload_bytes
            _add(counts, stream)
    return _Counts(payload, counts.sent, counts.settled, counts.outstanding)


def _add(counts: _Counts, stream: pb.StreamStatus) -> None:
    for one in stream.sent:
        counts.sent[one.purpose] = counts.sent.get(one.purpose, 0) + one.bytes
    for account in stream.accounts:
        if not account.state:
            continue  # it has left
        lost = sum(account.expired.values()) + sum(account.refused.values())
        row = (account.live, account.repaired, account.replayed, lost, account.left)
        known = counts.settled.get(account.host, (0, 0, 0, 0, 0))
        live, repaired, replayed, gone, left = [a + b for a, b in zip(known, row, strict=True)]
        counts.settled[account.host] = (live, repaired, replayed, gone, left)
        outstanding = counts.outstanding.get(account.host, 0)
        counts.outstanding[account.host] = outstanding + account.outstanding


def _new(before: _Counts, after: _Counts, host: str) -> Sequence[int]:
    """Returns the host's settled records since `before`."""
    known = before.settled.get(host, (0, 0, 0, 0, 0))
    return [b - a for a, b in zip(known, after.settled[host], strict=True)]


def _follow(
    client: DaemonClient, options: BenchOptions, before: _Counts, sending: Future[Result]
) -> tuple[dict[str, float], _Counts]:
    """Returns (seconds by host until the last record was settled there, final counts)."""
    started = moved = time.monotonic()
    settled: dict[str, int] = {}
    done: dict[str, float] = {}
    while True:
        over = sending.done()
        counts = _look(client, options.topic)
        now = time.monotonic()
        for host in counts.settled:
            found = sum(_new(before, counts, host)[:4])
            if found > settled.get(host, 0):
                settled[host], done[host], moved = found, now - started, now
        least = min([settled.get(host, 0) for host in counts.settled], default=0)
        if over and least >= sending.result().records:
            _tell("")
            return done, counts
        if over and now - moved > _PATIENCE:
            late = ", ".join(host for host in counts.settled if settled.get(host, 0) == least) or "any host"
            raise CommandError(f"nothing has arrived at {late} for {_PATIENCE:.0f} s; see `treecast streams`")
        _tell(f"{least:,} of {options.records:,} records are everywhere")
        time.sleep(_LOOK_EVERY)


def _tell(text: str) -> None:
    """Shows the progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _result(options: BenchOptions, before: _Counts, after: _Counts, done: dict[str, float]) -> Fanout:
    payload = after.payload - before.payload
    sent = {
        purpose: size - before.sent.get(purpose, 0)
        for purpose, size in sorted(after.sent.items())
        if size > before.sent.get(purpose, 0)
    }
    receivers = []
    for host, seconds in sorted(done.items()):
        live, repaired, replayed, lost, left = _new(before, after, host)
        rate = payload / max(seconds, 1e-9) / 1e6
        receivers.append(Receiver(host, live, repaired, replayed, lost, seconds, rate, left))
    return Fanout(
        options.topic,
        min([one.live + one.repaired + one.replayed + one.lost for one in receivers], default=0),
        payload,
        max(done.values(), default=0.0),
        sent,
        copies_per_payload(sent.items(), payload),
        receivers,
    )


def _show(result: Fanout) -> None:
    print_table(
        ("host", "live", "repaired", "replayed", "lost", "seconds", "MB/s", "left times"),
        [
            (
                one.host,
                one.live,
                one.repaired,
                one.replayed,
                one.lost,
                f"{one.seconds:.2f}",
                f"{one.megabytes_per_second:.1f}",
                one.left,
            )
            for one in result.receivers
        ],
        empty="no host has received anything",
    )
    print()
    sent = ", ".join(f"{purpose} {size_text(size)}" for purpose, size in result.sent.items())
    print_pairs(
        [
            ("payload", size_text(result.payload)),
            ("sent", sent),
            ("copies per payload", f"{result.copies:.2f}"),
            ("by unicast these would be", f"{len(result.receivers)}"),
        ]
    )
