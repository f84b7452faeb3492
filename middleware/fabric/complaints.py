"""Counts what is refused, by reason, and logs it without flooding: the 1st time, the 2nd, the 4th..."""

from __future__ import annotations

import enum
import logging

_log = logging.getLogger(__name__)


class Complaints:
    """Adds to a dictionary of counters."""

    def __init__(self, counted: dict[str, int]) -> None:
        self.counted = counted

    def add(self, reason: enum.Enum) -> None:
        name = reason.name
        count = self.counted.get(name, 0) + 1
        self.counted[name] = count
        if not count & (count - 1):
            _log.warning("fabric: packets refused: %s (%s), %d so far", name, reason.value, count)
