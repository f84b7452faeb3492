"""Says when a line about the same is due: the first time at once, and then once in a while."""

from __future__ import annotations

from typing import Final

SECONDS: Final = 600.0


class Rarely:
    """Of one kind of line. `held`: how many were not due since the last one that was."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.held = 0
        self._seconds = seconds
        self._said_at = 0.0
        self._said = False

    def due(self, now: float) -> bool:
        """Returns whether it is to be said; `now` in seconds, on any clock."""
        if self._said and 0.0 <= now - self._said_at < self._seconds:
            self.held += 1
            return False
        self._said, self._said_at = True, now
        return True

    def more(self) -> str:
        """Returns what is added to a line that is due, for those that were held back before it; they count
        once.
        """
        held, self.held = self.held, 0
        return f"; {held:,} times more since it was last said" if held else ""
