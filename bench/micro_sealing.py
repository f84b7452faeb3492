"""CPU time of segments that are open, authenticated and sealed: made from a message, sent, received, opened.

    python -m bench.micro_sealing [--rounds 9] [--messages 400] [--json]

Each message is cut into segments of one packet, as `cut_encoded` does for the fabric. They go through a pair
of UDP sockets of the loopback interface, a system call each way for each, and are decoded. The kinds take
turns within each round. Times are of the thread, user and system, so that other work on the machine only
disturbs the caches; `--codec` leaves the sockets out. The fabric as a whole: `python -m bench micro-fabric`.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from treecast.middleware.fabric.sealing import AesGcm
from treecast.middleware.wire import segment as compiled
from treecast.middleware.wire.segment import Datagram, Kind, Message, cut_encoded, decode
from treecast.middleware.wire.segment_keys import KeyRing, Sealing

KINDS: Final = ("off", "authenticated", "sealed")
SIZES: Final = (100, 1_300, 16_384, 60_000)  # bytes of a message
PACKETS: Final = (1_472, 8_972)  # bytes of a datagram, with MTUs of 1500 and 9000
_KEY: Final = {1: bytes(range(32))}
_STREAM: Final = (1, 7, 1)
_SENDER: Final = 1


def ring_of(kind: str) -> KeyRing:
    if kind == "off":
        return KeyRing({}, None)
    return KeyRing(_KEY, 1, Sealing(AesGcm, b"salt", time.time_ns()) if kind == "sealed" else None)


class Way:
    """The way of messages from one host to another. `sockets`: with those of the kernel between them."""

    def __init__(self, kind: str, *, sockets: bool) -> None:
        self._sender, self._receiver = ring_of(kind), ring_of(kind)  # hosts have a ring each
        self._ends = _pair() if sockets else None
        self._buffer = bytearray(1 << 16)

    def run(self, payload: bytes, messages: int, packet: int) -> float:
        """Returns microseconds of the thread for each segment."""
        began, segments = time.thread_time_ns(), 0
        for number in range(messages):
            message = Message(number, 1, payload)
            for one in cut_encoded(message, packet, _STREAM, _SENDER, Kind.DATA, None, self._sender):
                found, _ = decode(self._carried(one), self._receiver)
                segments += 1
                assert found.sequence == number
        return (time.thread_time_ns() - began) / 1000 / segments

    def _carried(self, one: Datagram) -> bytes | memoryview:
        if self._ends is None:
            return bytes(one)
        sender, receiver = self._ends
        sender.sendmsg([one] if isinstance(one, bytes) else [one.head, one.part])
        return memoryview(self._buffer)[: receiver.recv_into(self._buffer)]

    def close(self) -> None:
        for one in self._ends or ():
            one.close()


def _pair() -> tuple[socket.socket, socket.socket]:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(receiver.getsockname())
    return sender, receiver


def measure(size: int, packet: int, messages: int, rounds: int, *, sockets: bool) -> dict[str, list[float]]:
    """Returns the microseconds of a segment in each round, by kind. The kinds take turns: A B C, C B A."""
    ways = {kind: Way(kind, sockets=sockets) for kind in KINDS}
    payload, found = bytes(size), {kind: list[float]() for kind in KINDS}
    try:
        for way in ways.values():
            way.run(payload, max(1, messages // 4), packet)  # not counted
        for number in range(rounds):
            for kind in KINDS if number % 2 == 0 else reversed(KINDS):
                found[kind].append(ways[kind].run(payload, messages, packet))
    finally:
        for way in ways.values():
            way.close()
    return found


def share(found: dict[str, list[float]], more: str, less: str) -> float:
    """Returns the median, over rounds, of what one kind takes more than another, as a share of the other."""
    return median(one / other for one, other in zip(found[more], found[less], strict=True)) - 1


def shown(rows: Sequence[tuple[int, int, dict[str, list[float]]]]) -> Table:
    table = Table("bytes of a message", "of a datagram", *(f"{kind} (µs)" for kind in KINDS))
    table.add_column("sealed over authenticated")
    for size, packet, found in rows:
        times = [f"{median(found[kind]):.2f}" for kind in KINDS]
        table.add_row(f"{size:,}", f"{packet:,}", *times, f"{share(found, 'sealed', 'authenticated'):+.1%}")
    return table


def main(
    rounds: Annotated[int, typer.Option(min=1, help="how often each kind takes its turn")] = 9,
    messages: Annotated[int, typer.Option(min=1, help="messages of a turn")] = 400,
    codec: Annotated[bool, typer.Option("--codec", help="without sockets")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measures the CPU time of a segment by its protection."""
    cases = [(size, packet) for packet in PACKETS for size in SIZES]
    rows = [
        (size, packet, measure(size, packet, messages, rounds, sockets=not codec)) for size, packet in cases
    ]
    if as_json:
        print(json.dumps([{"size": size, "packet": packet, **found} for size, packet, found in rows]))
        return
    form = "interpreted" if str(compiled.__file__).endswith(".py") else "compiled"
    console: Callable[[object], None] = Console(highlight=False, width=120).print
    console(f"{form}; microseconds of the thread for each segment, both ends; medians of {rounds} rounds")
    console(shown(rows))


if __name__ == "__main__":
    typer.run(main)
