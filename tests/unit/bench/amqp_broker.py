"""A stand-in for an AMQP broker: one exchange, one queue, in a thread. It confirms and delivers published
messages; tests choose how it confirms, and whether it delivers twice."""

import contextlib
import socket
import struct
import threading

from bench.chain import amqp_frames as amqp

ANSWERS = {
    amqp.START_OK: amqp.method(amqp.TUNE, struct.pack(">HIH", 2047, 131072, 60), 0),
    amqp.OPEN: amqp.method(amqp.OPEN_OK, b"\0", 0),
    amqp.CHANNEL_OPEN: amqp.method(amqp.CHANNEL_OPEN_OK, b"\0\0\0\0"),
    amqp.CONFIRM_SELECT: amqp.method(amqp.CONFIRM_SELECT_OK),
    amqp.QOS: amqp.method(amqp.QOS_OK),
    amqp.EXCHANGE_DECLARE: amqp.method(amqp.EXCHANGE_DECLARE_OK),
    amqp.QUEUE_DECLARE: amqp.method(amqp.QUEUE_DECLARE_OK, amqp.short("q") + bytes(8)),
    amqp.QUEUE_BIND: amqp.method(amqp.QUEUE_BIND_OK),
    amqp.QUEUE_PURGE: amqp.method(amqp.QUEUE_PURGE_OK, b"\0\0\0\0"),
    amqp.CONSUME: amqp.frame(amqp.HEARTBEAT, 0, b"") + amqp.method(amqp.CONSUME_OK, amqp.short("tag")),
}


class AmqpBroker:
    def __init__(
        self,
        *,
        multiple: bool = False,
        backwards: bool = False,
        copies: int = 1,
        silent_after: int | None = None,
        leaves_after: int | None = None,
    ) -> None:
        self._multiple, self._backwards, self._copies = multiple, backwards, copies
        self._silent_after, self._leaves_after = silent_after, leaves_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._consumer: socket.socket | None = None
        self._consuming = threading.Event()
        self._delivered = 0
        self.acknowledged = 0  # the highest delivery tag
        self.headers: set[bytes] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_until_it_leaves, args=(connected,), daemon=True).start()

    def _serve_until_it_leaves(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError):  # a publisher or consumer may disconnect at any time
            self._serve(connected)

    def _serve(self, connected: socket.socket) -> None:
        data = bytearray()
        published = 0
        with connected:
            while more := connected.recv(1 << 16):
                data += more
                if data.startswith(amqp.PROTOCOL_HEADER):
                    del data[:8]
                    connected.sendall(amqp.method(amqp.START, b"\0\x09\0\0\0\0", 0))
                bodies, used = [], 0
                for kind, start, end in amqp.walk(data, len(data)):
                    used = end + 1
                    payload = bytes(data[start:end])
                    if kind == amqp.METHOD:
                        self._method(connected, payload)
                    elif kind == amqp.HEADER:
                        self.headers.add(payload)
                    elif kind == amqp.BODY:
                        bodies.append(payload)
                del data[:used]
                if self._leaves_after is not None and published + len(bodies) > self._leaves_after:
                    assert self._consumer is not None
                    self._consumer.shutdown(socket.SHUT_RDWR)
                    return
                if self._silent_after is not None:
                    bodies = bodies[: self._silent_after - published]
                if bodies:
                    self._confirm(connected, published, len(bodies))
                    published += len(bodies)
                    self._deliver(bodies)

    def _method(self, connected: socket.socket, payload: bytes) -> None:
        name = amqp.TWO.unpack_from(payload)
        if name == amqp.ACK:
            self.acknowledged = max(self.acknowledged, amqp.read_ack(payload, 0)[0])
        if name == amqp.CONSUME:
            self._consumer = connected
            self._consuming.set()
        if name in ANSWERS:
            connected.sendall(ANSWERS[name])

    def _confirm(self, connected: socket.socket, before: int, count: int) -> None:
        if self._multiple:
            connected.sendall(amqp.ack(before + count))
            return
        tags = range(before + 1, before + count + 1)
        order = reversed(tags) if self._backwards else tags
        connected.sendall(b"".join(amqp.method(amqp.ACK, struct.pack(">QB", tag, 0)) for tag in order))

    def _deliver(self, bodies: list[bytes]) -> None:
        assert self._consuming.wait(10)
        assert self._consumer is not None
        out = bytearray()
        for body in bodies * self._copies:
            self._delivered += 1
            fields = amqp.short("tag") + struct.pack(">QB", self._delivered, 0) + amqp.short("x") * 2
            header = amqp.TWO.pack(60, 0) + struct.pack(">QHB", len(body), 1 << 12, 2)
            out += amqp.method(amqp.DELIVER, fields)
            out += amqp.frame(amqp.HEADER, 1, header) + amqp.frame(amqp.BODY, 1, body)
        half = len(out) // 2 + 1  # cuts a message somewhere in the middle
        self._consumer.sendall(out[:half])
        self._consumer.sendall(out[half:])
