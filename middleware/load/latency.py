"""Latency at a fixed rate, open loop: requests are sent when due, whether or not earlier ones were answered.

Each request has an intended time, start + i / rate, from which both latencies count: to the response of
Produce, and to the arrival of the records at a consumer that long-polls the same partition over its own
connection. A generator that falls behind sends all due requests in one call and their wait counts as latency,
so nothing is omitted. Its own lag is reported separately, to distinguish its delay from the server's.
"""

from __future__ import annotations

import ctypes
import gc
import select
import socket
import time
from array import array
from dataclasses import dataclass

from .frames import (
    FetchRequest,
    LoadError,
    next_offset,
    parse_fetch_head,
    produce_error_position,
    produce_request,
)
from .percentiles import Distribution
from .produce import SILENCE

_PR_SET_TIMERSLACK = 29
_RECEIVE = 1 << 20


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """Results in seconds: `produce` ends at the acknowledgement, `end_to_end` at the consumer, `lag` at the
    send.
    """

    requests: int
    records: int
    rate: float  # intended records a second
    achieved: float  # acknowledged records a second
    produce: Distribution
    end_to_end: Distribution | None
    lag: Distribution


def sharpen_timers() -> None:
    """Asks the kernel to end sleeps on time instead of up to 50 us late."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


class _Producer:
    """Sends copies of one frame when they are due, and records when each was answered."""

    def __init__(self, address: tuple[str, int], frame: bytes, error_at: int, burst: int) -> None:
        self.socket = socket.create_connection(address, 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._ring = memoryview(frame * burst)
        self._frame_size = len(frame)
        self._burst = burst
        self._error_at = error_at
        self._buffer = bytearray(_RECEIVE)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self.sent = 0  # bytes

    def send(self, due: int) -> bool:
        """Sends up to `due` requests in all. Returns False if the socket's buffer is full."""
        while self.sent < due * self._frame_size:
            start = self.sent % len(self._ring)
            try:
                self.sent += self.socket.send(self._ring[start : start + due * self._frame_size - self.sent])
            except BlockingIOError:
                return False
        return True

    def receive(self) -> int:
        """Returns the number of answers received. Raises LoadError on an error."""
        try:
            count = self.socket.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return 0
        if not count:
            raise LoadError("the server closed the producer's connection")
        self._filled += count
        position, answers, buffer = 0, 0, self._buffer
        while position + 4 <= self._filled:
            end = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
            if end > self._filled:
                break
            error = int.from_bytes(buffer[position + self._error_at : position + self._error_at + 2], "big")
            if error:
                raise LoadError(f"Produce was answered with error {error}")
            answers += 1
            position = end
        rest = self._filled - position
        buffer[:rest] = buffer[position : self._filled]
        self._filled = rest
        return answers


class _Consumer:
    """Long-polls one partition, and records its progress."""

    def __init__(self, address: tuple[str, int], topic: str, partition: int, offset: int) -> None:
        self.socket = socket.create_connection(address, 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = FetchRequest(topic, partition, 1 << 20, 1, 500)
        self._buffer = bytearray(4 << 20)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self.offset = offset
        self.ask()
        self.socket.setblocking(False)

    def ask(self) -> None:
        if self.socket.send(self._request.at(self.offset)) != len(self._request.data):
            raise LoadError("the socket did not take a request of a hundred bytes")

    def receive(self) -> None:
        try:
            count = self.socket.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return
        if not count:
            raise LoadError("the server closed the consumer's connection")
        self._filled += count
        if self._filled < 4 or self._filled < 4 + int.from_bytes(self._buffer[:4], "big"):
            return
        answer = parse_fetch_head(self._buffer)
        if answer.error:
            raise LoadError(f"Fetch was answered with error {answer.error}")
        after, batches = next_offset(self._buffer, answer.records_at, answer.records_size)
        if batches:
            self.offset = after
        self._filled = 0
        self.ask()


class LatencyRun:
    """A run of `requests` Produce requests with `batch` (of `records` records) at `rate` records a second.

    All go to one `partition`, whose end before the run is `start_offset`: nobody else may write to it. The
    first `warmup` requests are sent and answered but not measured. With `consume` the records are also read
    back.
    """

    def __init__(
        self,
        host: str,
        port: int,
        topic: str,
        batch: bytes,
        records: int,
        *,
        rate: float,
        requests: int,
        start_offset: int,
        partition: int = 0,
        warmup: int = 0,
        acks: int = 1,
        consume: bool = True,
    ) -> None:
        if not 0 <= warmup < requests:
            raise ValueError("the warm-up must leave some requests")
        self._rate, self._requests, self._records, self._warmup = rate, requests, records, warmup
        self._interval = records / rate
        self._start_offset = start_offset
        frame = produce_request(topic, partition, batch, acks)
        burst = max(1, min(requests, (1 << 20) // len(frame)))
        self._producer = _Producer((host, port), frame, produce_error_position(topic), burst)
        self._consumer = _Consumer((host, port), topic, partition, start_offset) if consume else None
        self._sent_at = array("d")  # seconds after the start, per request
        self._answered_at = array("d")
        self._arrived_at = array("d")

    def run(self) -> LatencyResult:
        """Runs the load. Raises LoadError on any error or after 30 s of silence."""
        sharpen_timers()
        gc.collect()
        gc.disable()
        try:
            self._loop()
        finally:
            gc.enable()
            self._producer.socket.close()
            if self._consumer is not None:
                self._consumer.socket.close()
        return self._result()

    def _loop(self) -> None:
        producer, consumer = self._producer, self._consumer
        inputs = [producer.socket] + ([consumer.socket] if consumer else [])
        sent_at, answered_at, arrived_at = self._sent_at, self._answered_at, self._arrived_at
        requests, interval = self._requests, self._interval
        clock = time.perf_counter
        began = clock() + 0.01
        writable, heard, now = True, 0.0, 0.0
        outputs: list[socket.socket] = []
        while len(answered_at) < requests or (consumer is not None and len(arrived_at) < requests):
            now = clock() - began
            due = min(int(now / interval) + 1, requests) if now >= 0 else 0
            if due > len(sent_at):
                sent_at.extend([now] * (due - len(sent_at)))
                writable = producer.send(due)
            elif not writable:
                writable = producer.send(due)
            outputs = [] if writable else [producer.socket]
            now = clock() - began
            pause = len(sent_at) * interval - now if len(sent_at) < requests else 1.0
            ready, _, _ = select.select(inputs, outputs, (), max(0.0, min(pause, 1.0)))
            now = clock() - began
            if ready:
                heard = now
            elif now - heard > SILENCE:
                raise LoadError(f"the server has answered nothing for {SILENCE} s")
            if producer.socket in ready:
                answered_at.extend([now] * producer.receive())
            if consumer is not None and consumer.socket in ready:
                consumer.receive()
                arrived = (consumer.offset - self._start_offset) // self._records - len(arrived_at)
                if arrived > 0:
                    arrived_at.extend([now] * arrived)

    def _result(self) -> LatencyResult:
        def since_intended(times: array[float]) -> Distribution:
            intended = range(self._warmup, self._requests)
            return Distribution.of([times[i] - i * self._interval for i in intended], 1 / self._interval)

        return LatencyResult(
            self._requests,
            self._requests * self._records,
            self._rate,
            self._requests * self._records / self._answered_at[-1],
            since_intended(self._answered_at),
            since_intended(self._arrived_at) if self._arrived_at else None,
            since_intended(self._sent_at),
        )
