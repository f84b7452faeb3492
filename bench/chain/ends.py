"""The two ends of a load, for any protocol: a source of equal frames, a sink that counts records."""

from __future__ import annotations

import abc
import socket
from collections.abc import Callable
from dataclasses import dataclass

from treecast.middleware.load.frames import LoadError

from .stamp import Arrivals

RING_BYTES = 1 << 20  # approximate size of the buffer of repeated frames, so that one send can carry many
_RECEIVE = 1 << 20

Stamper = Callable[[memoryview, int, int], None]  # writes number and due time (ns) into a frame


class Source(abc.ABC):
    """Sends copies of one frame of `per_frame` records, and counts acknowledgements, in frames.

    With a `stamper`, every copy gets its number and due time in place before it is sent.
    """

    def __init__(
        self, connected: socket.socket, frame: bytes, per_frame: int, copies: int, stamper: Stamper | None
    ) -> None:
        self.socket = connected
        self.socket.setblocking(False)
        self.per_frame = per_frame
        self.acknowledged = 0
        self._frame = frame
        self._size = len(frame)
        self._copies = max(1, min(copies, RING_BYTES // len(frame)))
        self._ring = memoryview(bytearray(frame * self._copies))
        self._stamper = stamper
        self._stamped = 0
        self._sent = 0  # bytes
        self._buffer = bytearray(_RECEIVE)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def send(self, upto: int) -> bool:
        """Sends until `upto` frames have been sent in all. Returns True if the socket's buffer fills up
        before that.
        """
        while self._sent < upto * self._size:
            start = self._sent % len(self._ring)
            try:
                self._sent += self.socket.send(self._ring[start : start + upto * self._size - self._sent])
            except BlockingIOError:
                return True
        return False

    def send_stamped(self, upto: int, due: Callable[[int], int]) -> bool:
        """Does the same with stamps; `due` returns the intended time of frame i (ns)."""
        assert self._stamper is not None
        while True:
            room = min(upto, self._sent // self._size + self._copies)
            for number in range(self._stamped, room):
                start = number % self._copies * self._size
                self._stamper(self._ring[start : start + self._size], number, due(number))
            self._stamped = max(self._stamped, room)
            if self.send(self._stamped):
                return True
            if self._stamped >= upto:
                return False

    def stamped(self, count: int, due: Callable[[int], int]) -> bytearray:
        """Returns the first `count` frames with their stamps, for a caller that sends them itself."""
        assert self._stamper is not None
        frames = bytearray(self._frame * count)
        with memoryview(frames) as view:
            for number in range(count):
                self._stamper(view[number * self._size : (number + 1) * self._size], number, due(number))
        return frames

    def receive(self) -> None:
        """Receives answers. Raises LoadError on any that is not a success."""
        try:
            count = self.socket.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return
        if not count:
            raise self.closed()
        self._took(count)

    def take(self, data: memoryview) -> None:
        """Does the same for bytes that the caller has received."""
        self._view[self._filled : self._filled + len(data)] = data
        self._took(len(data))

    def closed(self) -> LoadError:
        return LoadError(f"the server closed the sender's connection after {self.acknowledged} answers")

    def _took(self, count: int) -> None:
        self._filled += count
        used = self._answers(self._buffer, self._filled)
        rest = self._filled - used
        self._buffer[:rest] = self._buffer[used : self._filled]
        self._filled = rest

    @abc.abstractmethod
    def _answers(self, buffer: bytearray, filled: int) -> int:
        """Counts the whole answers at the front of `buffer`. Returns their size in bytes."""

    def close(self) -> None:
        self.socket.close()


@dataclass(frozen=True, slots=True)
class Reply:
    """A sink's reply to received data: `frame` with a count of records, 8 bytes at `at`.

    It counts from `base`. One is sent for every read that completes an answer or, with `records_only`, an
    answer with records.
    """

    frame: bytes
    at: int
    base: int
    records_only: bool


class Sink(abc.ABC):
    """Counts the records that come. With `arrivals` it looks at every one's stamp as well."""

    # position of an answer's length (4 bytes, big-endian); bytes that it does not count
    framing: tuple[int, int]

    def __init__(self, connected: socket.socket, arrivals: Arrivals | None, room: int) -> None:
        self.socket = connected
        self.records = 0
        self.arrivals = arrivals
        self._buffer = bytearray(room)
        self._view = memoryview(self._buffer)
        self.filled = 0  # of the buffer

    def receive(self, clock: Callable[[], int]) -> None:
        """Receives, and requests more. `clock` returns nanoseconds."""
        try:
            count = self.socket.recv_into(self._view[self.filled :])
        except BlockingIOError:
            return
        if not count:
            raise self.closed()
        if self._took(count, clock()):
            self._answer()

    def take(self, data: memoryview, now: int) -> None:
        """Takes bytes that the caller has received, and answered, at `now` (ns)."""
        self._view[self.filled : self.filled + len(data)] = data
        self._took(len(data), now)

    def closed(self) -> LoadError:
        return LoadError("the server closed the receiver's connection")

    @abc.abstractmethod
    def reply(self) -> Reply:
        """Returns the reply to data from now on."""

    @abc.abstractmethod
    def _took(self, count: int, now: int) -> bool:
        """Handles `count` more bytes in the buffer. Returns whether to answer."""

    @abc.abstractmethod
    def _answer(self) -> None:
        """Asks for more, or acknowledges."""

    def close(self) -> None:
        self.socket.close()


def connect(address: tuple[str, int]) -> socket.socket:
    """Returns a blocking connection without Nagle's delay."""
    connected = socket.create_connection(address, 30)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected
