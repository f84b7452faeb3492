"""Hybrid logical clocks (Kulkarni, Demirbas et al., 2014): stamps that order the writes of hosts. Each stamp
is higher than all that its host had seen.

A stamp is one number: `milliseconds since the Unix epoch (48 bits) | count (16) | host (32)`. Clock skew does
not break the order: a host that has seen a stamp issues a higher one next.
"""

from __future__ import annotations

from typing import Final

_HOST_BITS: Final = 32
_COUNT_BITS: Final = 16


class Stamps:
    """The clock of one host. `wall`: seconds since the Unix epoch, kept by the edge."""

    def __init__(self, host: int = 0) -> None:
        self.host = host
        self.wall = 0.0
        self._last = 0

    def next(self, wall: float) -> int:
        """Returns a stamp above all issued or seen ones; `wall` in seconds since the Unix epoch."""
        now = int(wall * 1000) << _COUNT_BITS
        self._last = now if now > self._last else self._last + 1
        return self._last << _HOST_BITS | self.host

    def seen(self, stamp: int) -> None:
        """Takes note of a stamp of another host, or of an earlier run."""
        time = stamp >> _HOST_BITS
        if time > self._last:
            self._last = time


def written_at(stamp: int) -> float:
    """Returns the time of a stamp in seconds since the Unix epoch, by the writer's clock."""
    return (stamp >> (_HOST_BITS + _COUNT_BITS)) / 1000
