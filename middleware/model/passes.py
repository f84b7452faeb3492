"""Work at the end of a pass of the event loop, in stages.

A step that hands over to the next one by `loop.call_soon` costs a whole pass of the loop, with a poll of all
sockets, and several such steps in a row delay a single message by as many passes. Steps that are added here
with a later stage follow in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from .logs import Log

_log = Log(__name__)

Work = Callable[[], None]

FACES: Final = 0  # faces write to their stores and their connections
LINKS: Final = 1  # connections to other hosts are written
TURN: Final = 2  # the host's turn ends
_STAGES: Final = 3


class Passes:
    """The passes of one loop. `soon`: the loop's `call_soon`. `scheduled`: this pass has work at its end.

    Work that is added during the end of a pass, for a stage that has begun, runs at the end of the next pass.
    """

    def __init__(self, soon: Callable[[Work], object]) -> None:
        self.scheduled = False
        self._soon = soon
        self._stages: list[list[Work]] = [[] for _ in range(_STAGES)]

    def at(self, stage: int) -> Callable[[Work], None]:
        """Returns the function that adds work for a stage."""
        return partial(self.add, stage)

    def add(self, stage: int, work: Work) -> None:
        self._stages[stage].append(work)
        if not self.scheduled:
            self.scheduled = True
            self._soon(self._end)

    def _end(self) -> None:
        for stage in range(_STAGES):
            works, self._stages[stage] = self._stages[stage], []
            for work in works:
                try:
                    work()
                except Exception:  # the other steps still have to be taken
                    _log.exception("a step at the end of a pass failed")
        self.scheduled = any(self._stages)
        if self.scheduled:
            self._soon(self._end)
