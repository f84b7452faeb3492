"""Counting of refusals by reason, with logging that does not flood: the 1st time, the 2nd, the 4th
and so on.
"""

from __future__ import annotations

import enum
import logging

from .logs import Log


class Complaints:
    """Counters of refusals in a dictionary. `event` is that of each log line; `usual` reasons
    are logged at DEBUG.
    """

    def __init__(
        self,
        counted: dict[str, int],
        log: Log,
        event: str,
        usual: frozenset[str] = frozenset(),
        level: int = logging.WARNING,
    ) -> None:
        self.counted = counted
        self._log = log
        self._event = event
        self._usual = usual
        self._level = level

    def add(self, reason: enum.Enum) -> None:
        """Counts one more for a reason whose value describes it."""
        self.count(reason.name, reason.value)

    def count(self, name: str, why: object, by: int = 1) -> None:
        """Counts `by` more of `name`. Logs `why` each time the count has doubled."""
        before = self.counted.get(name, 0)
        after = self.counted[name] = before + by
        if after.bit_length() > before.bit_length():
            level = logging.DEBUG if name in self._usual else self._level
            self._log.at(level, self._event, {"reason": name, "detail": why, "count": after})
