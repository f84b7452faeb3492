"""A bare loop for comparison with AMQP brokers: forwards each queue's publishes to its consumer.

It makes the system calls that a broker cannot avoid, on the bytes of the same load: one receive per chunk,
one send to the consumer; for persistent messages also one write and one fdatasync before one confirm. It
answers the methods with which a load begins. Of publishes it knows only the length, and where properties and
body lie, the same throughout a run; it copies these into deliveries made in advance. It is not a broker; its
result is the machine's limit.

    python -m bench.floor.amqp --port P [--data DIR]
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import struct
import sys
import tempfile

import numpy as np

from bench.chain import amqp_frames as amqp
from bench.floor import lanes

TAG_AT = 13  # position of the delivery tag: frame head (7), method (4), consumer tag (1 + 1)
_TABLE = struct.pack(">I", 0)
ANSWERS = {
    amqp.START_OK: amqp.method(amqp.TUNE, struct.pack(">HIH", 2047, 131_072, 60), 0),
    amqp.OPEN: amqp.method(amqp.OPEN_OK, b"\0", 0),
    amqp.CHANNEL_OPEN: amqp.method(amqp.CHANNEL_OPEN_OK, _TABLE),
    amqp.CONFIRM_SELECT: amqp.method(amqp.CONFIRM_SELECT_OK),
    amqp.QOS: amqp.method(amqp.QOS_OK),
    amqp.EXCHANGE_DECLARE: amqp.method(amqp.EXCHANGE_DECLARE_OK),
    amqp.QUEUE_DECLARE: amqp.method(amqp.QUEUE_DECLARE_OK, amqp.short("q") + struct.pack(">II", 0, 0)),
    amqp.QUEUE_BIND: amqp.method(amqp.QUEUE_BIND_OK),
    amqp.QUEUE_PURGE: amqp.method(amqp.QUEUE_PURGE_OK, _TABLE),
    amqp.CONSUME: amqp.method(amqp.CONSUME_OK, amqp.short("c")),
}
START = amqp.method(amqp.START, b"\0\x09" + _TABLE + _TABLE + _TABLE, 0)


class Lane(lanes.Lane):
    """A connection of a publisher or of a queue's consumer."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.queue = b""  # of a consumer
        self.key = b""  # of a publisher
        self.confirms = False
        self.taken = 0
        self._head = 0  # bytes of the method's frame
        self._ring = np.zeros((0, 0), np.uint8)

    def _begin(self, view: memoryview) -> None:
        if self._buffer.startswith(amqp.PROTOCOL_HEADER):
            self.socket.sendall(START)
            self.keep(len(amqp.PROTOCOL_HEADER))
        used = 0
        for kind, start, end in amqp.walk(self._buffer, self._filled):
            payload = bytes(self._buffer[start:end])
            if kind == amqp.METHOD and amqp.TWO.unpack_from(payload) == amqp.PUBLISH:
                self._head = end + 1 - used
                self._publishes(payload)
            elif kind == amqp.METHOD:
                used = end + 1
                self._method(payload)
            elif kind == amqp.BODY:
                self.packet = end + 1 - used
                self._deliveries(payload)
                break
        self.keep(used)

    def _method(self, payload: bytes) -> None:
        name = amqp.TWO.unpack_from(payload)
        if name == amqp.CONFIRM_SELECT:
            self.confirms = True
        if name == amqp.CONSUME:
            self.queue = payload[7 : 7 + payload[6]]
            self.consumes = True
        if name in ANSWERS:
            self.socket.sendall(ANSWERS[name])

    def _publishes(self, payload: bytes) -> None:
        """Notes exchange and key: they stand in the deliveries too."""
        at = 7 + payload[6]
        self._names = payload[6 : at + 1 + payload[at]]
        self.key = payload[at + 1 : at + 1 + payload[at]]

    def _deliveries(self, body: bytes) -> None:
        fields = amqp.short("c") + bytes(9) + self._names
        method = amqp.method(amqp.DELIVER, fields)
        row = method + bytes(self.packet - self._head)
        rows = lanes.CHUNK // self.packet + 1
        self._ring = np.frombuffer(bytearray(row * rows), np.uint8).reshape(rows, len(row))
        self._content = len(method)

    def deliveries(self, publishes: memoryview) -> memoryview:
        """Returns the same messages as deliveries, valid until the next call."""
        count = len(publishes) // self.packet
        given = np.frombuffer(publishes, np.uint8).reshape(count, self.packet)
        rows = self._ring[:count]
        rows[:, self._content :] = given[:, self._head :]
        tags = np.arange(self.taken + 1, self.taken + count + 1, dtype=">u8")
        rows[:, TAG_AT : TAG_AT + 8] = tags.view(np.uint8).reshape(count, 8)
        return rows.reshape(-1).data

    def confirm(self, publishes: memoryview) -> None:
        self.taken += len(publishes) // self.packet
        if self.confirms:
            self.socket.sendall(amqp.ack(self.taken))
        self.keep(len(publishes))

    def send(self, data: memoryview) -> None:
        """Sends; waits while the socket is full, since the load reads everything."""
        self.socket.sendall(data)


class Loop:
    """Reads all connections of one poll, then sends, then stores, then confirms."""

    def __init__(self, listener: socket.socket, folder: str) -> None:
        self._log = os.open(os.path.join(folder, "log"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        self._poll = lanes.Poll(listener, Lane)

    def run(self) -> None:
        while True:
            came = self._poll.wait()
            for lane, publishes in came:
                self._send(lane, publishes)
            if stored := [publishes for lane, publishes in came if lane.confirms]:
                os.pwritev(self._log, stored, 0)
                os.fdatasync(self._log)
            for lane, publishes in came:
                lane.confirm(publishes)

    def _send(self, publisher: Lane, publishes: memoryview) -> None:
        for lane in self._poll.lanes.values():
            if lane.queue and lane.queue == publisher.key:
                lane.send(publisher.deliveries(publishes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--data", default=tempfile.gettempdir())
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener = socket.create_server(("127.0.0.1", options.port), backlog=1024)
    Loop(listener, options.data).run()


if __name__ == "__main__":
    main()
