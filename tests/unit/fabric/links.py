"""Links in memory with their own clock: loss, reordering, duplication, delay, queues, cuts.

`Links` moves packets and time; what sends and receives is made on it: one stream in `network`, whole hosts in
`stations`.
"""

from __future__ import annotations

import heapq
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from treecast.middleware.fabric.core.settings import NEVER


@dataclass
class Weather:
    """What happens to a packet. Probabilities, and seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay: float = 0.001
    jitter: float = 0.0002
    rate: float = 0.0  # bytes per second on the way to each host, which wait for each other; 0: no bound
    queue: int = 0  # bytes that wait there; more are lost; 0: no bound
    uplink: float = 0.0  # bytes per second that leave an origin, to all hosts together; 0: no bound


@dataclass(order=True)
class _Event:
    at: float
    number: int
    to: Sequence[int] = field(compare=False)
    data: bytes = field(compare=False)
    left: bool = field(compare=False)  # its host; else it has arrived


class Links(ABC):
    """A link from each host, and one to each host, where packets of all hosts wait for each other."""

    def __init__(self, seed: int, weather: Weather) -> None:
        self.random = random.Random(seed)
        self.weather = weather
        self.now = 100.0
        self.slow: dict[int, float] = {}  # hosts with a way of their own rate
        self.cut: set[int] = set()  # hosts that nothing reaches or leaves
        self.dead: set[int] = set()
        self.dropped = 0  # packets that had no room in a queue
        self._events: list[_Event] = []
        self._count = 0
        self._free: dict[int, float] = {}  # when the way to each host has let through all that was sent
        self._uplinks: dict[int, float] = {}  # when each host has sent all

    # --- to be said by what is made on it

    @abstractmethod
    def begin(self) -> None:
        """Time is about to pass: what was done from outside is looked at."""

    @abstractmethod
    def deadline(self) -> float:
        """When somebody has something to do, if nothing arrives before."""

    @abstractmethod
    def step(self) -> None:
        """What arrives, and what is due, now."""

    # --- time

    def run(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds)

    def run_until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Lets time pass, at most so long."""
        end = self.now + seconds
        self.begin()
        while not reached():
            self.now = max(self.now, min(self._next_event(), end))
            if self.now >= end:
                return reached()
            self.step()
        return True

    def _next_event(self) -> float:
        at = self._events[0].at if self._events else NEVER
        # a deadline that is not met at once is asked again a little later
        return max(min(at, self.deadline()), self.now + 1e-6)

    # --- packets

    def send(self, source: int, to: Sequence[int], data: bytes) -> None:
        """One packet, whose copies part behind the link that leaves `source`."""
        if source in self.cut:
            return
        left = self._left(source, len(data))
        if left > self.now:
            self._push(left, to, data, True)
        else:
            self._part(to, data)

    def _left(self, source: int, size: int) -> float:
        """When a packet has left its host."""
        if not self.weather.uplink or not self.has_uplink(source):
            return self.now
        self._uplinks[source] = max(self.now, self._uplinks.get(source, 0.0)) + size / self.weather.uplink
        return self._uplinks[source]

    def has_uplink(self, source: int) -> bool:
        """Whether what it sends is bound by `uplink`."""
        return True

    def backlog(self, source: int) -> float:
        """Bytes that have not left it yet."""
        return max(0.0, self._uplinks.get(source, 0.0) - self.now) * self.weather.uplink

    def _part(self, to: Sequence[int], data: bytes) -> None:
        for host in to:
            if host not in self.cut:
                self._travel(host, data)

    def _travel(self, host: int, data: bytes) -> None:
        weather = self.weather
        copies = 2 if self.random.random() < weather.duplication else 1
        for _ in range(copies):
            if self.random.random() < weather.loss:
                continue
            through = self._through(host, len(data))
            if through is None:
                self.dropped += 1
                continue
            at = through + weather.delay + weather.jitter * self.random.random()
            if self.random.random() < weather.reordering:
                at += 4 * weather.delay * self.random.random()
            self._push(at, (host,), data, False)

    def _through(self, host: int, size: int) -> float | None:
        """When a packet has left a link that is as fast as its rate; None: it had no room."""
        rate = self.slow.get(host, self.weather.rate)
        if not rate:
            return self.now
        begin = max(self.now, self._free.get(host, 0.0))
        if (begin - self.now) * rate > (self.weather.queue or NEVER):
            return None
        self._free[host] = begin + size / rate
        return self._free[host]

    def _push(self, at: float, to: Sequence[int], data: bytes, left: bool) -> None:
        self._count += 1
        heapq.heappush(self._events, _Event(at, self._count, to, data, left))

    def arrivals(self) -> list[tuple[int, bytes]]:
        """(host, packet) of all that arrive now."""
        found: list[tuple[int, bytes]] = []
        while self._events and self._events[0].at <= self.now:
            event = heapq.heappop(self._events)
            if event.left:
                self._part(event.to, event.data)
                continue
            host = event.to[0]
            if host not in self.dead and host not in self.cut:
                found.append((host, event.data))
        return found
