"""The two loads: as fast as it goes, and at a fixed rate, both with a source and a sink in one loop.

One process and one thread serve both ends, so that one clock (CLOCK_MONOTONIC) times both, and no second
client competes with the servers for the cores. What the loop itself uses is reported beside.
"""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Callable
from dataclasses import dataclass

from treecast.middleware.load.frames import LoadError
from treecast.middleware.load.latency import sharpen_timers
from treecast.middleware.load.percentiles import Distribution

from .ends import Sink, Source

SILENCE = 30.0  # seconds without any byte after which a run is given up
AFTER = 0.3  # seconds for which nothing may come once everything has
_NS = 1e-9


@dataclass(frozen=True, slots=True)
class Throughput:
    """In seconds from the first send: to the last acknowledgement, and to the last arrival at the far end."""

    records: int
    acknowledged: float
    seconds: float
    generator: float  # share of one core that the generator used


@dataclass(frozen=True, slots=True)
class Latency:
    """In seconds from the time at which a record was meant to be sent: to its send, answer and arrival."""

    records: int
    rate: float
    achieved: float  # records a second that arrived
    lag: Distribution
    produce: Distribution
    end_to_end: Distribution
    generator: float


def throughput(source: Source, sink: Sink, frames: int, window: int) -> Throughput:
    """Sends `frames` frames, `window` unanswered at most, until all are answered and have arrived."""
    records = frames * source.per_frame
    poll = select.epoll()
    poll.register(source.socket.fileno(), select.EPOLLIN)
    poll.register(sink.socket.fileno(), select.EPOLLIN)
    sending, clock = source.socket.fileno(), time.monotonic_ns
    began, cpu, answered = clock(), time.process_time(), 0
    try:
        blocked = source.send(min(window, frames))
        poll.modify(sending, _events(blocked))
        while sink.records < records or source.acknowledged < frames:
            events = poll.poll(SILENCE)
            if not events:
                raise LoadError(_silence(source, sink, frames, records))
            for fd, event in events:
                if fd != sending:
                    sink.receive(clock)
                    continue
                if event & ~select.EPOLLOUT:
                    source.receive()
                    answered = clock()
                still = source.send(min(source.acknowledged + window, frames))
                if still != blocked:
                    blocked = still
                    poll.modify(sending, _events(blocked))
        ended, cpu = clock(), time.process_time() - cpu
    finally:
        poll.close()
    nothing_more(sink, records)
    seconds = (ended - began) * _NS
    return Throughput(records, (answered - began) * _NS, seconds, cpu / seconds)


def _events(blocked: bool) -> int:
    return select.EPOLLIN | (select.EPOLLOUT if blocked else 0)


def _silence(source: Source, sink: Sink, frames: int, records: int) -> str:
    return (
        f"nothing came for {SILENCE:g} s: {source.acknowledged} of {frames} sends are answered,"
        f" {sink.records} of {records} records have arrived"
    )


def nothing_more(sink: Sink, records: int, seconds: float = AFTER) -> None:
    """Raises LoadError if more than `records` have come, or come within `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and sink.records <= records:
        if select.select([sink.socket], (), (), left)[0]:
            sink.receive(time.monotonic_ns)
    if sink.records > records:
        raise LoadError(f"{sink.records - records} records more have arrived than were sent")


class FixedRate:
    """Single stamped records at `rate` a second, open loop: what is due goes, answers or not.

    A generator that falls behind sends all that is due at once, and the wait counts as latency. The first
    `warmup` of the `count` records are sent and received but not counted.
    """

    def __init__(self, source: Source, sink: Sink, *, rate: float, count: int, warmup: int) -> None:
        if sink.arrivals is None:
            raise ValueError("the sink has to look at the stamps")
        if not 0 <= warmup < count:
            raise ValueError("some records must be left after the warm-up")
        self._source, self._sink, self._arrivals = source, sink, sink.arrivals
        self._rate, self._count, self._warmup = rate, count, warmup
        self._interval = 1e9 / rate
        self._began = 0
        self._sent_at: list[int] = []
        self._answered_at: list[int] = []

    def run(self) -> Latency:
        """Raises LoadError on any refusal, on what comes twice, and after SILENCE."""
        sharpen_timers()
        gc.collect()
        gc.disable()
        cpu = time.process_time()
        self._began = time.monotonic_ns() + 10_000_000
        try:
            self._loop(time.monotonic_ns)
        finally:
            gc.enable()
        ended, cpu = time.monotonic_ns(), time.process_time() - cpu
        nothing_more(self._sink, self._count)
        return self._result((ended - self._began) * _NS, cpu)

    def _due(self, number: int) -> int:
        return self._began + int(number * self._interval)

    def _loop(self, clock: Callable[[], int]) -> None:
        source, sink, arrivals, count = self._source, self._sink, self._arrivals, self._count
        inputs = [source.socket, sink.socket]
        blocked, heard = False, clock()
        while arrivals.arrived < count or len(self._answered_at) < count:
            now = clock()
            due = min(int((now - self._began) / self._interval) + 1, count) if now >= self._began else 0
            if due > len(self._sent_at) or blocked:
                self._sent_at.extend([now] * (due - len(self._sent_at)))
                blocked = source.send_stamped(due, self._due)
            ready, _, _ = select.select(inputs, [source.socket] if blocked else (), (), self._pause(clock()))
            now = clock()
            if ready:
                heard = now
            elif (now - heard) * _NS > SILENCE:
                raise LoadError(_silence(source, sink, count, count))
            if source.socket in ready:
                source.receive()
                self._answered_at.extend([now] * (source.acknowledged - len(self._answered_at)))
            if sink.socket in ready:
                sink.receive(clock)

    def _pause(self, now: int) -> float:
        """Seconds until the next record is due; one at most."""
        if len(self._sent_at) >= self._count:
            return 1.0
        return max(0.0, min(1.0, (self._due(len(self._sent_at)) - now) * _NS))

    def _result(self, seconds: float, cpu: float) -> Latency:
        def counted(times: list[int]) -> Distribution:
            delays = [(times[i] - self._due(i)) * _NS for i in range(self._warmup, self._count)]
            return Distribution.of(delays, self._rate)

        return Latency(
            self._count,
            self._rate,
            self._count / seconds,
            counted(self._sent_at),
            counted(self._answered_at),
            Distribution.of([delay * _NS for delay in self._arrivals.delays[self._warmup :]], self._rate),
            cpu / seconds,
        )
