"""A small stream beside a burst, without a fabric: the same processes as in `burst --small`, only sockets.

    bare_small.py origin OWN GROUP SIZE TARGET... | receive OWN GROUP
    bare_small.py produce TOTAL | read TOTAL | steady RATE SIZE | watch SIZE

At the origin, `produce` sends bytes at full speed, and `steady` sends RATE records of SIZE bytes a second,
both by TCP to `origin`. That one multicasts them; a window that the slowest receiver opens bounds the burst.
`receive` forwards the burst to `read` and the records to `watch`, by TCP, and reports what it has forwarded.
Each turn of a loop takes little from each socket. Nothing is stored, checked or repeated. `burst_bare.py`
runs it in namespaces, which end the loops.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bare_loop import AT_ONCE, PORT, SAID, SAY_EVERY, SEGMENT, UDP_GRO, UDP_SEGMENT, WINDOW, opened

HOME = ("127.0.0.1", 7998)
BURST, SMALL = b"B", b"S"  # a connection begins with one of them; so does a datagram of the small stream
STAMP = struct.Struct(">d")  # at the front of a record: when it was due
_BURST_BYTES = SEGMENT * AT_ONCE
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


class Middle:
    """Between two clients and the group. `ready`: what to do with a socket that has something to read."""

    def __init__(self, address: str) -> None:
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

    def turn(self) -> None:
        for number, _ in self.poll.poll():
            self.ready[number]()


class Origin(Middle):
    def __init__(self, own: str, group: str, size: int, targets: list[str]) -> None:
        super().__init__(own)
        self.udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        self._to = (group, PORT)
        self._size = size
        self._said = dict.fromkeys(targets, 0)
        self._sent = self._filled = 0
        self._buffer = bytearray(_BURST_BYTES)
        self._records = b""
        self.watch(self.udp, self._reports)
        self.watch(self.ends[SMALL], self._small)

    def run(self) -> None:
        burst = self.ends[BURST]
        while True:
            has_room = self._sent - min(self._said.values()) < WINDOW
            if has_room and not self.watches(burst):
                self.watch(burst, self._burst)
            elif not has_room and self.watches(burst):
                self.forget(burst)
            self.turn()

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
            size = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", SEGMENT))]
            self.udp.sendmsg([self._buffer], size, 0, self._to)
            self._sent, self._filled = self._sent + self._filled, 0


class Receiver(Middle):
    def __init__(self, own: str, group: str) -> None:
        super().__init__("")
        self.udp.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        member = socket.inet_aton(group) + socket.inet_aton(own)
        self.udp.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        self._buffer = memoryview(bytearray(1 << 16))
        self._waiting: deque[memoryview] = deque()
        self._forwarded = self._told = 0
        self._origin: tuple[str, int] | None = None
        self.watch(self.udp, self._datagrams)

    def run(self) -> None:
        burst = self.ends[BURST]
        while True:
            self.turn()
            self._forward()
            if self._waiting and not self.watches(burst):
                self.watch(burst, self._forward, select.EPOLLOUT)
            elif not self._waiting and self.watches(burst):
                self.forget(burst)
            self._report()

    def _datagrams(self) -> None:
        length, _, _, origin = self.udp.recvmsg_into([self._buffer], 64)
        if self._buffer[:1] == SMALL:
            self.ends[SMALL].send(self._buffer[1:length])
        else:
            self._origin = origin
            self._waiting.append(memoryview(bytes(self._buffer[:length])))

    def _forward(self) -> None:
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
        new = self._forwarded - self._told
        if self._origin and new and (new >= SAY_EVERY or not self._waiting):
            self._told = self._forwarded
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
        (due,) = STAMP.unpack_from(sock.recv(size, socket.MSG_WAITALL))
        samples.append((due, 1e3 * (time.monotonic() - due)))
    say(samples=samples)


def main() -> None:
    match sys.argv[1:]:
        case ["origin", own, group, size, *targets]:
            origin = Origin(own, group, int(size), targets)
            say(ready=True)
            origin.run()
        case ["receive", own, group]:
            receiver = Receiver(own, group)
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
