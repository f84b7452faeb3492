"""Counts what is refused, by reason, and logs it without flooding: the 1st time, the 2nd, the 4th..."""

from __future__ import annotations

import enum
import logging


class Complaints:
    """Adds to a dictionary of counters. `what` begins each line; `usual` reasons are for debugging alone."""

    def __init__(
        self,
        counted: dict[str, int],
        log: logging.Logger,
        what: str,
        usual: frozenset[str] = frozenset(),
        level: int = logging.WARNING,
    ) -> None:
        self.counted = counted
        self._log = log
        self._what = what
        self._usual = usual
        self._level = level

    def add(self, reason: enum.Enum) -> None:
        """One more for a reason whose value says it in words."""
        self.count(reason.name, reason.value)

    def count(self, name: str, why: object, by: int = 1) -> None:
        """`by` more of `name`. Logged with `why` as often as their number has doubled."""
        before = self.counted.get(name, 0)
        after = self.counted[name] = before + by
        if after.bit_length() > before.bit_length():
            level = logging.DEBUG if name in self._usual else self._level
            self._log.log(level, "%s: %s (%s), %d so far", self._what, name, why, after)
