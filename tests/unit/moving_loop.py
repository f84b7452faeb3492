"""A loop for tests of work that takes several passes."""

from __future__ import annotations

from collections.abc import Callable


class Loop:
    """A loop whose clock moves whenever it is read: any work is more than a pass has room for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        self.now += 1.0
        return self.now

    def call_soon(self, work: Callable[[], None]) -> None:
        self.soon.append(work)

    def turn(self) -> None:
        """Runs one pass."""
        soon, self.soon = self.soon, []
        for work in soon:
            work()

    def finish(self) -> int:
        """Runs passes until nothing is left to do. Returns how many."""
        passes = 0
        while self.soon:
            self.turn()
            passes += 1
        return passes
