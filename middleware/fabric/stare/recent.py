"""Request numbers, kept at least as long as a packet may be delayed."""

from __future__ import annotations

from typing import Final

LATE: Final = 5.0  # maximum delay of a packet in seconds
MOST: Final = 1 << 18  # numbers of one generation


class Recent:
    """Numbers by key. A number is kept for one to two times `seconds` after its last `put`.

    There are two generations, and the older one is dropped as a whole, so numbers need no time stamps. A
    generation that reaches `most` numbers ends early.
    """

    def __init__(self, seconds: float, most: int = MOST) -> None:
        self._seconds = seconds
        self._most = most
        self._ends = 0.0  # when the younger generation ends
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def put(self, key: int, number: int, now: float) -> None:
        """Sets the number of a key."""
        self._age(now)
        self._young[key] = number
        if len(self._young) >= self._most:
            self._ends = now

    def get(self, key: int, now: float) -> int | None:
        """Returns the number of a key; None if there is none or it is too old."""
        self._age(now)
        found = self._young.get(key)
        return self._old.get(key) if found is None else found

    def _age(self, now: float) -> None:
        if now < self._ends:
            return
        self._old = self._young if now < self._ends + self._seconds else {}
        self._young = {}
        self._ends = now + self._seconds
