"""Where runs are kept that have to outlive the process, or that memory has no room for: once, for all queues.

A run is put when the first queue needs it there. Queues hold it by its place, a number; what nobody holds is
let go of. Queues also put pages: lists of their own entries, which only the one queue reads again.
"""

from __future__ import annotations

from typing import Protocol

from .message import Run


class RunStore(Protocol):
    """Who keeps runs. Places are never 0, and never used again as long as somebody may know them."""

    def put(self, run: Run) -> None:
        """Keeps the run and gives it its place, unless it has one. It is held by nobody yet.

        It counts as stored when the turn that put it has ended.
        """

    def hold(self, place: int, count: int) -> None:
        """A queue holds `count` messages of what is at `place`."""

    def let_go(self, place: int, count: int) -> None:
        """It holds so many less."""

    def load(self, place: int) -> Run:
        """The run at `place`. TreecastError(STORAGE) where the disk refuses."""

    def put_page(self, page: bytes) -> int:
        """Keeps a page until it is taken; its place."""

    def take_page(self, place: int) -> bytes:
        """The page, which is kept no longer."""

    def drop_page(self, place: int) -> None:
        """Nobody will take it."""


class MemoryStore:
    """Keeps them in memory: of a host that has no disk, and of tests."""

    def __init__(self) -> None:
        self.runs: dict[int, Run] = {}
        self.pages: dict[int, bytes] = {}
        self._held: dict[int, int] = {}
        self._next = 1

    def put(self, run: Run) -> None:
        if run.place == 0:
            run.place = self._number()
            self.runs[run.place] = run

    def hold(self, place: int, count: int) -> None:
        self._held[place] = self._held.get(place, 0) + count

    def let_go(self, place: int, count: int) -> None:
        left = self._held[place] - count
        assert left >= 0
        if left:
            self._held[place] = left
        else:
            del self._held[place]
            self.runs.pop(place).place = 0

    def load(self, place: int) -> Run:
        return self.runs[place]

    def put_page(self, page: bytes) -> int:
        place = self._number()
        self.pages[place] = page
        return place

    def take_page(self, place: int) -> bytes:
        return self.pages.pop(place)

    def drop_page(self, place: int) -> None:
        del self.pages[place]

    def _number(self) -> int:
        self._next += 1
        return self._next - 1
