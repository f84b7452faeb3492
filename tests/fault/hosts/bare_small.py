"""A small stream beside a burst, without a fabric: the same processes as in `burst --small`, only sockets.

    bare_small.py origin OWN GROUP SIZE WORK FILE TARGET... | receive OWN GROUP WORK FILE
    bare_small.py produce TOTAL | read TOTAL | steady RATE SIZE | watch SIZE

At the origin, `produce` sends bytes at full speed, and `steady` sends RATE records of SIZE bytes a second,
both by TCP to `origin`. That one multicasts them; a window that the slowest receiver opens bounds the burst.
`receive` forwards the burst to `read` and the records to `watch`, by TCP, and reports what it has forwarded.
Each turn of a loop takes little from each socket. Nothing is checked or repeated. `burst_bare.py` runs it in
namespaces, which end the loops.

With a FILE other than "-", the burst is in batches, which origin and receivers write to it whole and read
from it, as daemons do with theirs; the window is smaller, as that of daemons in this case. WORK: microseconds
of processor time that origin and receivers spend on a KiB of the burst in all, as far as the sockets take
less.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bare_loop import (
    AT_ONCE,
    BATCH_BURSTS,
    PORT,
    SAID,
    SAY_EVERY,
    SEGMENT,
    UDP_GRO,
    UDP_SEGMENT,
    WINDOW,
    opened,
)

HOME = ("127.0.0.1", 7998)
BURST, SMALL = b"B", b"S"  # a connection begins with one of them; so does a datagram of the small stream
STAMP = struct.Struct(">d")  # at the front of a record: when it was due
_BURST_BYTES = SEGMENT * AT_ONCE
_BATCH = BATCH_BURSTS * _BURST_BYTES
_STORED_WINDOW = 128 * 1024
_REPORTS = 64  # that a turn takes
_TRIES, _TRY_EVERY_S = 500, 0.01  # until the other process listens


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def dial(kind: bytes) -> socket.socket:
    for _ in range(_TRIES):
        try:
            found = socket.create_connection(HOME, 10)
        except ConnectionRefusedError:
            time.sleep(_TRY_EVERY_S)
            continue
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.sendall(kind)
        found.settimeout(None)
        return found
    raise SystemExit("nobody listens")


class Work:
    """Spends `cost` microseconds of processor time on a KiB, with what the process has used anyway."""

    def __init__(self, cost: float) -> None:
        self._cost = cost * 1e-6 / 1024
        self._due = 0.0

    def on(self, size: int) -> None:
        """Also for the sockets' calls since the last one: bytes that cost more than their share are not made
        up for."""
        self._due = max(self._due, time.process_time() - self._cost * _BATCH) + self._cost * size
        while time.process_time() < self._due:
            pass


class Middle:
    """Between two clients and the group. `ready`: what to do with a socket that has something to read."""

    def __init__(self, address: str, work: float, file: str) -> None:
        self.work = Work(work)
        self.file = os.open(file, os.O_RDWR | os.O_CREAT) if file != "-" else -1
        self.udp = opened(address)
        self.udp.setblocking(False)
        listener = socket.create_server(HOME)
        self.ends: dict[bytes, socket.socket] = {}
        while len(self.ends) < 2:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ends[connection.recv(1)] = connection
            connection.setblocking(False)
        self.poll = select.epoll()
        self.ready: dict[int, Callable[[], None]] = {}

    def watch(self, sock: socket.socket, ready: Callable[[], None], events: int = select.EPOLLIN) -> None:
        self.ready[sock.fileno()] = ready
        self.poll.register(sock, events)

    def forget(self, sock: socket.socket) -> None:
        del self.ready[sock.fileno()]
        self.poll.unregister(sock)

    def watches(self, sock: socket.socket) -> bool:
        return sock.fileno() in self.ready

    def turn(self, timeout: float | None = None) -> None:
        for number, _ in self.poll.poll(timeout):
            self.ready[number]()


class Origin(Middle):
    def __init__(self, own: str, group: str, size: int, work: float, file: str, targets: list[str]) -> None:
        super().__init__(own, work, file)
        self.udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        self._to = (group, PORT)
        self._size = size
        self._said = dict.fromkeys(targets, 0)
        self._sent = self._filled = 0
        self._stored = 0  # bytes in the file
        self._batch = memoryview(b"")  # what was read of it, and not sent
        self._buffer = bytearray(_BURST_BYTES if self.file < 0 else _BATCH)
        self._records = b""
        self.watch(self.udp, self._reports)
        self.watch(self.ends[SMALL], self._small)

    def run(self) -> None:
        if self.file >= 0:
            self._run_stored()
        burst = self.ends[BURST]
        while True:
            has_room = self._sent - min(self._said.values()) < WINDOW
            if has_room and not self.watches(burst):
                self.watch(burst, self._burst)
            elif not has_room and self.watches(burst):
                self.forget(burst)
            self.turn()

    def _run_stored(self) -> None:
        """The log is the buffer: the producer does not wait for the receivers."""
        self.watch(self.ends[BURST], self._store)
        while True:
            may = self._sent < self._stored and self._sent - min(self._said.values()) < _STORED_WINDOW
            self.turn(0.0 if may else None)
            if may:
                self._send_stored()

    def _store(self) -> None:
        self._filled += self.ends[BURST].recv_into(memoryview(self._buffer)[self._filled :])
        if self._filled == len(self._buffer):
            os.pwrite(self.file, self._buffer, self._stored)
            self._stored += self._filled
            self._filled = 0

    def _send_stored(self) -> None:
        if not self._batch:
            self._batch = memoryview(os.pread(self.file, _BATCH, self._sent))
        part, self._batch = self._batch[:_BURST_BYTES], self._batch[_BURST_BYTES:]
        self.work.on(len(part))
        self._multicast(part)

    def _multicast(self, part: memoryview | bytearray) -> None:
        size = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", SEGMENT))]
        self.udp.sendmsg([part], size, 0, self._to)
        self._sent += len(part)

    def _reports(self) -> None:
        for _ in range(_REPORTS):
            try:
                data, (address, _) = self.udp.recvfrom(64)
            except BlockingIOError:
                return
            self._said[address] = max(self._said[address], SAID.unpack(data)[0])

    def _small(self) -> None:
        self._records += self.ends[SMALL].recv(1 << 16)
        while len(self._records) >= self._size:
            self.udp.sendto(SMALL + self._records[: self._size], self._to)
            self._records = self._records[self._size :]

    def _burst(self) -> None:
        self._filled += self.ends[BURST].recv_into(memoryview(self._buffer)[self._filled :])
        if self._filled == _BURST_BYTES:
            self._multicast(self._buffer)
            self._filled = 0


class Receiver(Middle):
    def __init__(self, own: str, group: str, work: float, file: str) -> None:
        super().__init__("", work, file)
        self.udp.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        member = socket.inet_aton(group) + socket.inet_aton(own)
        self.udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        self._buffer = memoryview(bytearray(1 << 16))
        self._waiting: deque[memoryview] = deque()
        self._forwarded = self._told = self._taken = 0
        self._batch = bytearray()
        self._stored = 0
        self._origin: tuple[str, int] | None = None
        self.watch(self.udp, self._datagrams)

    def run(self) -> None:
        burst = self.ends[BURST]
        while True:
            self.turn()
            self._forward()
            waits = bool(self._waiting) or self._forwarded < self._stored
            if waits and not self.watches(burst):
                self.watch(burst, self._forward, select.EPOLLOUT)
            elif not waits and self.watches(burst):
                self.forget(burst)
            self._report()

    def _datagrams(self) -> None:
        length, _, _, origin = self.udp.recvmsg_into([self._buffer], 64)
        if self._buffer[:1] == SMALL:
            self.ends[SMALL].send(self._buffer[1:length])
        else:
            self._origin = origin
            self._taken += length
            if self.file >= 0:
                self._store(length)
            else:
                self._waiting.append(memoryview(bytes(self._buffer[:length])))

    def _store(self, length: int) -> None:
        self.work.on(length)
        self._batch += self._buffer[:length]
        if len(self._batch) >= _BATCH:
            os.pwrite(self.file, self._batch, self._stored)
            self._stored += len(self._batch)
            self._batch.clear()

    def _forward(self) -> None:
        while self._forwarded < self._stored:
            try:
                count = os.sendfile(self.ends[BURST].fileno(), self.file, self._forwarded, _BATCH)
            except BlockingIOError:
                return
            self._forwarded += count
        while self._waiting:
            try:
                count = self.ends[BURST].send(self._waiting[0])
            except BlockingIOError:
                return
            self._forwarded += count
            if count < len(self._waiting[0]):
                self._waiting[0] = self._waiting[0][count:]
            else:
                self._waiting.popleft()

    def _report(self) -> None:
        found = self._forwarded if self.file < 0 else self._taken
        new = found - self._told
        if self._origin and new and (self.file >= 0 or new >= SAY_EVERY or not self._waiting):
            self._told = found
            self.udp.sendto(SAID.pack(self._told), self._origin)


def produce(total: int) -> None:
    sock, chunk = dial(BURST), memoryview(bytes(1 << 20))
    say(ready=True)
    sys.stdin.readline()
    begun = time.monotonic()
    for at in range(0, total, len(chunk)):
        sock.sendall(chunk[: total - at])
    say(begun=begun)
    sys.stdin.readline()


def read(total: int) -> None:
    sock, buffer = dial(BURST), bytearray(1 << 20)
    say(ready=True)
    left = total
    while left:
        count = sock.recv_into(buffer)
        if not count:
            raise SystemExit("the receiver is gone")
        left -= count
    say(last=time.monotonic())
    sys.stdin.readline()


def steady(rate: float, size: int) -> None:
    sock = dial(SMALL)
    say(ready=True)
    due = time.monotonic()
    while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
        sock.sendall(STAMP.pack(due).ljust(size, b"x"))
        due += 1 / rate


def watch(size: int) -> None:
    """Says samples (when a record was due, in s; its latency in ms) once a line comes on standard input."""
    sock, samples = dial(SMALL), []
    say(ready=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        record = sock.recv(size, socket.MSG_WAITALL)
        if len(record) < size:
            return  # the receiver is gone
        (due,) = STAMP.unpack_from(record)
        samples.append((due, 1e3 * (time.monotonic() - due)))
    say(samples=samples)


def main() -> None:
    match sys.argv[1:]:
        case ["origin", own, group, size, work, file, *targets]:
            origin = Origin(own, group, int(size), float(work), file, targets)
            say(ready=True)
            origin.run()
        case ["receive", own, group, work, file]:
            receiver = Receiver(own, group, float(work), file)
            say(ready=True)
            receiver.run()
        case ["produce", total]:
            produce(int(total))
        case ["read", total]:
            read(int(total))
        case ["steady", rate, size]:
            steady(float(rate), int(size))
        case ["watch", size]:
            watch(int(size))


if __name__ == "__main__":
    main()
