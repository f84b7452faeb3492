"""What has to be in the output of the Spark run: every input once in each topic it was written to. Pure.

The input topic may be made anew, and so may the output; each topic that once was is told apart by its
*generation*. A value is the input's partition, offset and number, and numbers are never used again, so a
value tells of which generation of the input it is.

What was in a generation of the input when it was deleted has to be in the output where the query was given
time to read all; else only what was there already has to stay, and the rest went with the topic: it is
counted. In the generation that is there now all has to arrive.
"""

from __future__ import annotations

from collections import Counter


class Accounts:
    """`gone`: inputs that nobody had read when their topic was deleted, and nobody ever will."""

    def __init__(self) -> None:
        self.gone = 0
        self._known: set[bytes] = set()  # inputs of earlier generations
        self._due: set[bytes] = set()  # of these, what has to be there
        self._now: set[bytes] = set()  # inputs of the generation that is there now
        self._found: Counter[bytes] = Counter()  # in the topic that is written to now
        self._before: list[Counter[bytes]] = []  # in those that were written to before

    def fed(self, value: bytes) -> None:
        """An input, as read back."""
        self._now.add(value)

    def written(self, value: bytes) -> None:
        """Read from the topic that is written to now."""
        self._found[value] += 1

    def turn(self) -> int:
        """Another topic is written to from now on, or another of the same name. The number of the last."""
        self._before.append(self._found)
        self._found = Counter()
        return len(self._before) - 1

    def written_before(self, number: int, value: bytes) -> None:
        """Read from the topic with this number."""
        self._before[number][value] += 1

    def input_anew(self, *, complete: bool) -> None:
        """The input is another one from now on. `complete`: the query had the time to read all."""
        due = self._now if complete else self._now & self.seen()
        self._due |= due
        self._known |= self._now
        self._now = set()

    @property
    def new_seen(self) -> int:
        """How many inputs of the generation that is there now are in the output."""
        return len(self._now & self.seen())

    def seen(self) -> set[bytes]:
        """In any topic that was ever written to."""
        return set(self._found).union(*self._before)

    def missing(self) -> set[bytes]:
        """What is not there yet."""
        return (self._due | self._now) - self.seen()

    def strange(self) -> set[bytes]:
        """What was written and is no input. While inputs are read, those that were not may be among them."""
        return self.seen() - self._now - self._known

    def twice(self) -> list[bytes]:
        """What is there more than once in one topic."""
        counters = (self._found, *self._before)
        return [value for found in counters for value, count in found.items() if count > 1]

    def some(self) -> bytes:
        """A value that is in the topic that is written to now."""
        return min(self._found)

    def close(self) -> None:
        """All is read."""
        self.gone = len(self._known - self.seen())

    @property
    def inputs(self) -> int:
        return len(self._known) + len(self._now)
