"""Publishes that wait for their confirms, in order. Pure."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Confirms(Generic[T]):
    """The unconfirmed publishes of one channel, whose numbers count from 1.

    A part is whatever was written with some number of publishes, also none. It is settled when all before it
    are and all of its own publishes are confirmed.
    """

    def __init__(self) -> None:
        self.sent = 0  # publishes so far
        self._floor = 0  # all up to it are confirmed
        self._single: set[int] = set()  # confirmed ones above the floor
        self._parts: deque[tuple[int, T]] = deque()  # number of the last publish, part

    @property
    def waiting(self) -> int:
        """How many publishes are not confirmed."""
        return self.sent - self._floor - len(self._single)

    def wrote(self, count: int, part: T) -> list[T]:
        """Notes a part with `count` publishes. Returns the parts that are settled now."""
        self.sent += count
        self._parts.append((self.sent, part))
        return self._settled()

    def confirmed(self, tag: int, multiple: bool) -> list[T]:
        """Notes a confirm. Returns the parts that are settled now, in order."""
        if multiple:
            last = tag or self.sent  # 0: all so far
            self._single = {one for one in self._single if one > last}
            self._floor = max(self._floor, min(last, self.sent))
        elif self._floor < tag <= self.sent:
            self._single.add(tag)
        while self._floor + 1 in self._single:
            self._floor += 1
            self._single.discard(self._floor)
        return self._settled()

    def _settled(self) -> list[T]:
        settled = []
        while self._parts and self._parts[0][0] <= self._floor:
            settled.append(self._parts.popleft()[1])
        return settled

    def left(self) -> list[T]:
        """Removes and returns all parts that are not settled, in order, and begins to count from 1."""
        parts = [part for _, part in self._parts]
        self._parts.clear()
        self._single.clear()
        self.sent = self._floor = 0
        return parts
