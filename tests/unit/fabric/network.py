"""A network in memory with its own clock: loss, reordering, duplication, delay, partitions, restarts."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from treecast.middleware.fabric.core.outcomes import Progress
from treecast.middleware.fabric.core.outgoing import Outgoing
from treecast.middleware.fabric.core.receiver import Receiver
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import NEVER, StreamSettings
from treecast.middleware.wire.segment import KeyRing, decode, encode

ORIGIN = 1
KEYS = KeyRing({3: b"a cluster's key, 16 to 32 bytes"}, 3)


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
    uplink: float = 0.0  # bytes per second that leave the origin, to all hosts together; 0: no bound


@dataclass(order=True)
class _Arrival:
    at: float
    number: int
    to: int = field(compare=False)
    data: bytes = field(compare=False)


class Network:
    """One stream's sender (host 1) and its receivers. Segments travel as authenticated bytes."""

    def __init__(
        self, seed: int, weather: Weather, settings: StreamSettings, *, multicast: bool = False
    ) -> None:
        self.multicast = multicast  # what goes to all also reaches who is not live
        self.random = random.Random(seed)
        self.weather = weather
        self.settings = settings
        self.now = 100.0
        self.sender = Sender(ORIGIN, 7, 1, settings, self.now)
        self.receivers: dict[int, Receiver] = {}
        self.got: dict[int, list[int]] = {}  # by host: sequences in the order of delivery
        self.payloads: dict[int, bytes] = {}  # what was published
        self.slow: dict[int, float] = {}  # hosts with a way of their own rate
        self.cut: set[int] = set()  # hosts that nothing reaches or leaves
        self.dead: set[int] = set()
        self.most_memory = 0
        self.most_log = 0
        self._on_the_way: list[_Arrival] = []
        self._count = 0
        self._free: dict[int, float] = {}  # when the way to each host has let through all that was sent
        self._uplink_free = 0.0  # the same of what the origin has sent

    # --- what tests do

    def join(self, host: int, progress: Progress | None = None) -> Receiver:
        self.receivers[host] = Receiver(
            host, self.sender.key, self.settings, random.Random(host * 7 + 1), self.now, progress=progress
        )
        self.got.setdefault(host, [])
        self._flush(host)
        return self.receivers[host]

    def join_all(self, *hosts: int) -> None:
        """Receivers from the beginning, which the sender knows of."""
        for host in hosts:
            self.join(host, Progress(0, 0))
        assert self.run_until(lambda: len(self.sender.peers) == len(hosts), 5)

    def restart(self, host: int) -> None:
        """The process of `host` ends and comes back with what it wrote beside its records."""
        self.join(host, self.receivers[host].progress)

    def publish(self, payload: bytes, records: int = 1, **more: float) -> int | None:
        sequence = self.sender.publish(payload, records, self.now, **more)  # type: ignore[arg-type]
        if sequence is not None:
            self.payloads[sequence] = payload
        return sequence

    def run(self, seconds: float) -> None:
        self.run_until(lambda: False, seconds)

    def run_until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Lets time pass, at most so long."""
        end = self.now + seconds
        self._flush_all()
        while not reached():
            at = min(self._next_event(), end)
            self.now = max(self.now, at)
            if self.now >= end:
                return reached()
            self._arrive()
            self._timers()
        return True

    # --- how it works

    def _next_event(self) -> float:
        times = [self._on_the_way[0].at] if self._on_the_way else []
        times += [end.next_deadline(self.now) for host, end in self.ends() if host not in self.dead]
        # a deadline that is not met at once is asked again a little later
        return max(min(times, default=float("inf")), self.now + 1e-6)

    def ends(self) -> list[tuple[int, Sender | Receiver]]:
        return [(ORIGIN, self.sender), *self.receivers.items()]

    def _timers(self) -> None:
        for host, end in self.ends():
            if host not in self.dead and end.next_deadline(self.now) <= self.now:
                self._flush(host)
                if host != ORIGIN:
                    self._take(host)  # time may have given something up

    def _flush_all(self) -> None:
        for host, _ in self.ends():
            self._flush(host)

    def _flush(self, host: int) -> None:
        if host in self.dead:
            return
        end = self.sender if host == ORIGIN else self.receivers[host]
        for out in end.to_send(self.now):
            self._send(host, out)
        self.most_log = max(self.most_log, self.sender.log.bytes)

    def _send(self, source: int, out: Outgoing) -> None:
        encoded = out.encode(KEYS)
        assert encoded == [encode(segment, KEYS) for segment in out.segments()]
        assert len(encoded) == out.count
        assert max(map(len, encoded), default=0) <= max(self.settings.mtu, 1280 - 48)
        all_of_them = list(self.receivers) if self.multicast else self.sender.peers.live()
        for host in all_of_them if out.to is None else [out.to]:
            if source not in self.cut and host not in self.cut:
                for data in encoded:
                    self._travel(host, data, self._left(source, len(data)))

    def _left(self, source: int, size: int) -> float:
        """When a packet has left its host."""
        if source != ORIGIN or not self.weather.uplink:
            return self.now
        self._uplink_free = max(self.now, self._uplink_free) + size / self.weather.uplink
        return self._uplink_free

    def _travel(self, host: int, data: bytes, left: float) -> None:
        weather = self.weather
        copies = 2 if self.random.random() < weather.duplication else 1
        for _ in range(copies):
            if self.random.random() < weather.loss:
                continue
            through = self._through(host, len(data), left)
            if through is None:
                continue
            at = through + weather.delay + weather.jitter * self.random.random()
            if self.random.random() < weather.reordering:
                at += 4 * weather.delay * self.random.random()
            self._count += 1
            heapq.heappush(self._on_the_way, _Arrival(at, self._count, host, data))

    def _through(self, host: int, size: int, left: float) -> float | None:
        """When a packet has left a link that is as fast as its rate; None: it had no room."""
        rate = self.slow.get(host, self.weather.rate)
        if not rate:
            return left
        begin = max(left, self._free.get(host, 0.0))
        if (begin - left) * rate > (self.weather.queue or NEVER):
            return None
        self._free[host] = begin + size / rate
        return self._free[host]

    def _arrive(self) -> None:
        touched = set()
        while self._on_the_way and self._on_the_way[0].at <= self.now:
            arrival = heapq.heappop(self._on_the_way)
            if arrival.to in self.dead or arrival.to in self.cut:
                continue
            end = self.sender if arrival.to == ORIGIN else self.receivers.get(arrival.to)
            if end is not None:
                end.receive(decode(arrival.data, KEYS)[0], self.now)
                touched.add(arrival.to)
        for host in touched:
            if host != ORIGIN:
                self._take(host)
            self._flush(host)

    def _take(self, host: int) -> None:
        receiver = self.receivers[host]
        self.most_memory = max(self.most_memory, receiver.memory)
        for delivery in receiver.take(self.now):
            sequence = delivery.message.sequence
            assert delivery.message.payload == self.payloads[sequence]
            self.got[host].append(sequence)

    # --- what tests ask

    def closed(self) -> bool:
        return self.sender.finished

    def settled(self) -> bool:
        """Closed, and by all receivers' own last reports."""
        return self.closed() and all(one.told(self.now) for one in self.receivers.values())

    def assert_exactly_once(self, host: int, first: int = 0) -> None:
        """All that was published from `first` on, in order, and nothing twice."""
        assert self.got[host] == sorted(one for one in self.payloads if one >= first)

    def assert_accounts_close(self) -> None:
        for host in self.sender.ledger.hosts():
            row = self.sender.row(host)
            assert row.balanced
            assert row.closed, (host, row)
