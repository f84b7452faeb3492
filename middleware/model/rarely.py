"""Limits repeated log lines: the first one at once, later ones at intervals."""

from __future__ import annotations

from typing import Final

SECONDS: Final = 600.0


class Rarely:
    """One kind of line. `held`: number of lines suppressed since the last one that was logged."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.held = 0
        self._seconds = seconds
        self._said_at = 0.0
        self._said = False

    def due(self, now: float) -> bool:
        """Returns whether the line is to be logged; `now` in seconds, on any clock."""
        if self._said and 0.0 <= now - self._said_at < self._seconds:
            self.held += 1
            return False
        self._said, self._said_at = True, now
        return True

    def left_out(self) -> int | None:
        """Returns the number of lines suppressed before a logged one, None for 0, and resets it."""
        held, self.held = self.held, 0
        return held or None
