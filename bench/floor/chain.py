"""The bare loop for servers in a row: a record's minimal cost without any processing.

    one:   receive, write to a file, answer the producer, answer the fetch that waits
    two:   receive, write to a file, send by UDP, answer the producer
           receive by UDP, write to a file, answer the fetch that waits

These are the system calls that a chain of brokers cannot avoid, on the bytes of the same load. It checks no
CRC, repairs nothing, keeps no index and is not a broker; it only writes a batch's offset. Batches of one size
that came together leave by one call (UDP_SEGMENT), and the far end receives as many with one (UDP_GRO). The
far end reports how much it has taken. The near end stops reading from its producer while as much is on its
way as a socket holds.

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
_KEPT = 10_000  # chunks for readers that come later
_ANSWER = 1 << 20  # bytes of records in an answer to Fetch, about: readers of this load ask for so many
_WINDOW = 2 << 20  # bytes between the two ends
_CREDIT = 256 << 10  # bytes: when so many have arrived, the near end is told
_DATAGRAMS = 65_507  # bytes of one call
_UDP_SEGMENT, _UDP_GRO = 103, 104
_UDP_ROOM = 8 << 20  # bytes: nothing is repaired, so a stall of this process may not cost a record
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h: beyond the machine's limit, for root
_OFFSET = struct.Struct(">q")
_SEGMENT_SIZE = struct.Struct("=H")
_LAST_DELTA = struct.Struct(">i")  # of the offsets in a batch
_LAST_DELTA_AT = 23


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
    """One end, or both. A fetch waits until there is data; one reader is served.

    `batches` of a partition counts records, as if each batch had one.
    """

    def __init__(self, directory: Path, udp: socket.socket | None, to: int) -> None:
        self.floor = Floor(directory, "sendfile")
        self._udp = udp
        self._to = ("127.0.0.1", to) if to else None
        self._from: tuple[str, int] | None = None  # the near end, as the far one has heard
        self._on_way = 0  # bytes; at the far end those that the near one was not told of
        self._partition: Partition | None = None
        self._topic = ""
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)  # (first offset, batches)
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
        if not whole:
            return
        first, view, batches = partition.batches, memoryview(lane.buffer), []
        for number in range(whole):
            start = number * lane.size
            batch = view[start + lane.first : start + lane.end]
            _OFFSET.pack_into(batch, 0, partition.batches)
            partition.batches += _LAST_DELTA.unpack_from(batch, _LAST_DELTA_AT)[0] + 1
            batches.append(batch)
        if self._to is not None:
            self._send(batches)
        else:
            self._kept.append((first, b"".join(batches)))
        lane.buffer[:rest] = lane.buffer[whole * lane.size : lane.filled]
        lane.filled = rest
        lane.socket.sendall(lane.response * whole)
        self.answer()

    def _send(self, batches: list[memoryview]) -> None:
        """By UDP, as many as one call takes with each; all are of one size."""
        assert self._udp is not None
        assert self._to is not None
        size = len(batches[0])
        most = max(1, min(64, _DATAGRAMS // size))
        control = [(socket.IPPROTO_UDP, _UDP_SEGMENT, _SEGMENT_SIZE.pack(size))]
        for at in range(0, len(batches), most):
            some = batches[at : at + most]
            while self._on_way + len(some) * size > _WINDOW:
                self.credited()
            self._on_way += len(some) * size
            if len(some) == 1:
                self._udp.sendto(some[0], self._to)
            else:
                self._udp.sendmsg(some, control, 0, self._to)

    def credited(self) -> None:
        """Waits until the far end has taken more."""
        assert self._udp is not None
        self._on_way -= _OFFSET.unpack(self._udp.recv(_OFFSET.size))[0]

    def arrived(self) -> None:
        """Receives data from the near end, or credit from the far end."""
        if self._to is not None:
            self.credited()
            return
        assert self._udp is not None
        batches, self._from = self._udp.recvfrom(_DATAGRAMS)
        partition = self._named("bench")
        os.write(partition.file, batches)
        partition.records = 1
        self._kept.append((_OFFSET.unpack_from(batches)[0], batches))
        partition.batches = _end_of(batches)
        self._on_way += len(batches)
        if self._on_way >= _CREDIT:
            self._udp.sendto(_OFFSET.pack(self._on_way), self._from)
            self._on_way = 0
        self.answer()

    # --- to the reader

    def answer(self) -> None:
        """Answers a waiting reader if there is data."""
        reader, kept = self._reader, self._kept
        while kept and kept[0][0] < self._wanted:
            kept.popleft()
        if reader is None or not kept:
            return
        chunks, size = [], 0
        while kept and size < _ANSWER:
            chunks.append(kept.popleft()[1])
            size += len(chunks[-1])
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        head = self._heads.get(size)
        if head is None:
            head = self._heads[size] = frames.fetch_response_head(self._topic, 0, 0, size)
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


def _end_of(batches: bytes) -> int:
    """The offset after the last of equal batches."""
    size = int.from_bytes(batches[8:12], "big") + 12
    last = len(batches) - size
    first: int = _OFFSET.unpack_from(batches, last)[0]
    delta: int = _LAST_DELTA.unpack_from(batches, last + _LAST_DELTA_AT)[0]
    return first + delta + 1


def udp_socket(port: int) -> socket.socket:
    """Returns a socket with room for a stall of seconds, or as much as the machine allows without root."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        udp.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _UDP_ROOM)
    except PermissionError:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _UDP_ROOM)
    udp.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
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
