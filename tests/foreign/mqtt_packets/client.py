"""A client of one MQTT broker, 3.1.1 and 5.0, that takes steps and notes what comes. It has its own codec."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any, Final, NamedTuple

Address = tuple[str, int]

ANSWER_S: Final = 10.0
CLOSED_S: Final = 0.05  # until brokers have noticed that a connection ended
# Reasons of success: none, that nobody has subscribed, and that there was no subscription. Mosquitto does not
# give the second with QoS 2, and not always the third.
UNSAID: Final = b"\0\x10\x11"
ROUNDS: Final = 3  # of pings, until what one client causes has reached the others
SETTLE_S: Final = 0.002  # between them: a broker may answer a ping before it sends what waits for others
V5: Final = 5
CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 2, 3, 4, 5, 6, 7
SUBACK, UNSUBACK, PINGRESP, DISCONNECT = 9, 11, 13, 14
SUBSCRIPTION_IDENTIFIER, TOPIC_ALIAS, EXPIRY = 11, 35, 2  # properties
# property -> size of its value; 0: a length and bytes, -1: two of these, -2: a variable byte integer
SIZES: Final = {1: 1, EXPIRY: 4, 3: 0, 8: 0, 9: 0, SUBSCRIPTION_IDENTIFIER: -2, TOPIC_ALIAS: 2, 38: -1}


class Will(NamedTuple):
    topic: str
    payload: bytes
    qos: int
    retain: bool


class Arrived(NamedTuple):
    """A message as a client sees it. Expiry is in seconds, rounded up to what was sent."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    identifiers: tuple[int, ...]
    properties: tuple[tuple[int, bytes], ...]


