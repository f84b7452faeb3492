"""Numbers of requests, kept for at least as long as a packet may be late."""

from __future__ import annotations

from typing import Final

LATE: Final = 5.0  # seconds that a packet may be on its way, with all that holds it up
MOST: Final = 1 << 18  # numbers of one generation


class Recent:
    """A number by key, until one to two times so many seconds after it was last put.

    Two generations, of which the older goes as a whole: no time is kept with a number. Where more than `most`
    come in a generation it ends early.
    """

    def __init__(self, seconds: float, most: int = MOST) -> None:
        self._seconds = seconds
        self._most = most
        self._ends = 0.0  # of the younger generation
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def put(self, key: int, number: int, now: float) -> None:
        """In place of the key's number, if it had one."""
        self._age(now)
        self._young[key] = number
        if len(self._young) >= self._most:
            self._ends = now

    def get(self, key: int, now: float) -> int | None:
        """None where there is none, or it is too old."""
        self._age(now)
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def _age(self, now: float) -> None:
        if now < self._ends:
            return
        self._old = self._young if now < self._ends + self._seconds else {}
        self._young = {}
        self._ends = now + self._seconds
