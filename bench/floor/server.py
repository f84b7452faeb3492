"""A bare loop: receive, write to a file, answer; for reading: receive, send a part of a file.

It makes the system calls that a broker cannot avoid, once per chunk, on the bytes of the same load
generators, and inspects as little as possible: after a connection's first request it only counts lengths. It
checks no CRC, keeps no index and is not a broker. Its result is the floor of DESIGN section 10: a target
ratio counts as reached at 90 % of it.

    python -m bench.floor.server --port P --directory D [--read sendfile|mmap]
"""

from __future__ import annotations

import argparse
import mmap
import os
import select
import signal
import socket
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

from treecast.middleware.load import frames

CHUNK = 1 << 20
# Its log is written in pieces of a producer's data in flight, with a window of 16 batches of 16 KiB: no
# answering broker gets more to write at once, and the kernel sends data faster that arrived in large pieces.
LOG_WRITE = 256 * 1024
_BATCH_COUNT = 57  # position of the number of records (int32) in a batch


@dataclass
class Partition:
    """The state of a partition: all batches are equal, so that an offset gives a position."""

    topic: str
    number: int
    path: Path
    batch: bytes = b""
    records: int = 0  # in one batch
    batches: int = 0
    file: int = -1  # produced data is written here as it arrives
    log: int = -1  # the batches alone, for reading
    view: mmap.mmap | None = None

    @property
    def end(self) -> int:
        return self.batches * self.records

    def build_log(self) -> None:
        """Writes the content of a broker's log: the batches in order, with their offsets."""
        self.log = os.open(self.path.with_suffix(".log"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        batch = bytearray(self.batch)
        with open(self.log, "wb", buffering=LOG_WRITE, closefd=False) as sink:
            for number in range(self.batches):
                struct.pack_into(">q", batch, 0, number * self.records)
                sink.write(batch)
        self.view = mmap.mmap(self.log, self.batches * len(batch), prot=mmap.PROT_READ)


class Floor:
    """The server's state: partitions and connections."""

    def __init__(self, directory: Path, read: str) -> None:
        self.directory, self.read = directory, read
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.port = 0

    def partition(self, topic: str, number: int) -> Partition:
        key = (topic, number)
        if key not in self.partitions:
            path = self.directory / f"{topic}-{number}.frames"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self.partitions[key] = Partition(topic, number, path, file=file)
        return self.partitions[key]

    def answer(self, frame: bytes) -> bytes:
        """Returns the calls around a load run, in the old encoding."""
        key, _, correlation = struct.unpack_from(">hhi", frame, 4)
        body = 4 + 8 + 2 + int.from_bytes(frame[12:14], "big")
        if key == frames.API_VERSIONS:
            rest = struct.pack(">hi", 0, 0)
        elif key == frames.METADATA:
            rest = self._metadata(frame, body)
        elif key == frames.CREATE_TOPICS:
            name, _ = _string(frame, body + 4)
            rest = struct.pack(">ii", 0, 1) + _packed(name) + struct.pack(">hh", 0, -1)
        else:
            rest = self._offset(frame, body)
        return struct.pack(">ii", len(rest) + 4, correlation) + rest

    def _metadata(self, frame: bytes, position: int) -> bytes:
        (count,) = struct.unpack_from(">i", frame, position)
        out = struct.pack(">iii", 0, 1, 1) + _packed("127.0.0.1") + struct.pack(">ihhi", self.port, -1, -1, 1)
        out += struct.pack(">i", max(count, 0))
        position += 4
        for _ in range(max(count, 0)):
            name, position = _string(frame, position)
            out += struct.pack(">h", 0) + _packed(name) + struct.pack(">bi", 0, 64)
            out += b"".join(struct.pack(">hiiii", 0, number, 1, 0, 0) for number in range(64))
        return out

    def _offset(self, frame: bytes, position: int) -> bytes:
        name, position = _string(frame, position + 8)
        number, timestamp = struct.unpack_from(">iq", frame, position + 4)
        partition = self.partition(name, number)
        if timestamp == frames.EARLIEST and partition.batches:
            partition.build_log()
        offset = 0 if timestamp == frames.EARLIEST else partition.end
        return struct.pack(">i", 1) + _packed(name) + struct.pack(">iihqq", 1, number, 0, -1, offset)


def _packed(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, position)
    position += 2
    return data[position : position + size].decode(), position + size


@dataclass
class Lane:
    """A connection. `size` is the length of its frames once it is known to produce."""

    socket: socket.socket
    floor: Floor
    buffer: bytearray = field(default_factory=lambda: bytearray(CHUNK))
    filled: int = 0
    size: int = 0
    into: Partition | None = None
    source: Partition | None = None
    response: bytes = b""
    position: int = 0  # of a fetch answer that is on its way, in the log
    left: int = 0
    outgoing: bool = False

    def readable(self) -> bool:
        """Reads from the connection. Returns False once it is closed."""
        view = memoryview(self.buffer)
        try:
            if self.into is not None:
                count = self.socket.recv_into(self.buffer)
                return bool(count) and self._more_produced(view[:count])
            count = self.socket.recv_into(view[self.filled :])
        except ConnectionError:
            return False
        if not count:
            return False
        self.filled += count
        if self.filled >= 4:
            size = 4 + int.from_bytes(self.buffer[:4], "big")
            if size > len(self.buffer):
                self.buffer += bytes(size - len(self.buffer))
            if self.filled >= size:
                self._first(size)
        return True

    def _first(self, size: int) -> None:
        """Handles a connection's first whole frame, which determines its use, or answers it."""
        (key,) = struct.unpack_from(">h", self.buffer, 4)
        if key == frames.PRODUCE:
            self._start_producing(size)
        elif key == frames.FETCH:
            self._fetch()
            self.filled = 0
        else:
            self.socket.sendall(self.floor.answer(bytes(self.buffer[:size])))
            self.filled -= size
            self.buffer[: self.filled] = self.buffer[size : size + self.filled]

    def _start_producing(self, size: int) -> None:
        # header 8, client id, tags; transactional id 1, acks 2, timeout 4, one topic 1
        position = 4 + 8 + 2 + int.from_bytes(self.buffer[12:14], "big") + 1 + 1 + 2 + 4 + 1
        length = self.buffer[position] - 1
        topic = self.buffer[position + 1 : position + 1 + length].decode()
        position += 1 + length + 1
        (number,) = struct.unpack_from(">i", self.buffer, position)
        position += 4
        while self.buffer[position] > 0x7F:
            position += 1
        batch = bytes(self.buffer[position + 1 : size - 3])
        self.into = partition = self.floor.partition(topic, number)
        partition.batch = batch
        (partition.records,) = struct.unpack_from(">i", batch, _BATCH_COUNT)
        self.size = size
        self.response = frames.produce_response(topic, number, 0)
        filled, self.filled = self.filled, 0
        self._more_produced(memoryview(self.buffer)[:filled])

    def _more_produced(self, chunk: memoryview) -> bool:
        partition = self.into
        assert partition is not None
        os.write(partition.file, chunk)
        whole, self.filled = divmod(self.filled + len(chunk), self.size)
        if whole:
            partition.batches += whole
            self.socket.sendall(self.response * whole)
        return True

    def _fetch(self) -> None:
        position = 4 + 8 + 2 + int.from_bytes(self.buffer[12:14], "big") + 1
        (max_bytes,) = struct.unpack_from(">i", self.buffer, position + 12)
        position += 16 + 9 + 1
        length = self.buffer[position] - 1
        topic = self.buffer[position + 1 : position + 1 + length].decode()
        number, _, offset = struct.unpack_from(">iiq", self.buffer, position + 1 + length + 1)
        partition = self.source = self.floor.partition(topic, number)
        batch = len(partition.batch)
        self.position = offset // partition.records * batch
        self.left = max(min(max_bytes // batch * batch, partition.batches * batch - self.position), 0)
        head = frames.fetch_response_head(topic, number, partition.end, self.left)
        self.socket.send(head, socket.MSG_MORE)
        self.continue_fetch()

    def continue_fetch(self) -> None:
        """Sends as much as the socket accepts; `outgoing` tells whether some is left."""
        partition = self.source
        assert partition is not None
        while self.left:
            try:
                if self.floor.read == "sendfile":
                    count = os.sendfile(self.socket.fileno(), partition.log, self.position, self.left)
                else:
                    assert partition.view is not None
                    with memoryview(partition.view) as view:
                        count = self.socket.send(view[self.position : self.position + self.left])
            except BlockingIOError:
                self.outgoing = True
                return
            self.position += count
            self.left -= count
        self.outgoing = False
        self.socket.send(frames.FETCH_TAIL)


def serve(port: int, directory: Path, read: str) -> None:
    floor = Floor(directory, read)
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    floor.port = listener.getsockname()[1]
    print(f"ready {floor.port}", flush=True)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    lanes: dict[int, Lane] = {}
    while True:
        for fd, event in poll.poll():
            if fd == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setblocking(False)
                lanes[connection.fileno()] = Lane(connection, floor)
                poll.register(connection, select.EPOLLIN)
                continue
            lane = lanes[fd]
            before = lane.outgoing
            if event & select.EPOLLOUT:
                lane.continue_fetch()
            elif not lane.readable():
                poll.unregister(fd)
                lanes.pop(fd).socket.close()
                continue
            if lane.outgoing != before:
                poll.modify(fd, select.EPOLLOUT if lane.outgoing else select.EPOLLIN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--read", choices=("sendfile", "mmap"), default="sendfile")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serve(options.port, options.directory, options.read)


if __name__ == "__main__":
    main()
