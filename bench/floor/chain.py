"""The bare loop for servers in a row: a record's minimal cost without any processing.

    one:   receive, write to a file, answer the producer, answer the fetch that waits
    two:   receive, write to a file, send by UDP, answer the producer
           receive by UDP, write to a file, answer the fetch that waits

These are the system calls that a chain of brokers cannot avoid, on the bytes of the same load. It checks no
CRC, repairs nothing, keeps no index and is not a broker; it only writes a batch's offset.

    python -m bench.floor.chain --directory D [--port P] [--udp P [--to P]]

Alone it is both ends. With `--udp` it is the far end, which receives on that port; with `--to` the near end,
which sends there.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import struct
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from treecast.middleware.load import frames

from .server import Floor, Partition

_CHUNK = 1 << 20
_KEPT = 10_000  # records for readers that come later
_UDP_ROOM = 8 << 20  # bytes: nothing is repaired, so a stall of this process may not cost a record
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h: beyond the machine's limit, for root
_OFFSET = struct.Struct(">q")


@dataclass
class Lane:
    """A connection. Once it is known to produce, `size` is the length of its frames; all have one record."""

    socket: socket.socket
    buffer: bytearray = field(default_factory=lambda: bytearray(_CHUNK))
    filled: int = 0
    size: int = 0
    first: int = 0  # of a frame's bytes, that belongs to the batch
    end: int = 0
    response: bytes = b""


class Chain:
    """One end, or both. A fetch waits until there is data; one reader is served."""

    def __init__(self, directory: Path, udp: socket.socket | None, to: int) -> None:
        self.floor = Floor(directory, "sendfile")
        self._udp = udp
        self._to = ("127.0.0.1", to) if to else None
        self._partition: Partition | None = None
        self._topic = ""
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._reader: Lane | None = None
        self._wanted = 0
        self._heads: dict[int, bytes] = {}  # of answers to Fetch, by the number of bytes that follow

    # --- from the producer, or from the near end

    def produced(self, lane: Lane, count: int) -> None:
        """Handles `count` more bytes of a producer in its buffer, after earlier ones."""
        partition = self._partition
        assert partition is not None
        os.write(partition.file, memoryview(lane.buffer)[lane.filled : lane.filled + count])
        lane.filled += count
        whole, rest = divmod(lane.filled, lane.size)
        for number in range(whole):
            start = number * lane.size
            batch = lane.buffer[start + lane.first : start + lane.end]
            _OFFSET.pack_into(batch, 0, partition.batches)
            partition.batches += 1
            if self._to is not None and self._udp is not None:
                self._udp.sendto(batch, self._to)
            else:
                self._kept.append((partition.batches - 1, bytes(batch)))
        if whole:
            lane.buffer[:rest] = lane.buffer[whole * lane.size : lane.filled]
            lane.filled = rest
            lane.socket.sendall(lane.response * whole)
            self.answer()

    def arrived(self) -> None:
        """Receives data from the near end."""
        assert self._udp is not None
        batch = self._udp.recv(_CHUNK)
        partition = self._named("bench")
        os.write(partition.file, batch)
        (offset,) = _OFFSET.unpack_from(batch)
        partition.batches, partition.records = offset + 1, 1
        self._kept.append((offset, batch))
        self.answer()

    # --- to the reader

    def answer(self) -> None:
        """Answers a waiting reader if there is data."""
        reader, kept = self._reader, self._kept
        while kept and kept[0][0] < self._wanted:
            kept.popleft()
        if reader is None or not kept:
            return
        data = kept[0][1] if len(kept) == 1 else b"".join([batch for _, batch in kept])
        head = self._heads.get(len(data))
        if head is None:
            head = self._heads[len(data)] = frames.fetch_response_head(self._topic, 0, 0, len(data))
        kept.clear()
        self._reader = None
        reader.socket.sendall(head + data + frames.FETCH_TAIL)

    # --- what a connection says first, and what is neither

    def _named(self, topic: str) -> Partition:
        if self._partition is None:
            self._topic, self._partition = topic, self.floor.partition(topic, 0)
            self._partition.records = 1
        return self._partition

    def request(self, lane: Lane) -> None:
        """Handles the whole frame in the lane."""
        (key,) = struct.unpack_from(">h", lane.buffer, 4)
        if key == frames.PRODUCE:
            self._start_producing(lane)
        elif key == frames.FETCH:
            self._fetch(lane)
        else:
            lane.socket.sendall(self.floor.answer(bytes(lane.buffer[: lane.filled])))
            lane.filled = 0

    def _start_producing(self, lane: Lane) -> None:
        # header 8, client id, tags; transactional id 1, acks 2, timeout 4, one topic 1
        size = 4 + int.from_bytes(lane.buffer[:4], "big")
        position = 4 + 8 + 2 + int.from_bytes(lane.buffer[12:14], "big") + 1 + 1 + 2 + 4 + 1
        length = lane.buffer[position] - 1
        topic = lane.buffer[position + 1 : position + 1 + length].decode()
        position += 1 + length + 1 + 4
        while lane.buffer[position] > 0x7F:
            position += 1
        self._named(topic)
        lane.size, lane.first, lane.end = size, position + 1, size - 3
        lane.response = frames.produce_response(topic, 0, 0)
        filled, lane.filled = lane.filled, 0
        self.produced(lane, filled)

    def _fetch(self, lane: Lane) -> None:
        position = 4 + 8 + 2 + int.from_bytes(lane.buffer[12:14], "big") + 1 + 16 + 9 + 1
        length = lane.buffer[position] - 1
        topic = lane.buffer[position + 1 : position + 1 + length].decode()
        self._named(topic)
        self._wanted = _OFFSET.unpack_from(lane.buffer, position + 1 + length + 1 + 8)[0]
        self._reader, lane.filled = lane, 0
        self.answer()

    def left(self, lane: Lane) -> None:
        if self._reader is lane:
            self._reader = None

    def readable(self, lane: Lane) -> bool:
        """Reads from the connection. Returns False once it is closed."""
        try:
            count = lane.socket.recv_into(memoryview(lane.buffer)[lane.filled :])
        except ConnectionError:
            return False
        if not count:
            return False
        if lane.size:
            self.produced(lane, count)
            return True
        lane.filled += count
        if lane.filled >= 4 and lane.filled >= 4 + int.from_bytes(lane.buffer[:4], "big"):
            self.request(lane)
        return True


def udp_socket(port: int) -> socket.socket:
    """Returns a socket with room for a stall of seconds, or as much as the machine allows without root."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        udp.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _UDP_ROOM)
    except PermissionError:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UDP_ROOM)
    udp.bind(("127.0.0.1", port))
    return udp


def serve(port: int, chain: Chain, udp: socket.socket | None) -> None:
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    chain.floor.port = listener.getsockname()[1]
    print(f"ready {chain.floor.port}", flush=True)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    if udp is not None:
        poll.register(udp, select.EPOLLIN)
    arriving = udp.fileno() if udp is not None else -1
    lanes: dict[int, Lane] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == arriving:
                chain.arrived()
            elif fd == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                lanes[connection.fileno()] = Lane(connection)
                poll.register(connection, select.EPOLLIN)
            elif not chain.readable(lanes[fd]):
                poll.unregister(fd)
                chain.left(lanes[fd])
                lanes.pop(fd).socket.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--udp", type=int, default=0)
    parser.add_argument("--to", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    udp = udp_socket(options.udp) if options.udp or options.to else None
    serve(options.port, Chain(options.directory, udp, options.to), udp)


if __name__ == "__main__":
    main()
