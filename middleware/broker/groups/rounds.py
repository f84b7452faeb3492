"""When a round of joins ends: at the rebalance time-out, or, if it began in an empty group, once nobody new
comes (KIP-134)."""

from __future__ import annotations

from treecast.middleware.model.timers import NEVER


class Round:
    """The deadline of one group's round of joins, in seconds of the group's clock.

    A delayed round began in an empty group. It does not end as soon as all have joined, but waits for one
    delay, and for another one whenever a member came during the last, up to the rebalance time-out.
    """

    def __init__(self) -> None:
        self.deadline = NEVER
        self.delayed = False
        self._delay = 0.0
        self._left = 0.0  # seconds by which a delayed round may still be extended
        self._grew = False  # a member came since the last delay began

    @property
    def runs(self) -> bool:
        return self.deadline < NEVER

    def begin(self, now: float, timeout: float, delay: float = 0.0) -> float:
        """Begins a round, delayed if `delay` is positive. Returns its deadline."""
        self.delayed = delay > 0
        self._delay = delay
        self._left = max(timeout - delay, 0.0)
        self._grew = False
        self.deadline = now + (delay if self.delayed else timeout)
        return self.deadline

    def grow(self) -> None:
        """Notes that a member came."""
        self._grew = True

    def extend(self, now: float) -> bool:
        """Waits for one delay more at the deadline of a delayed round. Returns False if the round is over."""
        if not (self.delayed and self._grew and self._left > 0):
            return False
        delay = min(self._delay, self._left)
        self._left -= delay
        self._grew = False
        self.deadline = now + delay
        return True

    def end(self) -> None:
        self.deadline = NEVER
        self.delayed = False
