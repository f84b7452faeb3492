"""Token buckets, round-trip measurement, and conversion between records and bytes."""

from __future__ import annotations

from typing import Final, Protocol

from .settings import NEVER, StreamSettings

_UNSEEN: Final = 256  # records of a piece before any record was seen


class Random(Protocol):
    """A seeded generator, such as `random.Random`."""

    def random(self) -> float:
        """Returns a number in [0, 1)."""


class TokenBucket:
    """Allows `rate` bytes per second and `burst` at once.

    Something may be sent as long as tokens are left, however large it is; the debt is paid back before the
    next. A message larger than the burst therefore does not wait forever.
    """

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at = now

    def ready(self, now: float) -> bool:
        """Whether something may be sent."""
        if self._rate == NEVER:
            return True
        if now > self._at:  # a clock that jumps back adds nothing
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens > 0

    def set_rate(self, rate: float, now: float) -> None:
        """Sets the rate from now on. Saved tokens and debt remain."""
        self.ready(now)
        if self._rate == NEVER:
            self._tokens, self._at = 0.0, now
        self._rate = rate

    def spend(self, size: int) -> None:
        self._tokens -= size

    def ready_at(self, now: float) -> float:
        """When something may be sent; `now` if at once."""
        if self.ready(now):
            return now
        return now + (1 - self._tokens) / self._rate


class RoundTrip:
    """Smoothed round trip and its variation, after RFC 6298; times in seconds."""

    def __init__(self, initial: float) -> None:
        self.smoothed = initial
        self.variation = initial / 2
        self.measured = False

    def sample(self, value: float) -> None:
        if value < 0:
            return  # the clock went back
        if not self.measured:
            self.smoothed, self.variation, self.measured = value, value / 2, True
            return
        self.variation += (abs(value - self.smoothed) - self.variation) / 4
        self.smoothed += (value - self.smoothed) / 8

    @property
    def timeout(self) -> float:
        """How long an answer may take before it counts as lost."""
        return self.smoothed + 4 * self.variation


class Weight:
    """The allowed lag of a receiver in records, limited by a number of records and by a number of bytes."""

    def __init__(self, settings: StreamSettings) -> None:
        self.most_behind = settings.catch_up_after
        self._most = settings.catch_up_after
        self._bytes = settings.catch_up_bytes
        self._mean = 0.0  # recent bytes per record

    def records_of(self, size: int) -> int:
        """The approximate number of records in `size` bytes, at least one."""
        return max(1, int(size / max(self._mean, 1.0))) if self._mean else _UNSEEN

    def size_of(self, records: int) -> int:
        """The approximate number of bytes in `records` records."""
        return int(records * self._mean)

    def add(self, records: int, size: int) -> None:
        """Updates the mean with a message."""
        mean = size / max(records, 1)
        self._mean = mean if not self._mean else self._mean + (mean - self._mean) / 16
        self.most_behind = max(1, min(self._most, int(self._bytes / max(self._mean, 1.0))))
