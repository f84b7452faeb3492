"""The load at a fixed rate, with a source and a sink in one loop; one clock and one thread, as in
loops.py.
"""

from __future__ import annotations

import abc
import gc
import select
import time
from collections.abc import Callable
from dataclasses import dataclass

from treecast.middleware.load.frames import LoadError
from treecast.middleware.load.latency import sharpen_timers
from treecast.middleware.load.percentiles import Distribution

from .ends import Sink, Source
from .loops import SILENCE, nothing_more, silence

_NS = 1e-9


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from a record's intended time to its send, answer and arrival."""

    records: int
    rate: float
    achieved: float  # records a second that arrived
    lag: Distribution
    produce: Distribution
    end_to_end: Distribution
    generator: float


class AtRate(abc.ABC):
    """Single stamped records at `rate` a second, open loop: due records are sent whether or not earlier ones
    were answered.

    A generator that falls behind sends all due records at once, and their wait counts as latency. The first
    `warmup` of the `count` records are sent and received but not measured.
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

    @abc.abstractmethod
    def run(self) -> Latency:
        """Runs the load. Raises LoadError on a refusal, on a duplicate, and after SILENCE."""

    def _due(self, number: int) -> int:
        return self._began + int(number * self._interval)

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


class FixedRate(AtRate):
    """In this process. It takes a good part of a core for a few thousand records a second; see paced.py."""

    def run(self) -> Latency:
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
                raise LoadError(silence(source, sink, count, count))
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
