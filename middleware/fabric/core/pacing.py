"""How much an origin may have on its way: a window for each receiver.

A receiver has one window for what goes to all and one for its replay. They bound what is on its way (FACK),
not what is settled, so a gap does not stop them. A window opens with what arrives and falls with what is lost
beyond what the path always loses, and with queues: what it leaves in the queues on its way, others wait
behind (the idea of LEDBAT, RFC 6817, without its target of 100 ms).

What goes to all is sent as far as the smallest window of those that keep up allows (`live`).
"""

from __future__ import annotations

from typing import Final

from .settings import NEVER
from .states import PaceEvent, PaceState, pace_step

_MUCH: Final = 1 / 3  # who asks for more than this share of what was sent loses much, if it is not usual
_HALF: Final = 1 / 2  # and for more than this in any case
_CLEARLY: Final = 0.06  # lost beyond what the path always loses, and a window is too large
_EASE: Final = 0.6  # what is left of it then
_GROW: Final = 0.125  # a round, of a window that was used
_STEP: Final = 4096.0  # bytes a round, at least
_ENOUGH: Final = 64 * 1024  # bytes, to judge losses by
_SHORTEST: Final = 1e-5  # seconds of a turnaround: a clock may stand still meanwhile
_SAMPLES: Final = 3  # of a turnaround, to judge queues by
_STILL: Final = 0.7  # of what was lost before a window was eased: if more is lost still, that did not help
_REMEMBERED: Final = 10.0  # seconds: a way that has become longer is known for that after twice as long


class Quickest:
    """The least of a value lately, as of a turnaround: that of a way without queues."""

    __slots__ = ("_before", "_begun", "_now")

    def __init__(self) -> None:
        self._before = NEVER
        self._now = NEVER
        self._begun = -NEVER

    def sample(self, took: float, now: float) -> float:
        """The least of the last 10 to 20 seconds, with this one."""
        if now - self._begun >= _REMEMBERED:
            self._before, self._now, self._begun = self._now, NEVER, now
        self._now = min(self._now, took)
        return min(self._now, self._before)


class Paths:
    """The quickest turnaround to each host, of all streams of this one.

    Streams that go the same way wait in the same queues. A stream that began while another filled them would
    take their length for that of the way, and leave the other less and less.
    """

    __slots__ = ("_hosts",)

    def __init__(self) -> None:
        self._hosts: dict[int, Quickest] = {}

    def to(self, host: int) -> Quickest:
        found = self._hosts.get(host)
        if found is None:
            found = self._hosts[host] = Quickest()
        return found


