"""The received updates of one VNF and state: reassembled, in order, each once."""

from __future__ import annotations

import enum
from typing import Final

from treecast.middleware.wire.stare import StareHeader
from treecast.middleware.wire.stare_numbers import nearest, rebase
from treecast.middleware.wire.stare_updates import Parts


class Refusal(enum.Enum):
    """The reason to discard a packet."""

    DUPLICATE = "the segment was received before"
    CONFLICT = "the segment contradicts another one of its update"
    TOO_FAR = "the segment is too far ahead of the gap"
    NO_ROOM = "the buffer for segments after a gap is full"


class Budget:
    """The remaining bytes for out-of-order data, shared by all replicas of a host."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


_COST: Final = 64  # memory overhead of a segment in bytes


class Replica:
    """Reassembles one VNF's updates of one state and puts them in order.

    `next` is the first missing number, `known` the end of the numbers known to exist. Both are full numbers,
    not modulo 2^14. Until a signal gives the publisher's number (`hear`), they may be off by multiples of
    2^14.
    """

    __slots__ = ("_budget", "_parts", "_values", "_window", "attempts", "based", "known", "next")

    def __init__(self, first: int, budget: Budget, window: int) -> None:
        self.next = first
        self.known = first
        self.based = False
        self.attempts = 0  # requests for missing updates since the last progress
        self._budget = budget
        self._window = window
        self._values: dict[int, bytes] = {}  # whole updates that wait for missing ones
        self._parts: dict[int, Parts] = {}

    @property
    def complete(self) -> bool:
        """Whether no update is known to be missing."""
        return self.next >= self.known

    @property
    def held(self) -> int:
        """The number of waiting updates, whole or partial."""
        return len(self._values) + len(self._parts)

    def receive(self, header: StareHeader, part: bytes) -> list[tuple[int, bytes]] | Refusal:
        """Takes a segment. Returns the updates now in order as (number, value), or the refusal."""
        number = nearest(header.update, self.next)
        if number < self.next or number in self._values:
            return Refusal.DUPLICATE
        if number >= self.next + self._window:
            self.known = max(self.known, number + 1)  # requested later, when the window reaches it
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
        """Takes a whole update, from any source. Returns the same as `receive`."""
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
        """Returns the waiting updates that are now in order."""
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
        """Notes the publisher's next number `end` from a signal. Returns the correction of all numbers."""
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
        """Skips the missing updates before `first`, which are gone. Returns the updates now in order."""
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
        """Returns (first, end) of the updates to request; None if none is known to be missing."""
        if self.complete:
            return None
        end = self.next + 1
        limit = min(self.known, self.next + min(most, self._window))
        while end < limit and end not in self._values:
            end += 1
        return self.next, end

    def close(self) -> None:
        """Returns all held bytes to the budget."""
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
