"""The time of the event loop that costly requests may take in one pass of it, so that the others have theirs.

One request may name thousands of filters, topics or partitions, and serving it in one go would make every
other connection wait. Whoever works through such a request asks `spent` after every few pieces of it, and
once the answer is yes hands the rest to `later`. All costly requests of a host share one budget, whatever
their face. So many of them at once delay the others no more than one; they take turns in the order in which
they came to wait.

The budget is time, read from a clock, rather than a count of pieces: a piece (a filter of 200 levels, a batch
to decompress) has no fixed price. What a single piece may cost is bounded where it is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

SLICE: Final = 0.005  # seconds of a pass; others wait little longer for an answer
GRACE: Final = 0.001  # seconds that a request may work before it is asked to wait for others

Callback = Callable[[], None]


class WorkBudget:
    """The budget of one host. A callback of the loop begins the next pass, as with `Ration`."""

    __slots__ = ("_begun", "_ends", "_grace", "_seconds", "_serves", "_soon", "_waiting", "now")

    def __init__(
        self,
        clock: Callable[[], float],
        soon: Callable[[Callback], object],
        seconds: float = SLICE,
        grace: float = GRACE,
    ) -> None:
        """`clock`: seconds. `soon`: calls its argument in the next pass of the loop."""
        self.now = clock  # read in place: it is asked for each chunk
        self._soon = soon
        self._seconds = seconds
        self._grace = grace
        self._ends = 0.0
        self._begun = False  # the budget of this pass is in use
        self._serves = False  # one that has waited is being called
        self._waiting: deque[tuple[Callback, bool]] = deque()

    def spent(self) -> bool:
        """Whether the caller has to wait: the time is used up, or others have waited for longer."""
        if self._waiting and not self._serves:
            return True
        if not self._begun:
            self._begin()
            return False
        return self.now() >= self._ends

    def spent_since(self, began: float) -> bool:
        """As `spent`, for work that began at `began`; never in the first moment of it, so that usual requests
        do not wait behind costly ones."""
        return self.now() - began > self._grace and self.spent()

    def later(self, work: Callback, alone: bool = False) -> None:
        """Calls `work` when its turn has come, in a later pass of the loop. `alone`: it only wakes somebody,
        who then works, so nobody else gets a turn in that pass."""
        self._waiting.append((work, alone))
        if not self._begun:
            self._begin()

    def _begin(self) -> None:
        self._begun = True
        self._ends = self.now() + self._seconds
        self._soon(self._renew)

    def _renew(self) -> None:
        """Begins a pass, with those that wait."""
        self._begun = False
        if not self._waiting:
            return
        self._begin()
        self._serves = True
        try:
            self._serve()
        finally:
            self._serves = False

    def _serve(self) -> None:
        for _ in range(len(self._waiting)):  # those who come back wait for the next pass
            work, alone = self._waiting.popleft()
            work()
            if alone or self.now() >= self._ends:
                return


def _no_time() -> float:
    return 0.0


def _at_once(work: Callback) -> None:
    work()


def unbounded() -> WorkBudget:
    """Returns a budget that is never spent, for what runs without a loop."""
    return WorkBudget(_no_time, _at_once, 1.0)
