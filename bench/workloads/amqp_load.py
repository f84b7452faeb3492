"""The AMQP load process (see `bench.core.load`): pre-encoded publishes, and consumers that count bytes.

Each publisher has a connection, a queue and a consumer of its own. Publishes of a run are equal and go out
many to a system call. All deliveries of a queue have the same length, which the first one shows: a delivery
tag takes 8 bytes, as does the offset of a stream. So they are counted by the size of whole chunks. With
`check` every byte is compared, and every delivery tag. Otherwise the kernel discards and only counts what
consumers receive (MSG_TRUNC), so that the load, which shares the machine with the server, costs little.

Persistent messages are confirmed to the publisher and acknowledged by the consumer, all of a read with one
basic.ack; transient ones are consumed with automatic acknowledgement. A publisher stays at most `window`
messages ahead of its consumer and of its confirms: no queue grows.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import struct
import sys
import time
from typing import Any

from bench.chain import amqp_frames as amqp
from bench.chain.amqp import Client
from bench.workloads.open_loop import SILENCE, STAMP, OpenLoop, Silent
from treecast.middleware.load.frames import LoadError

OFFSET = b"x-stream-offsetl"  # name of a header, and the type of 64 bits
CHUNK = 1 << 20
FULL = 0.0005  # seconds: wait of a publisher with a full socket, until the server has read
RING = 1 << 20  # bytes of repeated publishes
TAG = "c"
_CONFIRM = struct.Struct(">BHIHHQBB")
_CONFIRM_SIZE = 13


def prepare_queues(client: Client, order: dict[str, Any]) -> None:
    """Declares the exchange and empty queues, bound to it by their names; by "" to a fanout exchange. What a
    stream has stays there: its consumer gets what is published from then on."""
    exchange, kind, arguments = order["exchange"], order["kind"], order.get("arguments", {})
    client.call(amqp.declare_exchange(exchange, kind), amqp.EXCHANGE_DECLARE_OK)
    for queue in order["queues"]:
        client.call(amqp.declare_queue(queue, arguments), amqp.QUEUE_DECLARE_OK)
        client.call(amqp.bind(queue, exchange, _key(order, queue)), amqp.QUEUE_BIND_OK)
        if arguments.get("x-queue-type") != "stream":
            client.call(amqp.purge(queue), amqp.QUEUE_PURGE_OK)


def _key(order: dict[str, Any], queue: str) -> str:
    return "" if order["kind"] == "fanout" else queue


class Publisher:
    """Sends copies of one publish. `confirmed`: of persistent ones, how many were confirmed."""

    def __init__(self, order: dict[str, Any], queue: str) -> None:
        client = Client((order["host"], order["port"]))
        self.confirms = bool(order["persistent"])
        if self.confirms:
            client.call(amqp.method(amqp.CONFIRM_SELECT, b"\0"), amqp.CONFIRM_SELECT_OK)
        self.socket, self._left = client.release()
        self.socket.setblocking(False)
        self.frame = amqp.publish(
            order["exchange"], b"x" * order["size"], _key(order, queue), order["persistent"]
        )
        self.size = len(self.frame)
        self._ring = memoryview(self.frame * max(RING // self.size, 1))
        self._bytes = 0
        self.confirmed = 0
        self._upto = 0
        self._early: set[int] = set()  # confirmed before earlier ones

    @property
    def sent(self) -> int:
        return self._bytes // self.size

    def send(self, allowed: int) -> bool:
        """Sends up to message `allowed`; True if the socket is full."""
        end = allowed * self.size
        while self._bytes < end:
            start = self._bytes % len(self._ring)
            try:
                self._bytes += self.socket.send(self._ring[start : start + end - self._bytes])
            except BlockingIOError:
                return True
        return False

    def receive(self) -> None:
        """Counts confirms, single or multiple, in any order."""
        try:
            data = self.socket.recv(CHUNK)
        except BlockingIOError:
            return
        if not data:
            raise LoadError("the server closed the connection")
        data = self._left + data
        whole = len(data) // _CONFIRM.size * _CONFIRM.size
        self._left = data[whole:]
        for kind, _, size, class_id, method, tag, multiple, end in _CONFIRM.iter_unpack(data[:whole]):
            if (kind, size, end) != (amqp.METHOD, _CONFIRM_SIZE, amqp.END) or (class_id, method) != amqp.ACK:
                raise LoadError(f"no confirm of a publish came: {data[:200]!r}")
            self._confirm(tag, multiple)
        self.confirmed = self._upto + len(self._early)

    def _confirm(self, tag: int, multiple: int) -> None:
        if multiple:
            self._upto = max(self._upto, tag)
            self._early = {early for early in self._early if early > self._upto}
        elif tag == self._upto + 1:
            self._upto = tag
        else:
            self._early.add(tag)
        while self._upto + 1 in self._early:
            self._upto += 1
            self._early.remove(self._upto)


class Consumer:
    """Counts messages, and acknowledges persistent ones. `packet`: the size of a delivery, 0: not known."""

    def __init__(self, order: dict[str, Any], queue: str) -> None:
        client = Client(tuple(order["far"]))
        self.acknowledges = bool(order["persistent"])
        client.call(amqp.qos(order["prefetch"]), amqp.QOS_OK)
        client.call(amqp.consume(queue, TAG, self.acknowledges), amqp.CONSUME_OK)
        self.socket, early = client.release()
        self.socket.setblocking(False)
        self.count = 0
        self.packet = 0
        self.filled = len(early)  # bytes of an incomplete message
        self.latencies: list[float] = []
        self.stamped = False
        self._check = bool(order["check"])
        self._body = b"x" * order["size"]
        self._template = b""
        self._numbers: list[int] = []  # positions of the delivery tag, and of a stream's offset, in a message
        self._room = 2 * len(self._body) + 4096
        self._buffer = memoryview(bytearray(CHUNK + self._room))
        self._buffer[: self.filled] = early
        self._acks = b""

    def receive(self) -> None:
        looks = self._check or self.stamped or not self.packet
        try:
            if looks:
                count = self.socket.recv_into(self._buffer[self.filled :], CHUNK)
            else:
                count = self.socket.recv_into(self._buffer, CHUNK, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        if not count:
            raise LoadError("the server closed the connection")
        self.filled += count
        if not self.packet:
            self.packet = self._first()
            if not self.packet:
                return
        whole, self.filled = divmod(self.filled, self.packet)
        if looks and whole:
            self._look(whole)
        self.count += whole
        if whole and self.acknowledges:
            self._acks += amqp.ack(self.count)  # tags count deliveries on the channel from 1
            self.flush()

    def flush(self) -> None:
        if self._acks:
            with contextlib.suppress(BlockingIOError):
                self._acks = self._acks[self.socket.send(self._acks) :]

    def _first(self) -> int:
        """Returns the size of the first message, 0 while it is not whole. It has to be what was published."""
        data = bytes(self._buffer[: min(self.filled, self._room)])
        for kind, start, end in amqp.walk(data, len(data)):
            if kind == amqp.METHOD and amqp.TWO.unpack_from(data, start) != amqp.DELIVER:
                raise LoadError(f"no message came, but {data[start:end]!r}")
            if kind == amqp.METHOD:
                self._numbers = [start + amqp.TWO.size + 1 + data[start + amqp.TWO.size]]
            if kind == amqp.HEADER and (at := data.find(OFFSET, start, end)) >= 0:
                self._numbers.append(at + len(OFFSET))
            if kind == amqp.BODY:
                body = data[start:end]
                if len(body) != len(self._body) or (not self.stamped and body != self._body):
                    raise LoadError("what came is not what was sent")
                self._template = self._without_numbers(data[: end + 1])
                return end + 1
        return 0

    def _without_numbers(self, data: bytes) -> bytes:
        found = bytearray(data)
        size = self.packet or len(found)
        for at in [begin + number for begin in self._numbers for number in range(8)]:
            found[at::size] = bytes(len(found) // size)
        return bytes(found)

    def _look(self, whole: int) -> None:
        used = whole * self.packet
        if self._check:
            data = bytes(self._buffer[:used])
            places = range(self._numbers[0], used, self.packet)
            tags = [int.from_bytes(data[at : at + 8], "big") for at in places]
            if tags != list(range(self.count + 1, self.count + whole + 1)):
                raise LoadError("delivery tags are not consecutive")
            if self._without_numbers(data) != self._template * whole:
                raise LoadError("what came is not what was sent")
        if self.stamped:
            now, at = time.perf_counter(), self.packet - 1 - len(self._body)
            for position in range(at, used, self.packet):
                self.latencies.append(now - STAMP.unpack_from(self._buffer, position)[0])
        self._buffer[: self.filled] = bytes(self._buffer[used : used + self.filled])


class Load:
    """One run of `order`: messages, size, persistent, queues (names), window, prefetch, consumes, check
    (compare all that comes), exchange and its kind. Publishers connect to host and port, consumers to `far`.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        client = Client(tuple(order["far"]))
        prepare_queues(client, order)
        client.release()[0].close()
        self.consumers = [Consumer(order, queue) for queue in order["queues"] if order["consumes"]]
        self.publishers = [Publisher(order, queue) for queue in order["queues"]]
        self._poll = select.epoll()
        everybody: list[Publisher | Consumer] = [*self.publishers, *self.consumers]
        self._by_number = {one.socket.fileno(): one for one in everybody}
        for number in self._by_number:
            self._poll.register(number, select.EPOLLIN)

    def run(self) -> dict[str, Any]:
        each = self.order["messages"] // len(self.publishers)
        began = heard = time.perf_counter()
        slowest = -1
        while True:
            done = [self._done(number) for number in range(len(self.publishers))]
            if min(done) != slowest:
                slowest, heard = min(done), time.perf_counter()
            if slowest >= each:
                break
            if time.perf_counter() - heard > SILENCE:
                raise LoadError(f"{slowest} of {each} messages came, then none for {SILENCE:.0f} s")
            full = [
                publisher.send(min(each, reached + self.order["window"]))
                for publisher, reached in zip(self.publishers, done, strict=True)
            ]
            self._receive(FULL if any(full) else 1.0)
        seconds = time.perf_counter() - began
        self._nothing_more(each)
        return {"records": each * len(self.publishers), "seconds": seconds}

    def close(self) -> None:
        self._poll.close()
        for one in self._by_number.values():
            one.socket.close()

    def _done(self, number: int) -> int:
        """Returns how many messages of a publisher are through."""
        publisher = self.publishers[number]
        confirmed = publisher.confirmed if publisher.confirms else publisher.sent
        return min(confirmed, self.consumers[number].count) if self.consumers else confirmed

    def _receive(self, wait: float) -> None:
        for number, _ in self._poll.poll(wait):
            self._by_number[number].receive()
        for consumer in self.consumers:
            consumer.flush()

    def _nothing_more(self, each: int) -> None:
        for consumer in self.consumers:
            if consumer.count != each or consumer.filled:
                raise LoadError(f"{consumer.count} messages and {consumer.filled} bytes came, not {each}")

    def latency(self) -> dict[str, Any]:
        """Runs an open loop: `rate` messages a second."""
        order = self.order
        (publisher,), (consumer,) = self.publishers, self.consumers
        consumer.stamped = True
        frame, size = publisher.frame, order["size"]
        head, tail = frame[: -size - 1], frame[-size - 1 + STAMP.size :]

        def arrived() -> int:
            return min(consumer.count, publisher.confirmed) if publisher.confirms else consumer.count

        return OpenLoop(
            order["rate"],
            order["messages"],
            publisher.socket,
            lambda stamp: head + stamp + tail,
            self._poll,
            lambda: self._receive(0),
            arrived,
            consumer.latencies,
        ).run()


