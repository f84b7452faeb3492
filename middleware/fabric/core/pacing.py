"""How fast an origin sends: a window for each replay, and a rate for what goes to all.

Both rise by addition and fall by multiplication. A replay has its own window, so who takes little is
replayed to slowly, and nobody else notices. What goes to all is slowed down only where the path to most
receivers loses much of it: one receiver that loses much is that receiver's matter, and it is replayed to.
A little loss is repaired, and says nothing about the rate.

A replay gives way: what it leaves in the queues on its way, live data waits behind. So its window also falls
where its turnaround shows that there is a queue (the idea of LEDBAT, RFC 6817, without its target of 100 ms).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .settings import NEVER
from .states import PaceEvent, PaceState, RateEvent, RateState, pace_step, rate_step

_MUCH: Final = 3  # who asks for more than one part in so many of what was sent loses much
_FALL: Final = 0.7  # of what was sent
_RISE: Final = 0.1  # a period, of the rate, and at least of the lowest one
_FREE_AFTER: Final = 20  # periods in which the bound was of no use, and it is lifted
PERIOD: Final = 0.1  # seconds
_LEAST: Final = 64 * 1024  # bytes to judge by
_REMEMBERED: Final = 10.0  # seconds: a way that has become longer is known for that after twice as long


class Quickest:
    """The shortest turnaround lately: that of a way without queues."""

    __slots__ = ("_before", "_begun", "_now")

    def __init__(self) -> None:
        self._before = NEVER
        self._now = NEVER
        self._begun = -NEVER

    def sample(self, took: float, now: float) -> float:
        """The shortest of the last 10 to 20 seconds, with this one."""
        if now - self._begun >= _REMEMBERED:
            self._before, self._now, self._begun = self._now, NEVER, now
        self._now = min(self._now, took)
        return min(self._now, self._before)


class Window:
    """Bytes that may be on their way to one receiver of a replay, between `lowest` and `highest`."""

    __slots__ = (
        "_arrived",
        "_asked",
        "_asked_last",
        "_asked_since",
        "_delay",
        "_first",
        "_highest",
        "_lowest",
        "_quickest",
        "_threshold",
        "_until",
        "size",
        "state",
    )

    def __init__(self, first: int, lowest: int, highest: int, delay: float = NEVER) -> None:
        """`delay`: seconds that what is on its way may wait in queues."""
        self._delay = delay
        self._quickest = Quickest()
        self.state = PaceState.OPENING
        self._highest = float(highest)
        self._lowest = min(float(lowest), self._highest)
        self._first = min(max(float(first), self._lowest), self._highest)
        self.size = self._first
        self._asked = 0  # bytes, within a turnaround
        self._arrived = 0
        self._asked_since = -NEVER
        self._asked_last = -NEVER
        self._threshold = self._highest
        self._until = -NEVER  # until then a loss is of what was sent before the last decrease

    def progress(self, settled: int, took: float, now: float) -> None:
        """A report says that so many bytes have arrived, the last `took` seconds after it was sent."""
        self._arrived += settled
        may = self._quickest.sample(took, now) + self._delay
        if took > may and now - took > self._asked_last:  # else it has waited for what was lost before it
            self._late(max(may / took, 0.5), took, now)
            return
        if self.state is PaceState.HELD and now >= self._until:
            self._step(PaceEvent.TURN)
        if self.state is PaceState.OPENING:
            self.size += settled
            if self.size >= self._threshold:
                self._step(PaceEvent.REACHED)
        elif self.state is PaceState.STEADY:
            self.size += self._lowest * settled / self.size
        self.size = min(self.size, self._highest)

    def asked(self, size: int, flight: int, now: float, turnaround: float) -> None:
        """The receiver lacks `size` bytes of the `flight` that are on their way.

        A little loss says nothing of the rate here either. Much of it counts once in a `turnaround`.
        """
        if now - self._asked_since >= turnaround:
            self._asked, self._arrived, self._asked_since = 0, 0, now
        self._asked += size
        self._asked_last = now
        if _MUCH * self._asked > max(self._arrived + flight, self._lowest) and not self._held(now):
            self._fall(max(self._lowest, self.size / 2), now + turnaround)
            self._step(PaceEvent.LOSS)

    def _late(self, factor: float, took: float, now: float) -> None:
        """So much less, and there would have been no queue. What it began with is no matter of queues: a
        machine that is slow to answer must not make a replay slower than what it is to catch up with."""
        if not self._held(now) and self.size > self._first:
            self._fall(max(self._first, self.size * factor), now + took)
            self._step(PaceEvent.LATE)

    def _held(self, now: float) -> bool:
        """Whether what is heard now is of what was sent before the last decrease."""
        return self.state is PaceState.HELD and now < self._until

    def _fall(self, size: float, until: float) -> None:
        self.size = self._threshold = size
        self._until = until

    def stalled(self) -> None:
        """Nothing that was on its way has arrived for long."""
        self._threshold = max(self._lowest, self.size / 2)
        self.size = self._lowest
        self._step(PaceEvent.STALL)

    def _step(self, event: PaceEvent) -> None:
        self.state = pace_step(self.state, event)


class LiveRate:
    """Bytes per second of what goes to all: without a bound until most receivers lose much of it."""

    def __init__(self, lowest: float, highest: float, now: float) -> None:
        """`highest` is the operator's; NEVER: none."""
        self.state = RateState.FREE
        self.rate = highest
        self._lowest = min(lowest, highest)
        self._highest = highest
        self._begun = now
        self._sent = [0, 0]  # bytes: in this period, and the one before, which is being asked for
        self._asked: list[dict[int, int]] = [{}, {}]  # by host
        self._unused = 0  # periods in which all there was could be sent

    def sent(self, size: int) -> None:
        self._sent[0] += size

    def asked(self, host: int, size: int) -> None:
        """A live receiver lacks so many bytes."""
        self._asked[0][host] = self._asked[0].get(host, 0) + size

    def look(self, live: Iterable[int], waiting: bool, now: float) -> bool:
        """Whether the rate has changed. `waiting`: more is there than the rate allows."""
        took = now - self._begun
        if took < PERIOD:
            return False
        before = self.rate
        hosts = list(live)
        losing = [host for host in hosts if _MUCH * self._lost(host) > sum(self._sent)]
        if sum(self._sent) >= _LEAST and losing and 2 * len(losing) >= len(hosts):
            self._fall(took)
        elif waiting:
            self._unused = 0
            self._rise()
        else:
            self._rest()
        self._turn(now)
        return self.rate != before

    def _lost(self, host: int) -> int:
        return sum([asked.get(host, 0) for asked in self._asked])

    def _fall(self, took: float) -> None:
        """Of what was really sent, which may be less than was allowed."""
        self.state = rate_step(self.state, RateEvent.LOST)
        self._unused = 0
        real = max(self._sent) / max(took, PERIOD)
        self.rate = max(self._lowest, min(self.rate, real) * _FALL)
        self._sent = [0, 0]
        self._asked = [{}, {}]

    def _rise(self) -> None:
        self.state = rate_step(self.state, RateEvent.KEPT)
        if self.state is RateState.BOUND:
            self.rate = min(self._highest, self.rate + _RISE * max(self.rate, self._lowest))

    def _rest(self) -> None:
        self._unused += 1
        if self._unused >= _FREE_AFTER:
            self.state = rate_step(self.state, RateEvent.UNUSED)
            self.rate = self._highest

    def _turn(self, now: float) -> None:
        """The next period."""
        self._begun = now
        self._sent = [0, self._sent[0]]
        self._asked = [{}, self._asked[0]]
