"""One connection of the Kafka face, without I/O: cuts frames out of chunks, keeps replies in order.

A frame is `int32 size | size bytes`, big-endian. The server receives into `receive_buffer()` and then calls
`received(n, now)`. Both happen in one callback of the loop, so all connections share one scratch buffer. A
frame that has arrived only in part gets its own buffer, which the kernel then fills directly. That buffer
grows with the bytes that arrive, so a frame's announced size allocates nothing. From `POOLED_BYTES` on it is
mapped as a whole, and the kernel provides its pages as they are filled: without copies, without a pause for
clearing it, and without memory that stays in the heap. A client of small requests gets only as much of the
scratch buffer as `SHARE` of them take, which bounds the work of one chunk.

A request's frame is a writable memoryview that is valid until `recycle()`. A request that is answered later
needs `Request.keep()` first. Its answer is a `Pending`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from treecast.middleware.model.buffers import Buffer, Chunk

SCRATCH_BYTES = 1024 * 1024
LEAST_SCRATCH = 64 * 1024
SHARE = 128  # requests of one connection per chunk, estimated from the size of its last ones
SMALLEST_BUFFER = 2048
GROWTH = 4  # the buffer of a partial frame is this many times what has arrived of it
POOLED_FROM = 64 * 1024  # frame buffers up to this size are not pooled,
POOLED_BYTES = 4 * 1024 * 1024  # nor are those above this size
POOLED_BUFFERS = 8
MAPPED_READ = 1024 * 1024  # bytes of a mapped frame that are read at once

_PREFIX: Final = 4  # bytes of the size before a frame
_SIZE: Final = struct.Struct(">i")
_SMALLEST: Final = 8  # API key, version, correlation id

_OTHER_PROTOCOLS = {
    b"GET ": "the client speaks HTTP",
    b"POST": "the client speaks HTTP",
    b"PUT ": "the client speaks HTTP",
    b"HEAD": "the client speaks HTTP",
    b"PRI ": "the client speaks HTTP/2",
    b"AMQP": "the client speaks AMQP",
    b"SSH-": "the client speaks SSH",
}


Memory = bytearray | mmap


class FramePool:
    """The receive memory shared by all connections of a face: the scratch buffer and a few frame buffers."""

    def __init__(self, scratch_bytes: int = SCRATCH_BYTES) -> None:
        self.scratch = memoryview(bytearray(scratch_bytes))
        self._free: list[bytearray] = []

    def take(self, size: int, have: int) -> bytearray:
        """Returns a buffer for a frame of `size` bytes, of which `have` have arrived.

        It may be shorter or longer than the frame.
        """
        # A pooled buffer must be larger than the bytes that have come: one that they fill exactly could take
        # no more.
        if size > POOLED_FROM and self._free and len(self._free[-1]) > have:
            return self._free.pop()
        return bytearray(min(size, max(GROWTH * have, SMALLEST_BUFFER)))

    def give(self, buffer: Memory) -> None:
        if not isinstance(buffer, bytearray) or not POOLED_FROM < len(buffer) <= POOLED_BYTES:
            return
        if len(self._free) < POOLED_BUFFERS:
            self._free.append(buffer)


class Request:
    """One request and its place in the order of replies."""

    def __init__(self, frame: memoryview, buffer: Memory | None) -> None:
        self.frame = frame
        self.kept = False  # `frame` is valid until `release`
        self.key = -1  # its API and version, where quotas count it
        self.version = 0
        self._buffer = buffer  # the memory of `frame`, if the request has a buffer of its own
        self.buffers: list[Chunk] = []
        self.done = False

    def keep(self) -> None:
        """Makes `frame` valid beyond `recycle()`."""
        self.kept = True
        if self._buffer is None:
            # A frame in the scratch buffer is copied: the next chunk of any connection overwrites it.
            self.frame = memoryview(bytearray(self.frame))

    def release(self, pool: FramePool) -> None:
        """Returns the frame's own buffer, if it has one, to the pool."""
        if self._buffer is not None:
            self.frame = memoryview(b"")
            pool.give(self._buffer)
            self._buffer = None


Deliver = Callable[["Pending", "list[Chunk] | None"], None]