def crosses(near: tuple[str, int], far: tuple[str, int], exchange: str, queue: str, timeout: float) -> None:
    """Returns once something that was published at `near` has come to a consumer at `far`: to a queue of a
    fanout exchange.
    """
    order = {"host": near[0], "port": near[1], "far": far, "exchange": exchange, "kind": "fanout"}
    order |= {"queues": [queue], "size": 10, "persistent": False, "prefetch": 0, "check": False}
    client = Client(far)
    prepare_queues(client, order)
    client.release()[0].close()
    publisher, consumer = _waited(order, queue, timeout)
    with publisher.socket, consumer.socket:
        until = time.monotonic() + timeout
        while not consumer.count:
            if time.monotonic() > until:
                raise LoadError(f"nothing came in {timeout:.0f} s")
            publisher.send(publisher.sent + 1)
            time.sleep(0.05)
            consumer.receive()
        time.sleep(0.5)  # what else is on its way comes to nobody


def _waited(order: dict[str, Any], queue: str, timeout: float) -> tuple[Publisher, Consumer]:
    """Returns both ends, once the near server knows the exchange."""
    until = time.monotonic() + timeout
    while True:
        client = Client((order["host"], order["port"]))
        try:
            client.call(amqp.declare_exchange(order["exchange"], "fanout"), amqp.EXCHANGE_DECLARE_OK)
            return Publisher(order, queue), Consumer(order, queue)
        except LoadError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        finally:
            client.release()[0].close()


def main() -> int:
    order = json.loads(sys.stdin.readline())
    try:
        with contextlib.closing(Load(order)) as load:
            print("ready", flush=True)
            sys.stdin.readline()
            result = load.latency() if order.get("rate") else load.run()
    except (OSError, LoadError, Silent) as error:
        print(json.dumps({"error": f"AMQP load: {error}"}), flush=True)
        return 1
    print(json.dumps({"result": result}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
