"""The token bucket of a quota. It may be overdrawn, as Kafka's: who takes too much waits until it is paid.

What has come over the network cannot be refused any more. So `take` always takes, and returns how long the
client has to wait before it takes again. A sender asks before it sends, and has
`fabric.core.timing.TokenBucket` for that. Pure.
"""

from __future__ import annotations

from typing import Final

BURST_SECONDS: Final = 1.0  # the bucket holds as much as comes in this time
LONGEST: Final = 30.0  # seconds of one wait; the rest is owed, and waited for after the next request


class QuotaBucket:
    """`rate` tokens a second, at most `BURST_SECONDS` of them at once."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._most = rate * BURST_SECONDS
        self._level = self._most  # below 0: owed
        self._at = now

    def take_if_there(self, amount: float, now: float) -> bool:
        """Takes tokens if there are so many, or if it is full: a rate below 1 lets one pass at a time."""
        self._fill(now)
        if self._level < min(amount, self._most):
            return False
        self._level -= amount
        return True

    def _fill(self, now: float) -> None:
        passed = now - self._at
        if passed > 0:
            self._at = now
            self._level = min(self._level + passed * self.rate, self._most)

    def take(self, amount: float, now: float) -> float:
        """Takes tokens. Returns the seconds to wait, 0.0 if there were enough."""
        self._fill(now)
        self._level -= amount
        return min(-self._level / self.rate, LONGEST) if self._level < 0 else 0.0
