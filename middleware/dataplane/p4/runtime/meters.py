"""Meters: single rate (RFC 2697) and two rate (RFC 2698) three colour markers, by `now`."""

from __future__ import annotations

from .errors import ControlError, Problem
from .values import CounterData, MeterConfig, MeterCounts

GREEN, YELLOW, RED = 0, 1, 2


class Meter:
    """Two token buckets, C and P (or E), full at first. Without a configuration every packet is green.

    Tokens count bytes or packets and are refilled by elapsed time; a clock step back adds nothing. `packets`
    and `bytes` count marked packets by colour, whatever the configuration was.
    """

    __slots__ = ("at", "bytes", "committed", "config", "excess", "packets")

    def __init__(self) -> None:
        self.config: MeterConfig | None = None
        self.packets = [0, 0, 0]
        self.bytes = [0, 0, 0]
        self.committed = 0.0
        self.excess = 0.0
        self.at = 0.0

    def configure(self, config: MeterConfig | None, now: float) -> None:
        """Sets new rates and fills the buckets; None makes everything green."""
        self.config = config
        self.at = now
        if config is not None:
            self.committed, self.excess = float(config.cburst), float(config.pburst)

    def counts(self) -> MeterCounts:
        return MeterCounts(*map(CounterData, self.packets, self.bytes))

    def set_counts(self, counts: MeterCounts) -> None:
        colours = (counts.green, counts.yellow, counts.red)
        self.packets = [one.packets for one in colours]
        self.bytes = [one.bytes for one in colours]

    def execute(self, size: int, length: int, now: float) -> int:
        """Marks a packet of `length` bytes, and counts its colour."""
        colour = self.mark(size, now)
        self.packets[colour] += 1
        self.bytes[colour] += length
        return colour

    def mark(self, size: int, now: float) -> int:
        """Returns the colour of a packet of `size` bytes, or of 1 packet."""
        config = self.config
        if config is None:
            return GREEN
        elapsed = now - self.at if now > self.at else 0.0
        self.at = now
        if config.single_rate:
            return self._mark_single(config, size, elapsed)
        self.committed = min(config.cburst, self.committed + elapsed * config.cir)
        self.excess = min(config.pburst, self.excess + elapsed * config.pir)
        if self.excess < size:
            return RED
        self.excess -= size
        if self.committed < size:
            return YELLOW
        self.committed -= size
        return GREEN

    def _mark_single(self, config: MeterConfig, size: int, elapsed: float) -> int:
        """RFC 2697: the overflow of the committed bucket fills the excess bucket."""
        filled = self.committed + elapsed * config.cir
        self.committed = min(config.cburst, filled)
        self.excess = min(config.pburst, self.excess + filled - self.committed)
        if self.committed >= size:
            self.committed -= size
            return GREEN
        if self.excess >= size:
            self.excess -= size
            return YELLOW
        return RED


def checked(config: MeterConfig | None) -> MeterConfig | None:
    """Returns the config, or INVALID: nothing is negative, and the peak isn't below the committed rate."""
    if config is None:
        return None
    if min(config.cir, config.cburst, config.pir, config.pburst) < 0:
        raise ControlError(Problem.INVALID, "rates and bursts of a meter are not negative")
    if not config.single_rate and config.pir < config.cir:
        raise ControlError(Problem.INVALID, f"peak rate {config.pir} is below committed rate {config.cir}")
    return config
