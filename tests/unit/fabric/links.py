"""Links in memory with their own clock: loss, reordering, duplication, delay, queues, cuts.

`Links` moves packets and time. Subclasses add the senders and receivers: `network` one stream, `stations`
whole hosts.
"""

from __future__ import annotations

import heapq
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from treecast.middleware.model.timers import NEVER


@dataclass
class Weather:
    """The properties of all links. Probabilities, and seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay: float = 0.001
    jitter: float = 0.0002
    rate: float = 0.0  # bytes per second of the link to each host, shared by its packets; 0: no bound
    queue: int = 0  # bytes that may wait for that link; more are dropped; 0: no bound
    uplink: float = 0.0  # bytes per second of the link from an origin, to all receivers together; 0: no bound


@dataclass(order=True)
class _Event:
    at: float
    number: int
    to: Sequence[int] = field(compare=False)
    data: bytes = field(compare=False)
    left: bool = field(compare=False)  # true: it leaves its host; false: it arrives


class Links(ABC):
    """A link from each host and a link to each host; packets from all hosts queue for the latter."""

    def __init__(self, seed: int, weather: Weather) -> None:
        self.random = random.Random(seed)
        self.weather = weather
        self.now = 100.0
        self.slow: dict[int, float] = {}  # hosts whose link has its own rate
        self.cut: set[int] = set()  # hosts without any connection
        self.dead: set[int] = set()
        self.dropped = 0  # packets that did not fit into a queue
        self._events: list[_Event] = []
        self._count = 0
        self._free: dict[int, float] = {}  # when the link to each host is free again
        self._uplinks: dict[int, float] = {}  # when the link from each host is free again

    # --- supplied by subclasses

    @abstractmethod
    def begin(self) -> None:
        """Looks at changes from outside before the time moves."""

    @abstractmethod
    def deadline(self) -> float:
        """Returns when the next timer is due."""

    @abstractmethod
    def step(self) -> None:
        """Handles arrived packets and due timers."""

    # --- time

    def run(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds)

    def run_until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Moves the time, at most by `seconds`. Returns whether the condition was reached."""
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
        # a deadline that stays due is tried again a little later
        return max(min(at, self.deadline()), self.now + 1e-6)

    # --- packets

    def send(self, source: int, to: Sequence[int], data: bytes) -> None:
        """Sends one packet; its copies part behind the link from `source`."""
        if source in self.cut:
            return
        left = self._left(source, len(data))
        if left > self.now:
            self._push(left, to, data, True)
        else:
            self._part(to, data)

    def _left(self, source: int, size: int) -> float:
        """Returns when a packet has left its host."""
        if not self.weather.uplink or not self.has_uplink(source):
            return self.now
        self._uplinks[source] = max(self.now, self._uplinks.get(source, 0.0)) + size / self.weather.uplink
        return self._uplinks[source]

    def has_uplink(self, source: int) -> bool:
        """Returns whether `uplink` limits this host."""
        return True

    def backlog(self, source: int) -> float:
        """Returns the bytes that wait for the link from `source`."""
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
        """Returns when a packet has passed the link to `host`; None: its queue is full."""
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
        """Returns (host, packet) for each that arrives now."""
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
