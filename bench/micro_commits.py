"""OffsetCommit from many clients: commits a second, the server's CPU for each, and latencies.

    python -m bench.micro_commits [--clients 20] [--seconds 5] [--window 1] [--json]

A daemon on an empty data directory is driven by one process with a connection for each client, each with a
group of its own. A client has `--window` commits on the way, as a consumer that commits after each poll and
does not wait. `--address` measures a server that runs already, such as Apache Kafka, together with `--pid`.
"""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bench.peers.treecast import TreecastPeer
from treecast.middleware.evaluation.processes import cpu_seconds, descendants
from treecast.middleware.load.connection import Connection

TOPIC = "commits"
VERSION = 8
_OFFSET_COMMIT = 8
_START = struct.Struct(">hhih")
_PART = struct.Struct(">iqi")
_SIZE = struct.Struct(">i")


def _compact(text: str) -> bytes:
    raw = text.encode()
    assert len(raw) < 0x7F
    return bytes([len(raw) + 1]) + raw


def request(group: str, offset: int) -> bytes:
    """Returns a framed OffsetCommit of version 8 for partition 0, by nobody's member."""
    head = _START.pack(_OFFSET_COMMIT, VERSION, offset & 0x7FFFFFFF, 5) + b"bench\0"
    member = _compact(group) + _SIZE.pack(-1) + _compact("") + b"\0"
    part = _PART.pack(0, offset, -1) + _compact("") + b"\0"
    body = head + member + b"\2" + _compact(TOPIC) + b"\2" + part + b"\0\0"
    return _SIZE.pack(len(body)) + body


class Client:
    """One connection; `sent` holds when each commit on the way was sent."""

    def __init__(self, address: tuple[str, int], number: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent: deque[float] = deque()
        self._group = f"group-{number}"
        self._offset = 0
        self._received = bytearray()

    def send(self, count: int) -> None:
        frames = [request(self._group, self._offset + n) for n in range(count)]
        self._offset += count
        self.sent.extend([time.perf_counter()] * count)
        self.socket.sendall(b"".join(frames))

    def receive(self) -> list[float]:
        """Returns the latencies of the answers that have come, in s. Raises RuntimeError for a refusal."""
        data = self._received
        data += self.socket.recv(65536)
        now, at, found = time.perf_counter(), 0, []
        while len(data) - at >= _SIZE.size:
            end = at + _SIZE.size + _SIZE.unpack_from(data, at)[0]
            if end > len(data):
                break
            if data[end - 5 : end - 3] != b"\0\0":  # the error code stands before three empty tagged fields
                raise RuntimeError(f"a commit was refused: {bytes(data[at:end])!r}")
            found.append(now - self.sent.popleft())
            at = end
        del data[:at]
        return found


def drive(clients: list[Client], seconds: float, window: int) -> list[float]:
    """Keeps `window` commits of each client on the way for `seconds`. Returns all latencies."""
    selector = selectors.DefaultSelector()
    for client in clients:
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.send(window)
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    while any(client.sent for client in clients):
        goes_on = time.perf_counter() < end
        for key, _ in selector.select():
            answered = key.data.receive()
            latencies += answered
            if goes_on and answered:
                key.data.send(len(answered))
    selector.close()
    return latencies


@contextmanager
def _server(address: str, pid: int, python: str, fsync: str) -> Iterator[tuple[tuple[str, int], list[int]]]:
    """Yields the address of a server and its processes."""
    if address:
        host, _, port = address.rpartition(":")
        yield (host, int(port)), descendants(pid)
        return
    with tempfile.TemporaryDirectory(prefix="bench-commits-") as folder:
        peer = TreecastPeer(python=python, fsync=fsync, parent=Path(folder))
        peer.start()
        try:
            yield peer.address, peer.pids()
        finally:
            peer.stop()


def main(
    clients: Annotated[int, typer.Option(min=1)] = 20,
    seconds: Annotated[float, typer.Option(min=0.1)] = 5.0,
    window: Annotated[int, typer.Option(min=1, help="commits of a client on the way")] = 1,
    fsync: str = "never",
    python: Annotated[str, typer.Option(help="the Python whose treecast is measured")] = sys.executable,
    address: Annotated[str, typer.Option(help="HOST:PORT of a server that runs already")] = "",
    pid: Annotated[int, typer.Option(help="its process")] = 0,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Counts commits a second and the server's CPU for each."""
    with _server(address, pid, python, fsync) as (where, pids):
        with Connection(*where) as connection:
            connection.create_topic(TOPIC, 1)
        made = [Client(where, number) for number in range(clients)]
        drive(made, min(1.0, seconds / 2), window)  # not counted
        before, start = cpu_seconds(pids), time.perf_counter()
        latencies = drive(made, seconds, window)
        took, used = time.perf_counter() - start, cpu_seconds(pids) - before
    cuts = statistics.quantiles(latencies, n=1000)
    found = {
        "clients": clients,
        "window": window,
        "fsync": fsync,
        "commits/s": round(len(latencies) / took),
        "server CPU, µs/commit": round(1e6 * used / len(latencies), 2),
        **{
            name: round(1000 * cuts[at], 3)
            for name, at in (("p50 ms", 499), ("p99 ms", 989), ("p99.9 ms", 998))
        },
    }
    sys.stdout.write(
        json.dumps(found) + "\n" if as_json else "".join(f"{k}: {v}\n" for k, v in found.items())
    )


if __name__ == "__main__":
    typer.run(main)
