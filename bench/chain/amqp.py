"""The AMQP 0-9-1 ends of a load: confirmed publishing at one broker, consuming at another."""

from __future__ import annotations

import socket
from collections.abc import Callable

from bench.core.chain import Route
from treecast.middleware.load.frames import LoadError

from . import amqp_frames as amqp
from .ends import Reply, Sink, Source, connect
from .stamp import MARK, STAMP, Arrivals, payload

WINDOW = 2000  # unconfirmed messages; 16 Kafka batches of 16 KiB hold 2,200 records of 100 B
PREFETCH = 2000  # unacknowledged deliveries
FRAME_MAX = 131_072
USER = PASSWORD = "guest"
_RECEIVE = 1 << 20


class Client:
    """A connection with one channel and blocking calls; its socket then goes to an end of the load."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = connect(address)
        self._data = bytearray()
        self.socket.sendall(amqp.PROTOCOL_HEADER)
        self._expect(amqp.START)
        self.call(amqp.start_ok(USER, PASSWORD), amqp.TUNE)
        self.socket.sendall(amqp.tune_ok(1, FRAME_MAX))
        vhost = amqp.method(amqp.OPEN, amqp.short("/") + b"\0\0", 0)
        self.call(vhost, amqp.OPEN_OK)
        self.call(amqp.method(amqp.CHANNEL_OPEN, b"\0"), amqp.CHANNEL_OPEN_OK)

    def call(self, frame: bytes, expected: tuple[int, int]) -> bytes:
        """Sends a method; returns the fields of the answer."""
        self.socket.sendall(frame)
        return self._expect(expected)

    def release(self) -> tuple[socket.socket, bytes]:
        """Returns the socket, and bytes received after the last answer."""
        return self.socket, bytes(self._data)

    def _expect(self, expected: tuple[int, int]) -> bytes:
        while True:
            for kind, start, end in amqp.walk(self._data, len(self._data)):
                found = bytes(self._data[start:end])
                del self._data[: end + 1]
                if kind == amqp.HEARTBEAT:
                    break
                if kind == amqp.METHOD and amqp.TWO.unpack_from(found) == expected:
                    return found[amqp.TWO.size :]
                raise LoadError(_unexpected(kind, found, expected))
            else:
                more = self.socket.recv(1 << 16)
                if not more:
                    raise LoadError("the server closed the connection")
                self._data += more


def _unexpected(kind: int, found: bytes, expected: tuple[int, int]) -> str:
    if kind == amqp.METHOD:
        name = amqp.TWO.unpack_from(found)
        if name in (amqp.CONNECTION_CLOSE, amqp.CHANNEL_CLOSE):
            return f"the server refused: {amqp.refusal(found, 0, len(found))}"
        return f"method {name} came instead of {expected}"
    return f"a frame of type {kind} came instead of method {expected}"


class AmqpSource(Source):
    """Every frame is a persistent message; confirms count, single or multiple, in any order."""

    def __init__(self, route: Route, body: bytes, copies: int, stamped: bool) -> None:
        client = Client(route.near)
        client.call(amqp.method(amqp.CONFIRM_SELECT, b"\0"), amqp.CONFIRM_SELECT_OK)
        connected, _ = client.release()
        frame = amqp.publish(route.source, body)
        super().__init__(connected, frame, 1, copies, make_stamper(frame) if stamped else None)
        self._early: set[int] = set()  # confirmed before those that were published before them
        self._upto = 0

    @classmethod
    def blasting(cls, route: Route, size: int) -> AmqpSource:
        return cls(route, payload(size), WINDOW, False)

    @classmethod
    def stamping(cls, route: Route, size: int, copies: int) -> AmqpSource:
        return cls(route, payload(size), copies, True)

    def _answers(self, buffer: bytearray, filled: int) -> int:
        used = 0
        for kind, start, end in amqp.walk(buffer, filled):
            if kind == amqp.METHOD:
                if amqp.TWO.unpack_from(buffer, start) != amqp.ACK:
                    raise LoadError(_unexpected(kind, bytes(buffer[start:end]), amqp.ACK))
                self._confirm(*amqp.read_ack(buffer, start))
            used = end + 1
        return used

    def _confirm(self, tag: int, multiple: bool) -> None:
        if multiple:
            self._upto = max(self._upto, tag)
            self._early = {early for early in self._early if early > self._upto}
        elif tag > self._upto:
            self._early.add(tag)
        while self._upto + 1 in self._early:
            self._upto += 1
            self._early.remove(self._upto)
        self.acknowledged = self._upto + len(self._early)


def make_stamper(frame: bytes) -> Callable[[memoryview, int, int], None]:
    stamp_at = frame.index(MARK) + len(MARK)

    def stamp(slot: memoryview, number: int, due: int) -> None:
        STAMP.pack_into(slot, stamp_at, number, due)

    return stamp


class AmqpSink(Sink):
    """Consumes with manual acknowledgement, one for all deliveries in a read of the socket.

    The queue is emptied first: earlier messages are not part of the run.
    """

    framing = (3, 8)

    def __init__(self, route: Route, arrivals: Arrivals | None = None) -> None:
        client = Client(route.far)
        client.call(amqp.purge(route.target), amqp.QUEUE_PURGE_OK)
        client.call(amqp.qos(PREFETCH), amqp.QOS_OK)
        client.call(amqp.consume(route.target), amqp.CONSUME_OK)
        connected, early = client.release()
        super().__init__(connected, arrivals, _RECEIVE)
        self.filled = len(early)
        self._buffer[: len(early)] = early
        self.socket.setblocking(False)

    def reply(self) -> Reply:
        frame = amqp.ack(0)
        return Reply(
            frame, frame.index(amqp.TWO.pack(*amqp.ACK)) + amqp.TWO.size, self.records, records_only=True
        )

    def _took(self, count: int, now: int) -> bool:
        self.filled += count
        before = self.records
        used = self._deliveries(self._buffer, self.filled)
        if self.arrivals is not None:
            self.arrivals.scan(self._view[:used], now)
        rest = self.filled - used
        self._buffer[:rest] = self._buffer[used : self.filled]
        self.filled = rest
        return self.records > before

    def _deliveries(self, buffer: bytearray, filled: int) -> int:
        """Counts messages whose body is whole; returns the bytes of all whole messages."""
        used = 0
        for kind, start, end in amqp.walk(buffer, filled):
            if kind == amqp.BODY:  # smaller than a frame may be: one body frame for each message
                self.records += 1
                used = end + 1
            elif kind == amqp.METHOD and amqp.TWO.unpack_from(buffer, start) != amqp.DELIVER:
                raise LoadError(_unexpected(kind, bytes(buffer[start:end]), amqp.DELIVER))
        return used

    def _answer(self) -> None:
        frame = amqp.ack(self.records)  # tags count deliveries on the channel from 1
        if self.socket.send(frame) != len(frame):
            raise LoadError("the socket did not take an acknowledgement")
