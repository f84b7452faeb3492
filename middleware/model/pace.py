"""How soon one turn of a busy loop may follow another, so that small requests make batches by themselves.

A turn makes the same few system calls whether it brings one small request or ten: the socket is polled, read
and written, the log is written, and clients are woken. A loop that serves each request by itself pays all of
that for each. Network cards had the same problem with interrupts, and moderate them. So does a turn here: as
long as turns come no faster than one in `APART`, none waits, and neither does a short burst. If they go on
coming faster, a turn rests for the difference, and the next one takes together what has come meanwhile.
"""

from __future__ import annotations

from typing import Final

APART: Final = 0.0001  # seconds: 10,000 turns in each
AHEAD: Final = 0.005  # seconds that turns may be ahead of that before one rests


class Pace:
    """The turns of one loop. Times are seconds of any clock that doesn't go back."""

    def __init__(self, apart: float = APART, ahead: float = AHEAD) -> None:
        self._apart = apart
        self._ahead = ahead
        self._due = 0.0  # when the next turn would be due if all had kept the distance

    def rest(self, now: float) -> float:
        """A turn ends at `now`: how long to wait before the next. A rest that took longer is made up for."""
        due = self._due + self._apart
        if due < now - self._ahead:
            due = now - self._ahead
        self._due = due
        return due - now if due > now else 0.0