class Client:
    """One client, whose connections follow each other. Each method of a step returns what is compared of it.

    `arrived` and `answers` collect messages and acknowledgements until `take`.
    """

    def __init__(self, address: Address, client_id: str) -> None:
        self.arrived: list[Arrived] = []
        self.answers: list[object] = []
        self._address = address
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._data = b""
        self._version = V5
        self._packet_id = 0
        self._held: list[tuple[int, bytes]] | None = None  # acknowledgements, while they are held back

    def take(self) -> tuple[list[Arrived], list[object]]:
        taken = self.arrived, self.answers
        self.arrived, self.answers = [], []
        return taken

    # --- steps

    def connect(self, version: int, clean: bool, expiry: int, will: Will | None) -> object:
        """Takes the session over if the client is connected."""
        before, self._socket, self._data = self._socket, None, b""
        if before is not None:
            before.close()
            time.sleep(CLOSED_S)
        self._version, self._held = version, None
        self._socket = socket.create_connection(self._address, timeout=ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        flags, payload = 2 if clean else 0, text(self._client_id)
        if will is not None:
            flags |= 4 | will.qos << 3 | will.retain << 5
            payload += self._properties(b"") + text(will.topic) + text(will.payload)
        session = b"\x11" + struct.pack(">I", expiry) if expiry else b""
        body = text("MQTT") + bytes([version, flags]) + struct.pack(">H", 600) + self._properties(session)
        self._send(0x10, body + payload)
        kind, answer = self._receive()
        assert kind >> 4 == CONNACK, kind
        self.catch_up()
        return answer[0], answer[1]

    def subscribe(
        self, pattern: str, qos: int, no_local: bool, as_published: bool, handling: int, identifier: int
    ) -> None:
        options = qos
        if self._version == V5:
            options |= no_local << 2 | as_published << 3 | handling << 4
        named = b"\x0b" + variable(identifier) if identifier else b""
        self._send(0x82, self._next_id() + self._properties(named) + text(pattern) + bytes([options]))

    def unsubscribe(self, pattern: str) -> None:
        self._send(0xA2, self._next_id() + self._properties(b"") + text(pattern))

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool, described: bool) -> None:
        properties = b""
        if described:
            pair = b"\x26" + text("k") + text("v")
            properties = b"\x01\x01\x02" + struct.pack(">I", 1000) + b"\x03" + text("kind")
            properties += b"\x08" + text("rt") + b"\x09" + text("c") + pair + pair
        head = 0x30 | qos << 1 | retain
        packet_id = self._next_id() if qos else b""
        self._send(head, text(topic) + packet_id + self._properties(properties) + payload)

    def hold(self) -> None:
        """Holds acknowledgements back from now on."""
        if self._held is None:
            self._held = []

    def acknowledge(self) -> None:
        """Sends the acknowledgements that were held back."""
        held, self._held = self._held or [], None
        for head, packet_id in held:
            self._send(head, packet_id)

    def disconnect(self, hard: bool, with_will: bool) -> None:
        """Ends the connection, without a DISCONNECT if `hard`."""
        if self._socket is None:
            return
        if not hard:
            self._send(0xE0, b"\x04" if with_will and self._version == V5 else b"")
        self._socket.close()
        self._socket = None
        time.sleep(CLOSED_S)

    # --- packets

    def catch_up(self) -> None:
        """Takes what the broker has sent so far."""
        for _ in range(ROUNDS):
            self._send(0xC0, b"")
            try:
                while self._socket is not None and not self._handle(*self._receive()):
                    pass
            except (EOFError, ConnectionError):
                self.answers.append("the connection ends")
                self._close()
            time.sleep(SETTLE_S)

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _send(self, head: int, body: bytes) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendall(bytes([head]) + variable(len(body)) + body)
        except ConnectionError:
            self.answers.append("the connection ends")
            self._close()

    def _properties(self, properties: bytes) -> bytes:
        return variable(len(properties)) + properties if self._version == V5 else b""

    def _next_id(self) -> bytes:
        self._packet_id = self._packet_id % 65_535 + 1
        return struct.pack(">H", self._packet_id)

    def _receive(self) -> tuple[int, bytes]:
        """Returns the next packet's first byte and body."""
        assert self._socket is not None
        while True:
            found = split(self._data)
            if found is not None:
                head, body, self._data = found
                return head, body
            more = self._socket.recv(65_536)
            if not more:
                raise EOFError
            self._data += more

    def _handle(self, head: int, body: bytes) -> bool:
        """Notes a packet. Returns whether it is the answer to a ping."""
        kind = head >> 4
        if kind == PUBLISH:
            self._message(head, body)
        elif kind == PUBREL:
            self._acknowledge(0x70, body[:2])
        elif kind == PUBREC:
            self.answers.append((PUBREC, self._reasons(kind, body)))
            if len(body) < 3 or body[2] < 0x80:
                self._send(0x62, body[:2])
        elif kind in (PUBACK, PUBCOMP, SUBACK, UNSUBACK):
            self.answers.append((kind, self._reasons(kind, body)))
        elif kind == DISCONNECT:
            self.answers.append((kind, body[:1]))
        return kind == PINGRESP

    def _reasons(self, kind: int, body: bytes) -> bytes:
        if kind in (SUBACK, UNSUBACK) and self._version == V5:
            size, at = read_variable(body, 2)
            body = body[at + size - 2 :]
        return body[2:3] if kind == SUBACK else body[2:3].strip(UNSAID)

    def _message(self, head: int, body: bytes) -> None:
        qos = head >> 1 & 3
        size = int.from_bytes(body[:2], "big")
        topic, at = body[2 : 2 + size], 2 + size
        packet_id = body[at : at + 2]
        at += 2 if qos else 0
        identifiers: list[int] = []
        properties: list[tuple[int, bytes]] = []
        if self._version == V5:
            size, at = read_variable(body, at)
            for name, value in read_properties(body[at : at + size]):
                if name == SUBSCRIPTION_IDENTIFIER:
                    identifiers.append(int.from_bytes(value, "big"))
                elif name != TOPIC_ALIAS:
                    properties.append((name, b"" if name == EXPIRY else value))
            at += size
        self.arrived.append(
            Arrived(
                *(topic, body[at:], qos, bool(head & 1), bool(head & 8)),
                *(tuple(sorted(identifiers)), tuple(properties)),
            )
        )
        if qos:
            self._acknowledge(0x40 if qos == 1 else 0x50, packet_id)

    def _acknowledge(self, head: int, packet_id: bytes) -> None:
        if self._held is None:
            self._send(head, packet_id)
        else:
            self._held.append((head, packet_id))


# --- the codec


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def variable(number: int) -> bytes:
    data = b""
    while True:
        number, low = number >> 7, number & 0x7F
        data += bytes([low | (0x80 if number else 0)])
        if not number:
            return data


def read_variable(data: bytes, at: int) -> tuple[int, int]:
    """Returns a variable byte integer and the position after it. Raises IndexError if it is not whole."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return number, at


def split(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Returns the first packet's first byte, its body and the rest; None if it is not whole."""
    try:
        size, at = read_variable(data, 1)
    except IndexError:
        return None
    return (data[0], data[at : at + size], data[at + size :]) if len(data) >= at + size else None


def read_properties(data: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        name, at = data[at], at + 1
        size: Any = SIZES[name]
        if size == -2:
            number, at = read_variable(data, at)
            found.append((name, number.to_bytes(4, "big")))
            continue
        begin = at
        for _ in range(2 if size == -1 else 1):
            at += 2 + int.from_bytes(data[at : at + 2], "big") if size <= 0 else size
        found.append((name, data[begin:at]))
    return found