class Window:
    """Bytes that may be on their way to one receiver, between `lowest` and `highest`.

    It is judged by rounds: a round lasts as long as what arrives at its beginning took. It grows only where
    it was used. What a path always loses says nothing of its rate (`Losses`); more than that does, and so
    does a queue in which all of a round has waited.
    """

    __slots__ = (
        "_arrived",
        "_asked",
        "_delay",
        "_ends",
        "_first",
        "_highest",
        "_least",
        "_losses",
        "_lowest",
        "_quickest",
        "_samples",
        "_threshold",
        "_used",
        "_was_opening",
        "size",
        "state",
        "why",
    )

    def __init__(
        self,
        first: int,
        lowest: int,
        highest: int,
        delay: float = NEVER,
        quickest: Quickest | None = None,
    ) -> None:
        """`delay`: seconds that what is on its way may wait in queues. `quickest`: shared with its like."""
        self._delay = delay
        self._quickest = quickest if quickest is not None else Quickest()
        self._losses = Losses()
        self.state = PaceState.OPENING
        self.why = PaceEvent.TURN  # what it was last changed by
        self._highest = float(highest)
        self._lowest = min(float(lowest), self._highest)
        self._first = min(max(float(first), self._lowest), self._highest)
        self.size = self._first
        self._threshold = self._highest
        self._arrived = 0  # bytes of this round
        self._asked = 0
        self._samples = 0  # since it was last looked for queues
        self._least = NEVER  # seconds that the quickest of these took
        self._used = False
        self._was_opening = False  # when losses first stopped it
        self._ends = -NEVER  # of this round

    def progress(self, arrived: int, took: float, now: float, *, used: bool = True) -> None:
        """So many bytes have arrived, the last of them `took` seconds after it was sent.

        `used`: at least half of the window was on its way.
        """
        self._arrived += arrived
        self._samples += 1
        self._least = min(self._least, took)
        self._used = self._used or used
        if self.state is PaceState.OPENING and used:
            self.size = min(self.size + arrived, self._highest)
            if self.size >= self._threshold:
                self._step(PaceEvent.REACHED)
        if now >= self._ends:
            self._judge(now)
            self._begin(now + took)

    def found(self, size: float) -> None:
        """The way takes so much, as another window of it has found."""
        self.size = max(self.size, min(size, self._highest))

    def asked(self, size: int) -> None:
        """The receiver lacks so many bytes of what was sent to it."""
        self._asked += size

    def lost(self, size: int, now: float) -> None:
        """So many bytes were on their way for so long that they count as lost."""
        self._asked += size
        if now >= self._ends:
            self._judge(now)
            self._begin(now)

    def _begin(self, ends: float) -> None:
        self._arrived = self._asked = 0
        self._used = False
        self._ends = ends

    def _judge(self, now: float) -> None:
        """What the round that is over says."""
        late = self._late_by(now)
        if self.state is PaceState.HELD:
            self._step(PaceEvent.TURN)
            return
        self._losses.add(self._asked, self._arrived)
        verdict = self._losses.verdict(self.size, queued=late < 1.0)
        if verdict is not None:
            self.size = max(self._lowest, min(verdict.size, self._highest))
            if verdict.losing:
                self._was_opening = self.state is PaceState.OPENING
                self._threshold = self.size
                self._step(PaceEvent.LOSS)
                return
            if verdict.cleared and self._was_opening:
                self._was_opening = False
                self._threshold = self._highest
                self._step(PaceEvent.CLEARED)
        if late < 1.0 and self.size > self._first:
            # what it began with is no matter of queues: a machine that is slow to answer must not make a
            # replay slower than what it is to catch up with
            self._fall(max(late, 0.5), self._first, PaceEvent.LATE)
        elif self.state is PaceState.STEADY and self._used:
            self.size = min(self.size + max(_STEP, self.size * _GROW), self._highest)

    def _late_by(self, now: float) -> float:
        """By what share of the window there would have been no queue: 1 where there was none.

        On a long path a longer queue is none, and some samples are needed, as its delay may vary.
        """
        if self._samples < _SAMPLES:
            return 1.0
        took = max(self._least, _SHORTEST)
        quickest = self._quickest.sample(took, now)
        self._samples, self._least = 0, NEVER
        return min(1.0, (quickest + max(self._delay, quickest / 4)) / took)

    def _fall(self, factor: float, lowest: float, event: PaceEvent) -> None:
        self.size = self._threshold = max(lowest, self.size * factor)
        self._step(event)

    def stalled(self) -> None:
        """Nothing that was on its way has arrived for long."""
        self._threshold = max(self._lowest, self.size / 2)
        self.size = self._lowest
        self._step(PaceEvent.STALL)

    def _step(self, event: PaceEvent) -> None:
        self.state = pace_step(self.state, event)
        self.why = event


class Losses:
    """Whether what is lost is the window's fault: that is tried.

    Where clearly more is lost than usual, the window is eased. If as much is lost still, the path loses so
    much at any rate: that is usual from then on, and the window is what it was. Else the window was too
    large.
    """

    __slots__ = ("_arrived", "_asked", "_tried", "usual")

    def __init__(self) -> None:
        self.usual = 0.0  # share of the bytes that the path loses at any rate
        self._asked = 0
        self._arrived = 0
        self._tried: tuple[float, float] | None = None  # (size, share lost) before it was eased

    def add(self, asked: int, arrived: int) -> None:
        """Bytes of one round."""
        self._asked += asked
        self._arrived += arrived

    def verdict(self, size: float, *, queued: bool) -> Verdict | None:
        """What becomes of a window of `size`; None where there is too little to judge by.

        `queued`: all that arrives has waited in a queue, so that what is lost is lost there.
        """
        total = self._asked + self._arrived
        if total < _ENOUGH:
            return None
        lost = self._asked / total
        self._asked = self._arrived = 0
        tried, self._tried = self._tried, None
        cleared = tried is not None and lost > _STILL * tried[1] and not queued
        if tried is not None and cleared:
            self.usual = lost
            size = max(size, tried[0])
        most = 1.5 * self.usual + _CLEARLY
        if lost > min(max(_MUCH, most), _HALF):
            return Verdict(size / 2, True)
        if lost > most:
            self._tried = (size, lost)
            return Verdict(size * _EASE, True)
        self.usual = min(self.usual, self.usual + (lost - self.usual) / 8)
        return Verdict(size, False, cleared)


class Verdict:
    """The size that a window has from now on, and whether that is for its losses.

    `cleared`: what was lost before was not the window's fault.
    """

    __slots__ = ("cleared", "losing", "size")

    def __init__(self, size: float, losing: bool, cleared: bool = False) -> None:
        self.size = size
        self.losing = losing
        self.cleared = cleared
