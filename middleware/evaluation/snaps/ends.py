"""The applications of SNAPS' section IV.B: a publisher and subscribers at hosts of a lab, in one process.

A socket belongs to the namespace in which it was made, so one event loop serves the applications of all
hosts, and all latencies are differences of one clock. A message begins with its number and the time at which
it was written (uint64 each, the time in nanoseconds).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from array import array
from typing import Final

from pamqp import commands

from treecast.agents.rabbitmq.connection import AmqpConnection
from treecast.agents.rabbitmq.inbound import parts_of
from treecast.agents.rabbitmq.session import Confirmed, Delivered, LogIn
from treecast.middleware.api.discovery import Address
from treecast.middleware.dataplane.lab.namespaces import inside
from treecast.shims.amqp.codec_client import publish_head
from treecast.shims.amqp.codec_deliver import write_content

STAMP: Final = struct.Struct("<QQ")
SMALLEST: Final = STAMP.size
WARM: Final = 1 << 40  # numbers of messages of the warm-up begin here
_CONNECT_SECONDS: Final = 10.0
_CHANNEL: Final = 1
_NO_PROPERTIES: Final = b"\0\0"
_KEY: Final = b"reading"


class Application:
    """A connection to a server; implements `connection.Listener`."""

    def __init__(self) -> None:
        self.connection: AmqpConnection | None = None
        self.fault = ""  # why the connection is over

    async def connect(self, namespace: str, address: Address, user: str) -> AmqpConnection:
        """Connects from a namespace. Raises OSError or ConnectionLost."""

        def made() -> socket.socket:
            return socket.create_connection((address.host, address.port), _CONNECT_SECONDS)

        connected = await asyncio.to_thread(inside, namespace, made)
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        log_in = LogIn(user, user, "/", type(self).__name__)
        connection = await AmqpConnection.connect(address, None, log_in, self, connected)
        await connection.open_channel(_CHANNEL)
        self.connection = connection
        return connection

    def delivered(self, run: Delivered) -> None: ...

    def confirmed(self, confirm: Confirmed) -> None: ...

    def blocked(self, reason: str) -> None: ...

    def room(self) -> None: ...

    def closed(self, reason: str) -> None:
        self.fault = reason

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()


class Subscriber(Application):
    """Consumes a queue of its own, bound to an exchange.

    `latencies`: of each message, in the order of their numbers, in nanoseconds; -1: it has not come.
    """

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host
        self.latencies = array("q")
        self.came = 0
        self.twice = 0
        self.first = 0
        self.earlier = 0  # messages of an earlier scenario, late or again
        self.warmed = 0  # messages of the warm-up

    async def consume(self, queue: str, exchange: str) -> None:
        """Makes the queue, which ends with the connection, and begins to consume."""
        assert self.connection is not None
        call = self.connection.call
        await call(_CHANNEL, commands.Queue.Declare(queue=queue, exclusive=True, auto_delete=True))
        await call(_CHANNEL, commands.Queue.Bind(queue=queue, exchange=exchange, routing_key="#"))
        await call(_CHANNEL, commands.Basic.Consume(queue=queue, no_ack=True))

    def begin(self, first: int, count: int) -> None:
        """Expects `count` messages, numbered from `first`."""
        self.first = first
        self.latencies = array("q", [-1]) * count

    def delivered(self, run: Delivered) -> None:
        now = time.monotonic_ns()
        for _, body in parts_of(run.data):
            number, sent = STAMP.unpack_from(body)
            if number >= WARM:
                self.warmed += 1
            elif not 0 <= (place := number - self.first) < len(self.latencies):
                self.earlier += 1
            elif self.latencies[place] >= 0:
                self.twice += 1
            else:
                self.latencies[place] = now - sent
                self.came += 1


class Publisher(Application):
    """Publishes numbered messages of one size to an exchange, at a rate."""

    def __init__(self, exchange: str, size: int, interval: float) -> None:
        """`size` in bytes; `interval` in seconds."""
        super().__init__()
        self._head = publish_head(_CHANNEL, exchange.encode(), _KEY)
        self._filler = bytes(size - SMALLEST)
        self._interval = interval

    def publish(self, number: int) -> None:
        connection = self.connection
        assert connection is not None
        session = connection.session
        body = STAMP.pack(number, time.monotonic_ns()) + self._filler
        session.out.write(self._head)
        content = _NO_PROPERTIES + body
        write_content(session.out, _CHANNEL, session.piece, content, 0, len(_NO_PROPERTIES), len(body))
        connection.flush()

    async def run(self, first: int, count: int) -> None:
        """Publishes messages `first` to `first + count - 1`, one for each interval."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for number in range(count):
            ahead = begun + number * self._interval - loop.time()
            await asyncio.sleep(max(0.0, ahead))
            self.publish(first + number)
