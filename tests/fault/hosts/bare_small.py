"""A small stream beside a burst, without a fabric: the same processes as in `burst --small`, only sockets.

    bare_small.py origin OWN GROUP TARGET... | receive OWN GROUP
    bare_small.py produce TOTAL | read TOTAL | steady | watch

At the origin, `produce` sends bytes at full speed, and `steady` a record every 10 ms, both by TCP to
`origin`. That one multicasts them; a window that the slowest receiver opens bounds the burst. `receive`
forwards the burst to `read` and the records to `watch`, by TCP, and reports what it has forwarded. Each turn
of a loop takes little from each socket. Nothing is stored, checked or repeated. `burst_bare.py` runs it in
namespaces.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from collections import deque

sys.path.insert(0, __file__.rpartition("/")[0])

from bare_loop import AT_ONCE, SAID, SEGMENT, UDP_GRO, UDP_SEGMENT, WINDOW, opened, spent

HOME = ("127.0.0.1", 7998)
BURST, SMALL = b"B", b"S"
RECORD, STAMP = 100, struct.Struct(">d")  # bytes of a record; when it was due
RATE = 100.0
_BULK = SEGMENT * AT_ONCE
_REPORT_EVERY = 128 * 1024


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def dial(kind: bytes) -> socket.socket:
    for _ in range(500):
        try:
            found = socket.create_connection(HOME, 10)
        except ConnectionRefusedError:
            time.sleep(0.01)
            continue
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.sendall(kind)
        found.settimeout(None)
        return found
    raise SystemExit("nobody listens")


def both(listener: socket.socket) -> dict[bytes, socket.socket]:
    """Returns the connections of the burst and of the small stream."""
    found: dict[bytes, socket.socket] = {}
    while len(found) < 2:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found[connection.recv(1)] = connection
        connection.setblocking(False)
    return found


def origin(own: str, group: str, targets: list[str]) -> None:
    sock = opened(own)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
    size = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", SEGMENT))]
    ends = both(socket.create_server(HOME))
    poll = select.epoll()
    for one in (sock, ends[SMALL]):
        poll.register(one, select.EPOLLIN)
    buffer = bytearray(_BULK)
    said, sent, filled, wants, open_ = dict.fromkeys(targets, 0), 0, 0, False, True
    small = b""
    say(ready=True)
    while open_:
        room = sent - min(said.values()) < WINDOW
        if wants != room:
            wants = room
            if room:
                poll.register(ends[BURST], select.EPOLLIN)
            else:
                poll.unregister(ends[BURST])
        for fd, _ in poll.poll():
            if fd == sock.fileno():
                for _ in range(64):
                    try:
                        data, (address, _) = sock.recvfrom(64)
                    except BlockingIOError:
                        break
                    said[address] = max(said[address], SAID.unpack(data)[0])
            elif fd == ends[SMALL].fileno():
                data = ends[SMALL].recv(1 << 16)
                open_ = bool(data)
                small += data
                while len(small) >= RECORD:
                    sock.sendto(SMALL + small[:RECORD], (group, sock.getsockname()[1]))
                    small = small[RECORD:]
            else:
                count = ends[BURST].recv_into(memoryview(buffer)[filled:])
                if not count:
                    poll.unregister(ends[BURST])
                    return finish(poll, sock, ends[SMALL], group)
                filled += count
                if filled == _BULK:
                    sock.sendmsg([buffer], size, 0, (group, sock.getsockname()[1]))
                    sent, filled = sent + filled, 0


def finish(poll: select.epoll, sock: socket.socket, small: socket.socket, group: str) -> None:
    """Goes on with the small stream alone until it ends."""
    poll.unregister(sock)
    small.setblocking(True)
    while data := small.recv(RECORD, socket.MSG_WAITALL):
        sock.sendto(SMALL + data, (group, sock.getsockname()[1]))
    say(cpu=spent())


def receive(own: str, group: str) -> None:
    sock = opened("")
    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    sock.setsockopt(
        socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(own)
    )
    sock.setblocking(False)
    ends = both(socket.create_server(HOME))
    poll = select.epoll()
    poll.register(sock, select.EPOLLIN)
    waiting: deque[memoryview] = deque()
    forwarded = told = 0
    source = None
    full = False
    buffer = memoryview(bytearray(1 << 16))
    say(ready=True)
    while True:
        for fd, _ in poll.poll():
            if fd == sock.fileno():
                length, _, _, came = sock.recvmsg_into([buffer], 64)
                if length == RECORD + 1:
                    try:
                        ends[SMALL].send(buffer[1:length])
                    except OSError:
                        return
                else:
                    source = came
                    waiting.append(memoryview(bytes(buffer[:length])))
        while waiting:
            try:
                count = ends[BURST].send(waiting[0])
            except BlockingIOError:
                break
            except OSError:
                waiting.clear()
                break
            forwarded += count
            if count < len(waiting[0]):
                waiting[0] = waiting[0][count:]
            else:
                waiting.popleft()
        if bool(waiting) != full:
            full = bool(waiting)
            if full:
                poll.register(ends[BURST], select.EPOLLOUT)
            else:
                poll.unregister(ends[BURST])
        if source and (forwarded - told >= _REPORT_EVERY or (not waiting and forwarded > told)):
            told = forwarded
            sock.sendto(SAID.pack(told), source)


def produce(total: int) -> None:
    sock = dial(BURST)
    chunk = bytes(1 << 20)
    say(ready=True)
    sys.stdin.readline()
    begun, sent = time.monotonic(), 0
    while sent < total:
        size = min(len(chunk), total - sent)
        sock.sendall(memoryview(chunk)[:size])
        sent += size
    say(begun=begun)
    sys.stdin.readline()


def read(total: int) -> None:
    sock = dial(BURST)
    buffer = bytearray(1 << 20)
    count = 0
    say(ready=True)
    while count < total:
        found = sock.recv_into(buffer)
        if not found:
            raise SystemExit("the receiver is gone")
        count += found
    say(last=time.monotonic())
    sys.stdin.readline()


def steady() -> None:
    sock = dial(SMALL)
    say(ready=True)
    begun, number = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], max(0.0, begun + number / RATE - time.monotonic()))[0]:
        sock.sendall(STAMP.pack(begun + number / RATE).ljust(RECORD, b"x"))
        number += 1


def watch() -> None:
    sock = dial(SMALL)
    samples = []
    say(ready=True)
    while data := sock.recv(RECORD, socket.MSG_WAITALL):
        (due,) = STAMP.unpack_from(data)
        samples.append((due, 1e3 * (time.monotonic() - due)))
        if select.select([sys.stdin], [], [], 0)[0]:
            break
    say(samples=samples)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["origin", own, group, *targets]:
            origin(own, group, targets)
        case ["receive", own, group]:
            receive(own, group)
        case ["produce", total]:
            produce(int(total))
        case ["read", total]:
            read(int(total))
        case ["steady"]:
            steady()
        case ["watch"]:
            watch()
