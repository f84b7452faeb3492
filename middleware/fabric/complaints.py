"""Counts what is refused, by reason, and logs it without flooding: the 1st time, the 2nd, the 4th..."""

from __future__ import annotations

import enum
import logging

_log = logging.getLogger(__name__)


# What happens without anybody's fault: streams were left, or are of another fabric host of this machine;
# states of STARE's own come by the same port, and have a socket of their own.
_USUAL = frozenset({"OWN", "UNKNOWN_STREAM", "UNKNOWN_ORIGIN", "OLD_EPOCH", "BARE_STATE"})


class Complaints:
    """Adds to a dictionary of counters."""

    def __init__(self, counted: dict[str, int]) -> None:
        self.counted = counted

    def add(self, reason: enum.Enum) -> None:
        name = reason.name
        count = self.counted.get(name, 0) + 1
        self.counted[name] = count
        if not count & (count - 1):
            level = logging.DEBUG if name in _USUAL else logging.WARNING
            _log.log(level, "fabric: packets refused: %s (%s), %d so far", name, reason.value, count)
