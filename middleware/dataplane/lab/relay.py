"""The process between two interfaces of its namespace: frames from one leave by the other, impaired.

    python -m treecast.middleware.dataplane.lab.relay SOCKET SEED IMPAIRMENT_JSON

It reads and writes whole Ethernet frames with AF_PACKET, many per turn, and prints `ready` once frames pass.
The first interface is `end0`. VLAN tags are not kept. Each direction has its own generator, both made from
SEED, so that traffic in one direction does not change the random numbers of the other.
"""

from __future__ import annotations

import gc
import os
import random
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from .impairment import Direction, Impairment
from .messages import DIRECTIONS, MOST_BYTES, Answer, Request
from .plan import RELAY_ENDS

_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_QDISC_BYPASS = 20
_PACKET_IGNORE_OUTGOING = 23
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # beyond the machine's limits, which root may
_BUFFER_BYTES = 32 * 1024 * 1024
_MOST_FRAME = 65_600
_BATCH = 256
_STALE = 1.0


class Relay:
    """Two packet sockets, two directions, and the control socket."""

    def __init__(self, ends: tuple[socket.socket, socket.socket], impairment: Impairment, seed: int) -> None:
        self._ends = ends
        self._directions = tuple(
            Direction(impairment, random.Random(f"{seed} {name}")) for name in DIRECTIONS
        )
        self._missed = 0
        self._refused = 0

    def turn(self, readable: list[int]) -> None:
        """Reads a batch from each readable end, and sends all that is due."""
        for number, direction in enumerate(self._directions):
            if self._ends[number].fileno() in readable:
                self._read(self._ends[number], direction)
            frames = direction.take(time.monotonic())
            if frames:
                self._write(self._ends[1 - number], frames)

    def _read(self, end: socket.socket, direction: Direction) -> None:
        receive, take = end.recv, direction.receive
        now = time.monotonic()
        try:
            for _ in range(_BATCH):
                take(receive(_MOST_FRAME), now)
        except OSError:  # nothing more to read, or the interface went down
            pass

    def _write(self, end: socket.socket, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                end.send(frame)
            # no buffer, too long for this side, or the interface is down: the frame is lost, as on a wire
            except OSError:
                self._refused += 1

    def seconds_to_wait(self) -> float | None:
        """Returns the seconds until a frame is due; None if there is none."""
        times = [due for direction in self._directions if (due := direction.next_due()) is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def answer(self, data: bytes) -> Answer:
        """Executes a request; an invalid one changes nothing."""
        try:
            request = msgspec.json.decode(data, type=Request)
            if request.do == "change":
                self._change(request)
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            return Answer(error=str(error))
        counters = {name: d.counters for name, d in zip(DIRECTIONS, self._directions, strict=True)}
        return Answer("", counters, self._count_missed(), self._refused)

    def _change(self, request: Request) -> None:
        wanted = DIRECTIONS if request.direction == "both" else (request.direction,)
        for name, direction in zip(DIRECTIONS, self._directions, strict=True):
            if name in wanted:
                direction.change(**request.settings)

    def _count_missed(self) -> int:
        """Adds the frames that the kernel missed; its counters restart with each reading."""
        for end in self._ends:
            _, missed = struct.unpack("II", end.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
            self._missed += missed
        return self._missed


def open_end(interface: str) -> socket.socket:
    """Returns a packet socket on an interface that does not receive its own frames."""
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # deaf until it is bound
    end.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    end.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
    end.bind((interface, _ETH_P_ALL))
    end.setblocking(False)
    return end


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(str(path))
    os.chmod(path, 0o600)
    server.listen(16)
    return server


def serve_one(relay: Relay, server: socket.socket) -> None:
    """Answers one request; drops a client that sends none within a second."""
    with suppress(OSError):
        client, _ = server.accept()
        with client:
            client.settimeout(_STALE)
            client.send(msgspec.json.encode(relay.answer(client.recv(MOST_BYTES))))


def main(arguments: list[str]) -> None:
    path, seed, impairment = arguments
    settings = msgspec.json.decode(impairment, type=Impairment)
    ends = (open_end(RELAY_ENDS[0]), open_end(RELAY_ENDS[1]))
    server = listen(Path(path))
    relay = Relay(ends, settings, int(seed))
    gc.freeze()
    print("ready", flush=True)
    watched = [*(end.fileno() for end in ends), server.fileno()]
    while True:
        # select rather than epoll: its time-out has microseconds, and there are only three descriptors
        readable, _, _ = select.select(watched, [], [], relay.seconds_to_wait())
        if server.fileno() in readable:
            serve_one(relay, server)
        relay.turn(readable)


if __name__ == "__main__":
    main(sys.argv[1:])
