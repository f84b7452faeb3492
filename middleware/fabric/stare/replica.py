"""One VNF's updates of one state, as they come in: put together, in order, each once."""

from __future__ import annotations

import enum
from typing import Final

from treecast.middleware.wire.stare import StareHeader
from treecast.middleware.wire.stare_numbers import nearest, rebase
from treecast.middleware.wire.stare_updates import Parts


class Refusal(enum.Enum):
    """Why a packet was of no use."""

    DUPLICATE = "it was there already"
    CONFLICT = "it contradicts another segment of its update"
    TOO_FAR = "too far ahead of what is missing"
    NO_ROOM = "too much waits for what is missing"


class Budget:
    """Bytes that all replicas of a host may hold of what is not in order yet."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


_COST: Final = 64  # bytes of memory beside a segment's own


class Replica:
    """Numbers are whole; `next` is the first that is missing, `known` the end of what is known to exist.

    Until a signal has said where the publisher is (`hear`), numbers may be off by whole cycles of 14 bits.
    """

    __slots__ = ("_budget", "_parts", "_values", "_window", "attempts", "based", "known", "next")

    def __init__(self, first: int, budget: Budget, window: int) -> None:
        self.next = first
        self.known = first
        self.based = False
        self.attempts = 0  # requests for what is missing, since the last progress
        self._budget = budget
        self._window = window
        self._values: dict[int, bytes] = {}  # whole, later than what is missing
        self._parts: dict[int, Parts] = {}

    @property
    def complete(self) -> bool:
        """Whether nothing is known to be missing."""
        return self.next >= self.known

    @property
    def held(self) -> int:
        """Updates that wait, whole or not."""
        return len(self._values) + len(self._parts)

    def receive(self, header: StareHeader, part: bytes) -> list[tuple[int, bytes]] | Refusal:
        """A segment. The updates whose turn it is, (number, value), or why it was of no use."""
        number = nearest(header.update, self.next)
        if number < self.next or number in self._values:
            return Refusal.DUPLICATE
        if number >= self.next + self._window:
            self.known = max(self.known, number + 1)  # it exists; it is asked for when its turn is near
            return Refusal.TOO_FAR
        self.known = max(self.known, number + 1)
        if header.total == 1:
            return self.take(number, part)
        return self._segment(number, header, part)

    def _segment(self, number: int, header: StareHeader, part: bytes) -> list[tuple[int, bytes]] | Refusal:
        parts = self._parts.get(number)
        if parts is None:
            parts = self._parts[number] = Parts(header.total)
        if parts.total != header.total:
            return Refusal.CONFLICT
        if self._budget.left < len(part) + _COST:
            return Refusal.NO_ROOM
        if not parts.add(header.number, part):
            return Refusal.DUPLICATE
        self._budget.left -= len(part) + _COST
        return self.take(number, parts.joined()) if parts.whole else []

    def take(self, number: int, value: bytes) -> list[tuple[int, bytes]] | Refusal:
        """A whole update, however it came."""
        if number < self.next or number in self._values:
            return Refusal.DUPLICATE
        if number >= self.next + self._window:
            return Refusal.TOO_FAR
        self.known = max(self.known, number + 1)
        self._drop_parts(number)
        if number > self.next:
            if self._budget.left < len(value) + _COST:
                return Refusal.NO_ROOM
            self._budget.left -= len(value) + _COST
            self._values[number] = value
            return []
        self.next = number + 1
        return [(number, value), *self._in_order()]

    def _in_order(self) -> list[tuple[int, bytes]]:
        """What waited, and has its turn now."""
        self.attempts = 0
        found = []
        while (value := self._values.pop(self.next, None)) is not None:
            self._budget.left += len(value) + _COST
            found.append((self.next, value))
            self.next += 1
        return found

    def _drop_parts(self, number: int) -> None:
        parts = self._parts.pop(number, None)
        if parts is not None:
            self._budget.left += self._cost(parts)

    @staticmethod
    def _cost(parts: Parts) -> int:
        return parts.size + _COST * parts.count

    def hear(self, end: int) -> int:
        """The publisher has come as far as `end`, as a signal says. By how much all numbers were off."""
        by = 0
        if not self.based:
            self.based = True
            by = rebase(self.next, end)
            self._move(by)
        self.known = max(self.known, end)
        return by

    def _move(self, by: int) -> None:
        if not by:
            return
        self.next += by
        self.known += by
        self._values = {number + by: value for number, value in self._values.items()}
        self._parts = {number + by: parts for number, parts in self._parts.items()}

    def skip(self, first: int) -> list[tuple[int, bytes]]:
        """Nothing before `first` is to be had any more; answers what has its turn now."""
        if first <= self.next:
            return []
        for number in [number for number in self._parts if number < first]:
            self._drop_parts(number)
        late = sorted(number for number in self._values if number < first)
        found = [(number, self._values.pop(number)) for number in late]
        self._budget.left += sum(len(value) + _COST for _, value in found)
        self.next = first
        self.known = max(self.known, first)
        return [*found, *self._in_order()]

    def missing(self, most: int) -> tuple[int, int] | None:
        """(first, end) of updates to ask for; None where nothing is known to be missing."""
        if self.complete:
            return None
        end = self.next + 1
        limit = min(self.known, self.next + min(most, self._window))
        while end < limit and end not in self._values:
            end += 1
        return self.next, end

    def close(self) -> None:
        """Gives back what it held."""
        for number in list(self._parts):
            self._drop_parts(number)
        self._budget.left += sum(len(value) + _COST for value in self._values.values())
        self._values.clear()

    def check_invariants(self) -> None:
        """For tests."""
        waiting = self._values.keys() | self._parts.keys()
        assert not self._values.keys() & self._parts.keys()
        assert self.next not in self._values
        assert all(self.next <= number < self.known for number in waiting)
