"""The bounds on what waits at an agent: for other sites (`Spool`), and for its broker (`Room`).

Pure.
"""

from __future__ import annotations

from collections.abc import Callable


class Spool:
    """The bound on what other sites have not acknowledged. What is added counts until it is measured, which
    is done only while that may be needed.
    """

    def __init__(self, most: int, measure: Callable[[], int]) -> None:
        """`most`: in bytes. `measure` returns the size now."""
        self._most = most
        self._measure = measure
        self._size = 0

    def add(self, size: int) -> None:
        self._size += size

    @property
    def full(self) -> bool:
        """Whether nothing more is to be added for now."""
        if self._size > self._most:
            self._size = self._measure()
        return self._size > self._most


class Room:
    """The bound on what the broker has not confirmed: `hold` is called with True beyond it, with False again
    when half of it is free."""

    def __init__(self, most: int, hold: Callable[[bool], None]) -> None:
        """`most`: in bytes."""
        self.size = 0
        self.held = False
        self._most = most
        self._hold = hold

    def took(self, size: int) -> None:
        self.size += size
        if not self.held and self.size > self._most:
            self.held = True
            self._hold(True)

    def gave(self, size: int) -> None:
        self.size -= size
        if self.held and self.size <= self._most // 2:
            self.held = False
            self._hold(False)
