"""Flow control at the origin: a window of bytes in flight for each receiver.

A receiver has one window for live data and one for its replay. They bound the bytes in flight (FACK), not the
unsettled ones, so a gap does not stop them. A window grows with arrivals. It shrinks with losses beyond the
path's usual loss rate, and with queueing delay, because other traffic waits behind what it leaves in queues
(the idea of LEDBAT, RFC 6817, without its target of 100 ms).

Live data is sent as far as the smallest window of the receivers that keep up allows (`live`).
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.timers import NEVER

from .states import PaceEvent, PaceState, pace_step

_MUCH: Final = 1 / 3  # a receiver that requests more than this share loses much, unless that is usual
_HALF: Final = 1 / 2  # the same regardless of what is usual
_CLEARLY: Final = 0.06  # loss share beyond the path's usual loss at which a window is too large
_EASE: Final = 0.6  # factor applied to the window then
_GROW: Final = 0.125  # growth per round of a window that was used
_STEP: Final = 4096.0  # minimum growth in bytes per round
_ENOUGH: Final = 64 * 1024  # minimum bytes to judge losses by
_SHORTEST: Final = 1e-5  # minimum turnaround in seconds: the clock may not have advanced
_SAMPLES: Final = 3  # minimum turnaround samples to judge queues by
_VARIES: Final = 1.0625  # times the quickest turnaround that data may take without a queue
_LATELY: Final = 8  # reports over which a mean is taken
_STILL: Final = 0.7  # if more than this share of the loss remains after easing, easing did not help
_REMEMBERED: Final = 10.0  # seconds; a path that became longer is recognized after twice this time at most


class Quickest:
    """The recent minimum of a value, such as a turnaround; it approximates the path without queues."""

    __slots__ = ("_before", "_begun", "_now")

    def __init__(self) -> None:
        self._before = NEVER
        self._now = NEVER
        self._begun = -NEVER

    @property
    def value(self) -> float:
        """The minimum of the last 10 to 20 seconds; NEVER without a sample."""
        return min(self._now, self._before)

    def sample(self, took: float, now: float) -> float:
        """Adds a sample and returns the minimum of the last 10 to 20 seconds."""
        if now - self._begun >= _REMEMBERED:
            self._before, self._now, self._begun = self._now, NEVER, now
        self._now = min(self._now, took)
        return self.value


class Paths:
    """The quickest turnaround to each host, shared by all streams of this one.

    Streams on the same path wait in the same queues. A stream that began while another filled them would
    mistake the queueing delay for path delay, and leave the other less and less.
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
    """Bytes that may be in flight to one receiver, between `lowest` and `highest`.

    The window is judged in rounds; a round lasts as long as the turnaround of the data that arrives at its
    start. It grows only if it was used. Loss at the path's usual rate says nothing about the window
    (`Losses`); loss beyond that does, and so does a queue in which all data of a round has waited.
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
        "queued",
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
        """`delay`: seconds that data in flight may wait in queues. `quickest`: shared by windows to the same
        host."""
        self._delay = delay
        self._quickest = quickest if quickest is not None else Quickest()
        self._losses = Losses()
        self.state = PaceState.OPENING
        self.why = PaceEvent.TURN  # the event that last changed it
        self._highest = float(highest)
        self._lowest = min(float(lowest), self._highest)
        self._first = min(max(float(first), self._lowest), self._highest)
        self.size = self._first
        self._threshold = self._highest
        self._arrived = 0  # bytes in this round
        self._asked = 0
        self._samples = 0  # since queues were last checked
        self._least = NEVER  # minimum seconds that these took
        self.queued = 0.0  # mean seconds that data has waited in queues lately
        self._used = False
        self._was_opening = False  # whether it was opening when losses first stopped it
        self._ends = -NEVER  # end of this round

    def progress(self, arrived: int, took: float, now: float, *, used: bool = True) -> None:
        """Takes the arrival of `arrived` bytes, the last of them `took` seconds after it was sent.

        `used`: at least half of the window was in flight.
        """
        self._arrived += arrived
        self._samples += 1
        self._least = min(self._least, took)
        self.queued += (max(0.0, took - _VARIES * self._quickest.value) - self.queued) / _LATELY
        self._used = self._used or used
        if self.state is PaceState.OPENING and used:
            self.size = min(self.size + arrived, self._highest)
            if self.size >= self._threshold:
                self._step(PaceEvent.REACHED)
        if now >= self._ends:
            self._judge(now)
            self._begin(now + took)

    def found(self, size: float) -> None:
        """Raises the window to a size that another window on the same path has reached."""
        self.size = max(self.size, min(size, self._highest))

    def asked(self, size: int) -> None:
        """Notes that the receiver has requested `size` bytes of what was sent to it."""
        self._asked += size

    def lost(self, size: int, now: float) -> None:
        """Notes that `size` bytes were in flight so long that they count as lost."""
        self._asked += size
        if now >= self._ends:
            self._judge(now)
            self._begin(now)

    def _begin(self, ends: float) -> None:
        self._arrived = self._asked = 0
        self._used = False
        self._ends = ends

    def _judge(self, now: float) -> None:
        """Evaluates the finished round."""
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
            # Queues do not reduce the window below its initial size: a machine that is slow to answer must
            # not make a replay slower than the data it has to catch up with.
            self._fall(max(late, 0.5), self._first, PaceEvent.LATE)
        elif self.state is PaceState.STEADY and self._used:
            self.size = min(self.size + max(_STEP, self.size * _GROW), self._highest)

    def _late_by(self, now: float) -> float:
        """The share of the window at which there would have been no queue; 1 if there was none.

        The allowed queue is longer on a long path. Several samples are needed because delays vary.
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
        """Reacts to a stall: nothing in flight has arrived for long."""
        self._threshold = max(self._lowest, self.size / 2)
        self.size = self._lowest
        self._step(PaceEvent.STALL)

    def _step(self, event: PaceEvent) -> None:
        self.state = pace_step(self.state, event)
        self.why = event


class Losses:
    """Tests whether the window is the cause of losses.

    If clearly more than usual is lost, the window is eased. If nearly as much is still lost afterwards, the
    path has that loss rate anyway: it becomes the usual rate, and the window is restored. Otherwise the
    window was too large.
    """

    __slots__ = ("_arrived", "_asked", "_tried", "usual")

    def __init__(self) -> None:
        self.usual = 0.0  # share of bytes that the path loses regardless of the window
        self._asked = 0
        self._arrived = 0
        self._tried: tuple[float, float] | None = None  # (size, share lost) before easing

    def add(self, asked: int, arrived: int) -> None:
        """Adds the bytes of one round."""
        self._asked += asked
        self._arrived += arrived

    def verdict(self, size: float, *, queued: bool) -> Verdict | None:
        """Returns the verdict for a window of `size`; None if there is too little data.

        `queued`: everything that arrived has waited in a queue, so losses happen there.
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
    """The new size of a window, and whether losses are the reason.

    `cleared`: earlier losses were not caused by the window.
    """

    __slots__ = ("cleared", "losing", "size")

    def __init__(self, size: float, losing: bool, cleared: bool = False) -> None:
        self.size = size
        self.losing = losing
        self.cleared = cleared
