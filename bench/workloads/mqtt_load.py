"""The MQTT load process (see `bench.core.load`): pre-encoded publishes, and subscribers that count bytes.

All publishes of one run have the same length, so received ones are counted and acknowledged by slices over
whole chunks. With `check` every received byte is compared with the sent one. Without it, the kernel discards
and only counts the bytes for QoS 0 subscribers (MSG_TRUNC): so the load, which shares the machine with the
server, costs little. Publishers stay at most `window` messages ahead of the slowest subscriber: neither
server must drop. With `filter` clients speak MQTT 5, payloads are JSON objects, and subscriptions have that
filter, which has to pass all of them.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from typing import Any

from bench.workloads.open_loop import SILENCE, STAMP, OpenLoop, Silent

CHUNK = 1 << 20
FULL = 0.0005  # seconds: wait of a publisher with a full socket, until the server has read
FIVE = 5  # the version of MQTT in which a subscription has a filter
CONNACK, REFUSED = 0x20, 0x80
MOST_BODY = 127  # bytes, of which one says how many
TOPIC = b"bench/topic"


def payload(size: int, filtered: bool) -> bytes:
    """Returns `size` bytes: of any, or of a JSON object whose `n` is 1."""
    if not filtered:
        return b"x" * size
    begin, end = b'{"n": 1, "text": "', b'"}'
    return begin + b"x" * (size - len(begin) - len(end)) + end


def publish(size: int, qos: int, packet_id: int = 0, filtered: bool = False) -> bytes:
    """Returns one PUBLISH with `size` bytes of payload; of MQTT 5, without properties, for filters."""
    body = struct.pack(">H", len(TOPIC)) + TOPIC
    body += struct.pack(">H", packet_id) if qos else b""
    body += (b"\0" if filtered else b"") + payload(size, filtered)
    out, left = bytearray([0x30 | qos << 1]), len(body)
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out) + body


def subscribe(qos: int, filter: str) -> bytes:
    """Returns one SUBSCRIBE; with a filter one of MQTT 5."""
    wanted = struct.pack(">H", len(TOPIC)) + TOPIC + bytes([qos])
    if not filter:
        return bytes([0x82, len(wanted) + 2]) + b"\0\1" + wanted
    pairs = [struct.pack(">H", len(part)) + part for part in (b"x-treecast-filter", filter.encode())]
    given = b"\x26" + b"".join(pairs)  # a user property
    body = b"\0\1" + bytes([len(given)]) + given + wanted
    if len(body) > MOST_BODY:
        raise ValueError(f"the filter {filter!r} is too long for this load")
    return bytes([0x82, len(body)]) + body


def connect(host: str, port: int, name: str, level: int = 4) -> socket.socket:
    """Returns a connected client of version 3.1.1, or 5 (`level`), with a clean session."""
    found = socket.create_connection((host, port), SILENCE)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client_id = name.encode()
    body = bytes.fromhex("00044d515454") + bytes([level]) + bytes.fromhex("020000")
    body += (b"\0" if level == FIVE else b"") + struct.pack(">H", len(client_id)) + client_id
    found.sendall(bytes([0x10, len(body)]) + body)
    _answered(found)
    return found


def _answered(found: socket.socket) -> None:
    """Reads a CONNACK or SUBACK. Raises OSError if it refuses."""
    kind, size = _exactly(found, 2)  # both are shorter than 128 bytes here
    body = _exactly(found, size)
    refused = body[1] if kind == CONNACK else body[-1] >= REFUSED
    if refused:
        raise OSError(f"the server refuses: {body.hex()}")


def _exactly(found: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = found.recv(size - len(data))
        if not more:
            raise OSError("the server closed the connection")
        data += more
    return data


def crosses(near: tuple[str, int], far: tuple[str, int], timeout: float) -> None:
    """Returns once something that was published at `near` has come to a subscriber at `far`."""
    publisher, subscriber = connect(*near, "first"), connect(*far, "last")
    with publisher, subscriber:
        subscriber.sendall(subscribe(0, ""))
        _answered(subscriber)
        subscriber.settimeout(0.1)
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            publisher.sendall(publish(10, 0))
            try:
                if subscriber.recv(CHUNK):
                    break
            except TimeoutError:
                pass
        else:
            raise OSError(f"nothing came in {timeout:.0f} s")
        time.sleep(0.5)  # what else is on its way comes to nobody


class Subscriber:
    """Counts whole packets of `packet` bytes each; acknowledges those of QoS 1. `check`: compares them."""

    def __init__(
        self, host: str, port: int, name: str, qos: int, packet: int, check: bool, filter: str = ""
    ) -> None:
        self.socket = connect(host, port, name, FIVE if filter else 4)
        self.socket.sendall(subscribe(qos, filter))
        _answered(self.socket)
        self._filtered = bool(filter)
        self.socket.setblocking(False)
        self.count = 0
        self.check = check
        self._buffer = memoryview(bytearray(CHUNK + packet))
        self._filled = 0  # the beginning of an incomplete packet
        self._qos = qos
        self._packet = packet
        self._id_at = packet  # position of the packet id in a packet
        self._acks = b""
        self.latencies: list[float] = []
        self.stamped = False

    def receive(self) -> None:
        looks = self.check or self.stamped or bool(self._qos)
        buffer, filled = self._buffer, self._filled
        try:
            if looks:
                count = self.socket.recv_into(buffer[filled:], CHUNK)
            else:
                count = self.socket.recv_into(buffer, CHUNK, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        if not count:
            raise OSError("the server closed the connection")
        whole, self._filled = divmod(filled + count, self._packet)
        if looks and whole:
            self._look(buffer, whole)
            used = whole * self._packet
            buffer[: self._filled] = bytes(buffer[used : used + self._filled])
        self.count += whole

    def _look(self, buffer: memoryview, whole: int) -> None:
        used = whole * self._packet
        if self.check:
            self._compare(buffer, whole)
        if self.stamped:
            now = time.perf_counter()
            at = self._packet - self._payload
            for number in range(whole):
                self.latencies.append(now - STAMP.unpack_from(buffer, number * self._packet + at)[0])
        if self._qos:
            self._acknowledge(buffer, whole, used)

    def _compare(self, buffer: memoryview, whole: int) -> None:
        """Ids of QoS 1 are the server's; all else is as it was sent."""
        wanted = publish(self._payload, self._qos, filtered=self._filtered)
        found = bytearray(buffer[: whole * self._packet])
        if self._qos:
            found[self._id_at :: self._packet] = bytes(whole)
            found[self._id_at + 1 :: self._packet] = bytes(whole)
        if found != wanted * whole:
            raise OSError("what came is not what was sent")

    def set_payload(self, size: int) -> None:
        self._payload = size
        self._id_at = self._packet - size - 2

    def _acknowledge(self, data: memoryview, whole: int, used: int) -> None:
        acks = bytearray(4 * whole)
        acks[0::4], acks[1::4] = b"\x40" * whole, b"\x02" * whole
        acks[2::4] = data[self._id_at : used : self._packet]
        acks[3::4] = data[self._id_at + 1 : used : self._packet]
        self._acks += bytes(acks)
        self.flush()

    def flush(self) -> None:
        if self._acks:
            try:
                self._acks = self._acks[self.socket.send(self._acks) :]
            except BlockingIOError:
                pass


class Publisher:
    """Sends copies of one packet; of QoS 1 with ids from 1 to `window`, over and over."""

    def __init__(
        self, host: str, port: int, name: str, qos: int, size: int, window: int, filtered: bool = False
    ) -> None:
        self.socket = connect(host, port, name, FIVE if filtered else 4)
        self.socket.setblocking(False)
        packets = [publish(size, qos, number % window + 1, filtered) for number in range(window)]
        self.packet = len(packets[0])
        self._ring = memoryview(b"".join(packets))
        self._sent = 0  # bytes
        self.acked = 0
        self._rest = 0

    @property
    def sent(self) -> int:
        return self._sent // self.packet

    def send(self, allowed: int) -> bool:
        """Sends up to message `allowed`; True if the socket is full."""
        end = allowed * self.packet
        while self._sent < end:
            start = self._sent % len(self._ring)
            try:
                self._sent += self.socket.send(self._ring[start : start + min(end - self._sent, 1 << 20)])
            except BlockingIOError:
                return True
        return False

    def receive(self) -> None:
        """Counts PUBACKs."""
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return
        if not data:
            raise OSError("the server closed the connection")
        self._rest += len(data)
        self.acked += self._rest // 4
        self._rest %= 4


class Load:
    """One run of `order`: messages, size, qos, publishers, subscribers, window, single (a packet per
    write), check (compare all that comes). Publishers connect to host and port, subscribers to `far`."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        host, port, size, qos = order["host"], order["port"], order["size"], order["qos"]
        far = order.get("far", (host, port))
        window, filter = order["window"] // order["publishers"], order.get("filter", "")
        self.publishers = [
            Publisher(host, port, f"p{number}", qos, size, max(window, 1), bool(filter))
            for number in range(order["publishers"])
        ]
        self.packet = self.publishers[0].packet
        self.subscribers = [
            Subscriber(far[0], far[1], f"s{number}", qos, self.packet, order["check"], filter)
            for number in range(order["subscribers"])
        ]
        for subscriber in self.subscribers:
            subscriber.set_payload(size)
        self._poll = select.epoll()
        everybody: list[Publisher | Subscriber] = [*self.publishers, *self.subscribers]
        self._by_number = {one.socket.fileno(): one for one in everybody}
        for number in self._by_number:
            self._poll.register(number, select.EPOLLIN)

    def run(self) -> dict[str, Any]:
        order = self.order
        total = order["messages"] // len(self.publishers) * len(self.publishers)
        each = total // len(self.publishers)
        ahead = order["window"] // len(self.publishers)
        began = heard = time.perf_counter()
        slowest = -1
        while True:
            now_slowest = min(subscriber.count for subscriber in self.subscribers)
            if now_slowest != slowest:
                slowest, heard = now_slowest, time.perf_counter()
            if slowest >= total:
                break
            if time.perf_counter() - heard > SILENCE:
                raise OSError(f"{slowest} of {total} messages came, then none for {SILENCE:.0f} s")
            self._receive(self._send(each, slowest // len(self.publishers) + ahead))
        seconds = time.perf_counter() - began
        return {"records": total * len(self.subscribers), "published": total, "seconds": seconds}

    def _send(self, each: int, allowed: int) -> float:
        """Sends as allowed. Returns the seconds to wait for data before the next attempt."""
        until = min(each, allowed)
        if not self.order["single"]:
            full = [publisher.send(until) for publisher in self.publishers]
            return FULL if any(full) else 1.0
        for publisher in self.publishers:
            publisher.send(min(until, publisher.sent + 1))
        return 0.0 if any(publisher.sent < until for publisher in self.publishers) else 1.0

    def _receive(self, wait: float) -> None:
        for number, _ in self._poll.poll(wait):
            self._by_number[number].receive()
        for subscriber in self.subscribers:
            subscriber.flush()

    def latency(self) -> dict[str, Any]:
        """Runs an open loop: `rate` messages a second."""
        order = self.order
        (publisher,) = self.publishers
        subscriber = self.subscribers[0]
        subscriber.stamped = True
        head = publish(order["size"], 0)[: -order["size"]]
        tail = b"x" * (order["size"] - STAMP.size)
        return OpenLoop(
            order["rate"],
            order["messages"],
            publisher.socket,
            lambda stamp: head + stamp + tail,
            self._poll,
            lambda: self._receive(0),
            lambda: subscriber.count,
            subscriber.latencies,
        ).run()


def main() -> int:
    order = json.loads(sys.stdin.readline())
    try:
        load = Load(order)
        print("ready", flush=True)
        sys.stdin.readline()
        result = load.latency() if order.get("rate") else load.run()
    except (OSError, Silent) as error:
        print(json.dumps({"error": f"MQTT load: {error}"}), flush=True)
        return 1
    print(json.dumps({"result": result}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
