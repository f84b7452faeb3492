"""The store of runs that have to outlive the process or do not fit in memory, shared by all queues.

A run is put when the first queue needs it in the store. Queues hold it by its place, a number; runs that no
queue holds are removed. Queues also put pages: lists of their own entries, which only that queue reads.
"""

from __future__ import annotations

from typing import Protocol

from .message import Run


class RunStore(Protocol):
    """A store of runs. Places are never 0, and not reused as long as anyone may refer to them."""

    def put(self, run: Run) -> None:
        """Stores the run and sets its place, unless it has one. No queue holds it yet.

        It counts as stored once the turn that put it has ended.
        """

    def hold(self, place: int, count: int) -> None:
        """Notes that a queue holds `count` messages of the run at `place`."""

    def let_go(self, place: int, count: int) -> None:
        """Notes that a queue holds `count` messages fewer."""

    def load(self, place: int) -> Run:
        """Returns the run at `place`. Raises TreecastError(STORAGE) on a disk error."""

    def put_page(self, page: bytes) -> int:
        """Stores a page until it is taken. Returns its place."""

    def take_page(self, place: int) -> bytes:
        """Removes and returns a page."""

    def drop_page(self, place: int) -> None:
        """Removes a page unread."""


class MemoryStore:
    """A store in memory, for hosts without a disk and for tests."""

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
