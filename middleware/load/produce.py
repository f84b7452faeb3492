"""The blaster: pre-encoded Produce requests, many per system call, with a window of them in flight.

Each connection writes to its own partition. Nothing is encoded during the run, one send carries as many
requests as the window allows, and a response is checked by its length and its error code, so that the client
costs little beyond the kernel's work to move the bytes.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass

from .frames import LoadError, produce_error_position, produce_request

SILENCE = 30  # seconds without any answer after which a run ends
_RECEIVE = 1 << 18
_RING_BYTES = 1 << 22  # approximate size of the buffer of repeated requests, so that one send can carry many


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """The acknowledged requests between the first send and the last response. `bytes` are of record
    batches.
    """

    requests: int
    records: int
    bytes: int
    seconds: float


class _Lane:
    """One connection: sends copies of one frame, counts good answers."""

    def __init__(self, host: str, port: int, frame: bytes, requests: int, window: int, error_at: int) -> None:
        self._socket = socket.create_connection((host, port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        copies = max(1, min(window, _RING_BYTES // len(frame), requests))
        self._ring = memoryview(frame * copies)
        self._frame_size = len(frame)
        self._window = window
        self._requests = requests
        self._sent = 0  # bytes
        self._answered = 0
        self._error_at = error_at
        self._buffer = bytearray(_RECEIVE)
        self._view = memoryview(self._buffer)
        self._filled = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def done(self) -> bool:
        return self._answered >= self._requests

    def close(self) -> None:
        self._socket.close()

    def send(self) -> bool:
        """Sends as much as the window allows. Returns True if the socket's buffer is full and more is
        left.
        """
        allowed = min(self._answered + self._window, self._requests) * self._frame_size
        while self._sent < allowed:
            start = self._sent % len(self._ring)
            try:
                self._sent += self._socket.send(self._ring[start : start + allowed - self._sent])
            except BlockingIOError:
                return True
        return False

    def receive(self) -> None:
        """Receives and counts responses. Raises LoadError on any that is not a success."""
        try:
            count = self._socket.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return
        if not count:
            raise LoadError(f"the server closed the connection after {self._answered} answers")
        self._filled += count
        position, buffer = 0, self._buffer
        while position + 4 <= self._filled:
            end = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
            if end > self._filled:
                break
            error = buffer[position + self._error_at : position + self._error_at + 2]
            if error != b"\0\0":
                raise LoadError(
                    f"Produce was answered with error {int.from_bytes(error, 'big', signed=True)}"
                )
            self._answered += 1
            position = end
        if position == 0 and self._filled == len(buffer):
            raise LoadError("an answer to Produce is longer than any can be")
        if position:
            rest = self._filled - position
            buffer[:rest] = buffer[position : self._filled]
            self._filled = rest


class Blaster:
    """Sends `requests` copies of `batch` (of `records` records), spread evenly over the connections.

    Connection i writes to partition `partitions[i % len(partitions)]` of `topic`, with at most `window`
    unanswered requests. The constructor connects and encodes, before `run`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        topic: str,
        batch: bytes,
        records: int,
        *,
        requests: int,
        connections: int = 1,
        partitions: tuple[int, ...] = (0,),
        window: int = 16,
        acks: int = 1,
    ) -> None:
        if acks == 0:
            raise ValueError("unacknowledged requests cannot be counted: acks must be 1 or -1")
        self._batch_size = len(batch)
        self._records = records
        self._requests = requests
        shares = [requests // connections + (i < requests % connections) for i in range(connections)]
        self._lanes = [
            _Lane(
                host,
                port,
                produce_request(topic, partitions[i % len(partitions)], batch, acks),
                share,
                window,
                produce_error_position(topic),
            )
            for i, share in enumerate(shares)
            if share
        ]

    def run(self) -> ProduceResult:
        """Runs the load. Raises LoadError on the first error response, OSError as sockets do."""
        poll = select.epoll()
        by_fd = {lane.fileno(): lane for lane in self._lanes}
        began = time.perf_counter()
        try:
            for fd, lane in by_fd.items():
                poll.register(fd, select.EPOLLIN | (select.EPOLLOUT if lane.send() else 0))
            left = len(by_fd)
            while left:
                events = poll.poll(SILENCE)
                if not events:
                    raise LoadError(f"the server has answered nothing for {SILENCE} s")
                for fd, event in events:
                    left -= _serve(poll, fd, by_fd[fd], event)
            seconds = time.perf_counter() - began
        finally:
            poll.close()
            for lane in self._lanes:
                lane.close()
        return ProduceResult(
            self._requests, self._requests * self._records, self._requests * self._batch_size, seconds
        )


def _serve(poll: select.epoll, fd: int, lane: _Lane, event: int) -> bool:
    """Serves one lane. Returns True once it is done."""
    if event & ~select.EPOLLOUT:
        lane.receive()
        if lane.done:
            poll.unregister(fd)
            return True
    blocked = lane.send()
    if blocked != bool(event & select.EPOLLOUT):
        poll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if blocked else 0))
    return False
