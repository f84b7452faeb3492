"""A bare loop for comparison with MQTT brokers: forwards publishers' bytes to subscribers.

It makes the system calls that a broker cannot avoid, on the bytes of the same load: one receive per chunk,
one send per subscriber and turn, for QoS 1 also one send of acknowledgements. It understands CONNECT and
SUBSCRIBE. Of publishes it knows only the length, the same throughout a run, and matches nothing: all
subscribers get all. It is not a broker; its result is the machine's limit.

    python -m bench.floor.mqtt --port P [--udp P | --to P] [--tagged]

With `--to` it is the near one of two: what comes goes to that UDP port instead, in packets as long as the
fabric's on loopback. With `--udp` it is the far one, which receives there. Nothing is repaired. `--tagged`:
each packet carries a tag that the far one checks, as the fabric's segments do (keyed BLAKE3, 128 bits).
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from hmac import compare_digest

from blake3 import blake3

from bench.floor import lanes

PACKET = 65_000  # bytes of a UDP packet on loopback
BURST = 4  # of them in a row, before other work has its turn
ROOM = 32 << 20  # bytes of the far one's socket: the load bounds what is on its way
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h: beyond the machine's limit, for root
_PUBACK = b"\x40\x02"
_KEYED = blake3(key=bytes(32))
_TAG = 16  # bytes


def tag(data: memoryview) -> bytes:
    hashed = _KEYED.copy()
    hashed.update(data)
    return hashed.digest(length=_TAG)


def packet_size(data: bytearray | memoryview, filled: int) -> int:
    """Returns the size of the packet at the start of `data`; 0 while its length is incomplete."""
    size = shift = 0
    for at in range(1, min(filled, 5)):
        size |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return at + 1 + size
        shift += 7
    return 0


class Lane(lanes.Lane):
    """A connection of a publisher or of a subscriber."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._id_at = 0  # position of a publish's packet id in QoS 1; 0: QoS 0

    def _begin(self, view: memoryview) -> None:
        while (size := packet_size(view, self._filled)) and size <= self._filled:
            if view[0] >> 4 == 3:
                self._publishes(view, size)
                return
            self._answer(bytes(view[:size]))
            self.keep(size)

    def taken(self, publishes: memoryview) -> None:
        """Acknowledges publishes that were forwarded."""
        if self._id_at:
            count = len(publishes) // self.packet
            acks = bytearray(_PUBACK + b"\0\0") * count
            acks[2::4] = publishes[self._id_at :: self.packet]
            acks[3::4] = publishes[self._id_at + 1 :: self.packet]
            self.socket.sendall(acks)
        self.keep(len(publishes))

    def _publishes(self, view: memoryview, size: int) -> None:
        self.packet = size
        if view[0] & 6:
            head = 2
            while view[head - 1] > 0x7F:
                head += 1
            self._id_at = head + 2 + (view[head] << 8 | view[head + 1])

    def _answer(self, packet: bytes) -> None:
        if packet[0] >> 4 == 1:
            self.socket.sendall(b"\x20\x02\0\0")
        elif packet[0] >> 4 == 8:
            self.consumes = True
            self.socket.sendall(b"\x90\x03" + packet[2:4] + packet[-1:])

    def send(self, parts: list[memoryview]) -> None:
        """Sends; waits while the socket is full, since the load reads everything."""
        sent = self.socket.sendmsg(parts)
        if sent < sum(map(len, parts)):
            self.socket.sendall(b"".join(parts)[sent:])


class Loop:
    """Reads all connections of one poll, then sends the data to each subscriber, or to the far loop."""

    def __init__(self, listener: socket.socket, udp: int = 0, to: int = 0, tagged: bool = False) -> None:
        self._poll = lanes.Poll(listener, Lane)
        self._tagged = tagged
        self._to = ("127.0.0.1", to) if to else None
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if udp:
            self._udp.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, ROOM)
            self._udp.bind(("127.0.0.1", udp))
            self._udp.setblocking(False)
            self._poll.add(self._udp, self._arrived)

    def run(self) -> None:
        while True:
            came = self._poll.wait()
            if came:
                self._send(came)

    def _arrived(self) -> None:
        parts = []
        for _ in range(BURST):
            try:
                part = memoryview(self._udp.recv(PACKET))
            except BlockingIOError:
                break
            if self._tagged:
                if not compare_digest(part[:_TAG], tag(part[_TAG:])):
                    raise ValueError("a packet's tag is wrong")
                part = part[_TAG:]
            parts.append(part)
        self._send_to_all(parts)

    def _send_to_all(self, parts: list[memoryview]) -> None:
        for lane in self._poll.lanes.values():
            if lane.consumes:
                lane.send(parts)

    def _send(self, came: list[tuple[Lane, memoryview]]) -> None:
        parts = [publishes for _, publishes in came]
        if self._to is None:
            self._send_to_all(parts)
        else:
            for part in parts:
                self._send_on(part)
        for lane, publishes in came:
            lane.taken(publishes)

    def _send_on(self, publishes: memoryview) -> None:
        room = PACKET - _TAG if self._tagged else PACKET
        for at in range(0, len(publishes), room):
            part = publishes[at : at + room]
            head = [tag(part)] if self._tagged else []
            self._udp.sendmsg([*head, part], (), 0, self._to)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--udp", type=int, default=0)
    parser.add_argument("--to", type=int, default=0)
    parser.add_argument("--tagged", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener = socket.create_server(("127.0.0.1", options.port), backlog=1024)
    Loop(listener, options.udp, options.to, options.tagged).run()


if __name__ == "__main__":
    main()
