"""The periodic work of a face, and whether the event loop stood still before it."""

from __future__ import annotations

from typing import Final

TICK: Final = 0.5  # seconds between checks of deadlines
_STILL: Final = 0.5  # seconds by which a tick is late if the disk or the machine held up the event loop


class Ticks:
    """The times of a face's ticks.

    While the process stands still, the input of clients waits in their sockets. The tick after it must
    therefore not look at their deadlines; the next one does.
    """

    def __init__(self) -> None:
        self.stood_still = 0.0  # seconds for which the event loop did not run, in total
        self._next = 0.0  # 0.0: there was no tick yet

    def tick(self, now: float) -> bool:
        """Takes the time of a tick. Returns whether the event loop ran since the tick before."""
        late = now - self._next if self._next else 0.0
        self._next = now + TICK
        if late <= _STILL:
            return True
        self.stood_still += late
        return False
