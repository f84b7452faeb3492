"""The load at full speed, with a source and a sink in one loop.

One process and one thread serve both ends, so that one clock (CLOCK_MONOTONIC) times both, and no second
client competes with the servers for the cores. The loop's own use of the processor is reported separately.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass

from treecast.middleware.load.frames import LoadError

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
                raise LoadError(silence(source, sink, frames, records))
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


def silence(source: Source, sink: Sink, frames: int, records: int) -> str:
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