class Refused(Exception):
    """Raised if the connection must be closed without an answer. The text gives the reason.

    `late`: the client is told after a while. It sends what was never offered, and would connect again at
    once.
    """

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.late = late


class Pending:
    """A deferred answer. The waiter sets `deliver`, which is called once, from the loop.

    `deliver` gets None instead of buffers after an internal error, which is already logged: there is no
    answer. `pipelined`: whether later requests of the connection are served without waiting for this one.
    """

    pipelined = False

    def __init__(self) -> None:
        self.deliver: Deliver | None = None

    def finish(self, buffers: list[Chunk] | None) -> None:
        deliver, self.deliver = self.deliver, None
        if deliver is not None:
            deliver(self, buffers)

    def hurry(self) -> None:
        """Answers with what is available now, because the face is closing. Does nothing by default."""

    def abandon(self) -> None:
        """Discards the answer: nobody waits for it."""
        self.deliver = None


class Session:
    """The state of one connection. `failure` is the reason to close it, or "" if there is none."""

    def __init__(self, pool: FramePool, max_request_bytes: int, max_in_flight: int, now: float) -> None:
        self.failure = ""
        self.last_activity = now
        self._pool = pool
        self._max_request_bytes = self._allowed_bytes = max_request_bytes
        self._max_in_flight = max_in_flight
        self._first = True  # no frame has been seen yet
        # A partial size is kept apart from the scratch buffer, which other connections use before the rest
        # comes.
        self._head = bytearray()  # up to three bytes of a frame's size
        self._frame: Memory | None = None  # the frame that has arrived in part
        self._have = 0
        self._size = 0
        self._room = len(pool.scratch)  # bytes of the scratch buffer that this connection may fill at once
        self._order: deque[Request] = deque()
        self._given: list[Request] = []  # requests whose frames lie in buffers of their own

    def bound(self, largest: int) -> None:
        """Refuses requests above `largest` bytes, as before a log-in; 0: above the face's limit only."""
        self._max_request_bytes = min(largest, self._allowed_bytes) if largest else self._allowed_bytes

    # --- receiving

    @property
    def memory(self) -> int:
        """The bytes that the frame in part needs to be received on: the size of its buffer, or of the next
        larger one if it is full; of a mapped buffer the part that will be filled.
        """
        frame = self._frame
        if frame is None:
            return 0
        if isinstance(frame, bytearray):
            if self._have < len(frame):
                return len(frame)
            if not self._outgrown(frame):
                return min(GROWTH * len(frame), self._size)
        return min(self._have + MAPPED_READ, self._size)

    def forget(self) -> None:
        """Drops all requests: the client has gone."""
        self._frame = None
        self._given.clear()
        self._order.clear()

    @property
    def wants_data(self) -> bool:
        """Whether to read from the connection: no failure, and room for another request."""
        return not self.failure and len(self._order) < self._max_in_flight

    def receive_buffer(self) -> memoryview:
        """Returns the memory that takes the next bytes."""
        frame = self._frame
        if frame is None:
            scratch = self._pool.scratch
            head = len(self._head)
            if head == 0:
                return scratch[: self._room]
            # The bytes kept of a size go in front of the new ones, so that `_cut` reads one piece of memory.
            scratch[:head] = self._head
            return scratch[head : self._room]
        # The buffer grows only when more is about to be read, not when it gets full: the frame may be
        # complete.
        if isinstance(frame, bytearray) and self._have == len(frame):
            frame = self._grow(frame)
        if isinstance(frame, bytearray):
            return memoryview(frame)[self._have : self._size]
        # A mapped buffer is filled in steps: the kernel provides only the pages of the step, and `memory`
        # counts them.
        return memoryview(frame)[self._have : min(self._have + MAPPED_READ, self._size)]

    def _outgrown(self, frame: bytearray) -> bool:
        """Whether the next larger buffer is a mapped one."""
        return min(GROWTH * len(frame), self._size) > POOLED_BYTES

    def _grow(self, frame: bytearray) -> Memory:
        """Replaces a full buffer by a larger one."""
        larger: Memory
        if self._outgrown(frame):
            larger = mmap(-1, self._size, MAP_PRIVATE | MAP_ANONYMOUS)
        else:
            larger = bytearray(min(GROWTH * len(frame), self._size))
        larger[: self._have] = frame[: self._have]
        self._frame = larger
        return larger

    def received(self, size: int, now: float) -> list[Request]:
        """Takes `size` bytes that arrived in `receive_buffer()`. Returns the requests that are complete."""
        self.last_activity = now
        # A connection that has failed ignores what its client had under way.
        if self.failure:
            return []
        if self._frame is None:
            head = len(self._head)
            if head:
                self._head.clear()
            return self._cut(self._pool.scratch, head + size)
        self._have += size
        # Once complete, the frame is alone: the buffer ends with it, so no further request can be behind it.
        if self._have < self._size:
            return []
        buffer = self._frame
        assert buffer is not None
        self._frame = None
        return [self._request(memoryview(buffer)[: self._size], buffer)]

    def receive(self, data: Buffer, now: float) -> list[Request]:
        """As `received`, for bytes in other memory. The returned requests are kept."""
        requests: list[Request] = []
        rest = memoryview(data)
        while len(rest):
            buffer = self.receive_buffer()
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            rest = rest[size:]
            for request in self.received(size, now):
                request.keep()
                requests.append(request)
        return requests

    def recycle(self) -> None:
        """Invalidates all frames that were not kept."""
        if self._given:
            for request in self._given:
                if not request.kept:
                    request.release(self._pool)
            self._given.clear()

    def release(self, request: Request) -> None:
        """Invalidates the frame of a kept request that has been served."""
        request.release(self._pool)

    def _cut(self, data: memoryview, end: int) -> list[Request]:
        requests: list[Request] = []
        position = 0
        while end - position >= _PREFIX:
            size: int = _SIZE.unpack_from(data, position)[0]
            if self._first:
                # The first four bytes tell another protocol apart. Read as a size, they give a far less
                # useful error.
                self._look_at_first(bytes(data[position : position + _PREFIX]))
            if not self._acceptable(size):
                return requests
            position += _PREFIX
            if end - position < size:
                self._begin(data[position:end], size)
                return requests
            requests.append(self._request(data[position : position + size], None))
            position += size
        # Fewer than four bytes: not even the size of the next request is known.
        if position < end:
            self._head += data[position:end]
        if requests:
            # Only requests that are complete say how large this client's requests are.
            self._room = max(SHARE * position // len(requests), LEAST_SCRATCH)
        return requests

    def _look_at_first(self, prefix: bytes) -> None:
        self._first = False
        if prefix in _OTHER_PROTOCOLS:
            self.failure = _OTHER_PROTOCOLS[prefix]
        elif prefix[:2] == b"\x16\x03":
            self.failure = "the client speaks TLS"

    def _acceptable(self, size: int) -> bool:
        if self.failure:
            return False
        if size < 0:
            self.failure = "a negative request size"
        elif size > self._max_request_bytes:
            self.failure = "a request larger than is allowed"
        elif size < _SMALLEST:
            self.failure = "a request too small for its header"
        return not self.failure

    def _begin(self, part: memoryview, size: int) -> None:
        """Starts a frame of which `part` has arrived."""
        have = len(part)
        frame = self._pool.take(size, have)
        frame[:have] = part
        self._frame = frame
        self._have = have
        self._size = size

    def _request(self, frame: memoryview, buffer: Memory | None) -> Request:
        request = Request(frame, buffer)
        self._order.append(request)
        if buffer is not None:
            self._given.append(request)
        return request

    # --- answering

    @property
    def in_flight(self) -> int:
        return len(self._order)

    def reply(self, request: Request, buffers: list[Chunk], now: float) -> None:
        """Records the answer to `request`; no buffers if it gets none (Produce with acks=0)."""
        self.last_activity = now
        request.buffers = buffers
        request.done = True

    def data_to_send(self) -> list[Chunk]:
        """Removes and returns what may be sent: the answers up to the first request that has none yet."""
        out: list[Chunk] = []
        order = self._order
        # Clients match answers to requests by order, so one that is ready waits for those before it.
        while order and order[0].done:
            out += order.popleft().buffers
        return out

    def next_deadline(self, max_idle: float) -> float | None:
        """Returns when `max_idle` seconds without activity will have passed, or None if a request is open."""
        # A fetch may wait longer than `max_idle`, and its client is silent meanwhile for good reason.
        return None if self._order else self.last_activity + max_idle
