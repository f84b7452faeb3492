"""The reader: sequential Fetch requests over an existing topic, one connection per partition.

A client that copies every byte into its own memory is easily slower than the server that sends it. If the
topic is known to hold equal batches (the blaster created it), only the head of each answer and its first
batch header are read; the kernel discards the rest (MSG_TRUNC), and the next offset is computed. Otherwise
the answer is read whole and its batches are walked.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass

from .frames import BATCH_PREFIX, FetchRequest, LoadError, next_offset, parse_fetch_head
from .produce import SILENCE

_HEAD = 512  # an answer up to its first batch header: about 90 bytes and the topic's name, at most 249
_SCRATCH = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchResult:
    """The data read from the first request to the last answer. `bytes` are of whole record batches."""

    requests: int
    records: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class EqualBatches:
    """A topic in which every batch has this size in bytes and this many records."""

    size: int
    records: int


class _Lane:
    """One connection reading one partition from `start` to `end`, `passes` times."""

    def __init__(
        self,
        address: tuple[str, int],
        request: FetchRequest,
        start: int,
        end: int,
        equal: EqualBatches | None,
        passes: int,
    ) -> None:
        self._socket = socket.create_connection(address, 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._request = request
        self._equal = equal
        self._offset = self._start = start
        self._end = end
        self._left = passes - 1
        self._buffer = bytearray(_HEAD if equal else _SCRATCH)
        self._scratch = bytearray(_SCRATCH if equal else 0)
        self._filled = 0
        self._skip = 0  # bytes of this answer still to be thrown away
        self.requests = 0
        self.bytes = 0

    @property
    def done(self) -> bool:
        """Whether this pass has reached its end; after `receive` has returned, whether the last one has."""
        return self._offset >= self._end

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def ask(self) -> None:
        frame = self._request.at(self._offset)
        if self._socket.send(frame) != len(frame):  # an empty socket buffer takes a request whole
            raise LoadError("the socket did not take a request of a hundred bytes")
        self.requests += 1

    def receive(self) -> None:
        """Receives, and requests again after a whole answer, until the end is reached."""
        try:
            if self._skip:
                if not self._throw_away():
                    return
            elif not self._take():
                return
        except BlockingIOError:
            return
        if self.done and self._left:
            self._left -= 1
            self._offset = self._start
        if not self.done:
            self.ask()

    def _throw_away(self) -> bool:
        count = self._socket.recv_into(self._scratch, min(self._skip, _SCRATCH), socket.MSG_TRUNC)
        if not count:
            raise LoadError("the server closed the connection within an answer")
        self._skip -= count
        return not self._skip

    def _take(self) -> bool:
        """Reads into the buffer; True once the answer is complete."""
        wanted = len(self._buffer)
        if self._filled >= 4:
            wanted = min(wanted, 4 + int.from_bytes(self._buffer[:4], "big"))
        with memoryview(self._buffer) as view:
            count = self._socket.recv_into(view[self._filled : wanted])
        if not count:
            raise LoadError("the server closed the connection")
        self._filled += count
        if self._filled < 4:
            return False
        size = 4 + int.from_bytes(self._buffer[:4], "big")
        if self._equal is None:
            if size > len(self._buffer):
                self._buffer += bytes(size - len(self._buffer))
            if self._filled < size:
                return False
            self._walk()
        else:
            if self._filled < min(size, _HEAD):
                return False
            if self._filled > size:
                raise LoadError("more came than the answer to one request")
            self._skip = size - self._filled
            self._count(self._equal)
        self._filled = 0
        return not self._skip

    def _walk(self) -> None:
        answer = parse_fetch_head(self._buffer)
        self._check(answer.error)
        after, batches = next_offset(self._buffer, answer.records_at, answer.records_size)
        if batches:
            self._offset = after
            self.bytes += answer.records_size

    def _count(self, equal: EqualBatches) -> None:
        answer = parse_fetch_head(self._buffer)
        self._check(answer.error)
        batches = answer.records_size // equal.size
        if not batches:
            return
        at = answer.records_at
        base = int.from_bytes(self._buffer[at : at + 8], "big")
        length = int.from_bytes(self._buffer[at + 8 : at + BATCH_PREFIX], "big")
        if base != self._offset or length + BATCH_PREFIX != equal.size:
            raise LoadError(
                f"asked from offset {self._offset} in batches of {equal.size} bytes,"
                f" got offset {base} in {length + BATCH_PREFIX}"
            )
        self._offset += batches * equal.records
        self.bytes += batches * equal.size

    def _check(self, error: int) -> None:
        if error:
            raise LoadError(f"Fetch from offset {self._offset} was answered with error {error}")


class Reader:
    """Reads each (partition, start, end offset) of `ranges` over its own connection.

    `max_bytes` is clients' max.partition.fetch.bytes; `equal` states what the topic is known to hold. Each
    range is read `passes` times.
    """

    def __init__(
        self,
        host: str,
        port: int,
        topic: str,
        ranges: list[tuple[int, int, int]],
        *,
        max_bytes: int = 1 << 20,
        equal: EqualBatches | None = None,
        passes: int = 1,
    ) -> None:
        self._records = passes * sum(end - start for _, start, end in ranges)
        self._lanes = [
            _Lane((host, port), FetchRequest(topic, partition, max_bytes, 1, 500), start, end, equal, passes)
            for partition, start, end in ranges
            if end > start
        ]

    def run(self) -> FetchResult:
        """Raises LoadError on an error or an answer that doesn't fit, OSError as sockets do."""
        poll = select.epoll()
        by_fd = {lane.fileno(): lane for lane in self._lanes}
        began = time.perf_counter()
        try:
            for fd, lane in by_fd.items():
                poll.register(fd, select.EPOLLIN)
                lane.ask()
            left = len(by_fd)
            while left:
                events = poll.poll(SILENCE)
                if not events:
                    raise LoadError(f"the server has answered nothing for {SILENCE} s")
                for fd, _ in events:
                    by_fd[fd].receive()
                    if by_fd[fd].done and not by_fd[fd]._skip:
                        poll.unregister(fd)
                        left -= 1
            seconds = time.perf_counter() - began
        finally:
            poll.close()
            for lane in self._lanes:
                lane.close()
        requests, size = sum(lane.requests for lane in self._lanes), sum(lane.bytes for lane in self._lanes)
        return FetchResult(requests, self._records, size, seconds)
