"""One end of an MQTT burst as a process: like `burst_kafka.py`, with raw packets of MQTT 3.1.1 and QoS 1.

    burst_mqtt.py produce ADDRESS TOPIC PARTITIONS --records N [--before N] [--size N]
    burst_mqtt.py read ADDRESS TOPIC PARTITIONS

There is one topic, whatever PARTITIONS says. The publisher has a window of unacknowledged messages, and takes
PUBACKs in the order of its messages, as the protocol requires. The subscriber checks each message: its number
and all of its bytes. A repeated, missing or reordered message breaks the sequence.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from ledger import Lane, Ledger, make_value

PRODUCER = 1
WINDOW = 1000  # messages waiting for an acknowledgement
_BLOCK = 250  # messages sent at once
_SAY_EVERY_S = 0.2
_QUIET_S = 0.5
_SILENCE_S = 120.0
_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _SUBSCRIBE, _SUBACK = 0x10, 0x20, 0x32, 0x40, 0x82, 0x90
_IDS = 65_535
_UINT16 = struct.Struct(">H")
_SEQUENCE = struct.Struct("<II")


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def packet(kind: int, body: bytes) -> bytes:
    length, size = b"", len(body)
    while size > 0x7F:
        length += bytes((size & 0x7F | 0x80,))
        size >>= 7
    return bytes((kind,)) + length + bytes((size,)) + body


def text(word: str) -> bytes:
    raw = word.encode()
    return _UINT16.pack(len(raw)) + raw


class Connection:
    """Yields packets as (first byte, body), in the order of arrival."""

    def __init__(self, address: str, client: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(_SILENCE_S)
        self._buffer = b""
        self.socket.sendall(packet(_CONNECT, text("MQTT") + b"\x04\x02\x00\x00" + text(client)))
        self.expect(_CONNACK, b"\0\0")

    def expect(self, kind: int, body: bytes) -> None:
        found = self.packets()
        if found != [(kind, body)]:
            raise ConnectionError(f"{found} came instead of {kind:#x} {body!r}")

    def packets(self) -> list[tuple[int, bytes]]:
        """Returns at least one packet, as soon as it is complete."""
        found: list[tuple[int, bytes]] = []
        while not found:
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the daemon closed the connection")
            self._buffer += data
            found = self._cut()
        return found

    def _cut(self) -> list[tuple[int, bytes]]:
        data, at, found = self._buffer, 0, list[tuple[int, bytes]]()
        whole = len(data)
        while at + 2 <= whole:
            size, shift, begin = data[at + 1] & 0x7F, 7, at + 2
            while data[begin - 1] & 0x80 and begin < whole:
                size |= (data[begin] & 0x7F) << shift
                shift += 7
                begin += 1
            if data[begin - 1] & 0x80 or begin + size > whole:
                break
            found.append((data[at], data[begin : begin + size]))
            at = begin + size
        self._buffer = data[at:]
        return found


class Publishing:
    """Messages are numbered from 0; packet ids wrap around."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.ledger = Ledger()
        self.sent = self.acked = 0
        self._lane = self.ledger.lane(PRODUCER, options.topic)
        self._connection = Connection(options.address, "publisher")

    def encoded(self, first: int, count: int) -> list[bytes]:
        """Returns blocks of encoded messages."""
        topic, size = text(self.options.topic), self.options.size
        messages = [
            packet(_PUBLISH, topic + _UINT16.pack(n % _IDS + 1) + make_value(PRODUCER, n, 0.0, size))
            for n in range(first, first + count)
        ]
        return [b"".join(messages[at : at + _BLOCK]) for at in range(0, count, _BLOCK)]

    def send(self, blocks: list[bytes], count: int) -> None:
        begun = said = time.monotonic()
        end = self.sent + count
        for block in blocks:
            self._connection.socket.sendall(block)
            self.sent = min(end, self.sent + _BLOCK)
            while self.sent - self.acked > WINDOW - _BLOCK:
                self._take()
            if time.monotonic() - said > _SAY_EVERY_S:
                said = time.monotonic()
                say(acked=self.acked, begun=begun)
        while self.acked < end:
            self._take()
        say(acked=self.acked, begun=begun, last=time.monotonic())

    def trickle(self, count: int, rate: float) -> None:
        begun = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            self.send(self.encoded(self.sent, 1), 1)

    def _take(self) -> None:
        for kind, body in self._connection.packets():
            (number,) = _UINT16.unpack(body)
            if (kind, number) != (_PUBACK, self.acked % _IDS + 1):
                raise ConnectionError(f"{kind:#x} {number} came for message {self.acked}")
            self._lane.note(self.acked, self.acked)
            self.acked += 1


def produce(options: argparse.Namespace) -> Ledger:
    publishing = Publishing(options)
    burst = publishing.encoded(options.before, options.records)
    say(ready=True, acked=0)
    for line in sys.stdin:
        match line.split():
            case ["trickle", rate]:
                publishing.trickle(options.before, float(rate))
            case ["go"]:
                publishing.send(burst, options.records)
                break
    return publishing.ledger


class Subscribing:
    """A subscription with QoS 1."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.ledger = Ledger()
        self.count = 0
        self._lane: Lane = self.ledger.lane(PRODUCER, options.topic)
        self._topic = text(options.topic)
        self._rest = make_value(0, 0, 0.0, options.size)[_SEQUENCE.size :]
        self.connection = Connection(options.address, "subscriber")
        request = _UINT16.pack(1) + self._topic + b"\x01"
        self.connection.socket.sendall(packet(_SUBSCRIBE, request))
        self.connection.expect(_SUBACK, _UINT16.pack(1) + b"\x01")

    def receive(self) -> None:
        answers = []
        for kind, body in self.connection.packets():
            at = len(self._topic) + 2
            producer, number = _SEQUENCE.unpack_from(body, at)
            whole = body.startswith(self._topic) and body.endswith(self._rest)
            if kind != _PUBLISH or producer != PRODUCER or not whole:
                self.ledger.problems.append(f"instead of message {self.count}: {kind:#x} {body[:60]!r}")
            self._lane.note(number, number)
            answers.append(b"\x40\x02" + body[at - 2 : at])
            self.count += 1
        self.connection.socket.sendall(b"".join(answers))


def read(options: argparse.Namespace) -> Ledger:
    subscribing = Subscribing(options)
    poll = select.poll()
    messages = subscribing.connection.socket.fileno()
    for source in (sys.stdin.fileno(), messages):
        poll.register(source, select.POLLIN)
    expected, last, said = 2**62, 0.0, 0.0
    ledger = subscribing.ledger
    say(ready=True, read=0)
    while not ledger.problems and (subscribing.count < expected or time.monotonic() < last + _QUIET_S):
        before = subscribing.count
        for fd, _ in poll.poll(_QUIET_S * 1000):
            if fd == messages:
                subscribing.receive()
            else:
                words = sys.stdin.readline().split()
                expected = int(words[1]) if words else 0
        now = time.monotonic()
        last = now if subscribing.count > before else last
        if now > said + _SAY_EVERY_S or before < expected <= subscribing.count:
            say(ready=True, read=subscribing.count, last=last)
            said = now
    return ledger


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("end", choices=("produce", "read"))
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--before", type=int, default=0, help="records sent one by one")
    parser.add_argument("--size", type=int, default=1024)
    options = parser.parse_args()
    ledger = produce(options) if options.end == "produce" else read(options)
    print(json.dumps({"ledger": ledger.as_json()}), flush=True)


if __name__ == "__main__":
    main()
