"""The required output of the Spark run: every input exactly once in each output topic. Pure.

The input topic may be replaced by a new one of the same name, and so may the output; each such topic is a
*generation*. A value is the input's partition, offset and number. Numbers are never reused, so a value
identifies its input generation.

When an input generation is deleted, all of its records must be in the output if the query had time to read
them. Otherwise only records already in the output must stay; the others are lost with the topic and counted.
All records of the current generation must arrive.
"""

from __future__ import annotations

from collections import Counter


class Accounts:
    """`gone`: inputs that nobody had read when their topic was deleted."""

    def __init__(self) -> None:
        self.gone = 0
        self._known: set[bytes] = set()  # inputs of earlier generations
        self._due: set[bytes] = set()  # the subset that must be in the output
        self._now: set[bytes] = set()  # inputs of the current generation
        self._found: Counter[bytes] = Counter()  # in the current output topic
        self._before: list[Counter[bytes]] = []  # in the previous output topics

    def fed(self, value: bytes) -> None:
        """Notes an input, as read back."""
        self._now.add(value)

    def written(self, value: bytes) -> None:
        """Notes a value read from the current output topic."""
        self._found[value] += 1

    def turn(self) -> int:
        """Switches to another output topic, or another of the same name. Returns the previous topic's
        number."""
        self._before.append(self._found)
        self._found = Counter()
        return len(self._before) - 1

    def written_before(self, number: int, value: bytes) -> None:
        """Notes a value read from the output topic with this number."""
        self._before[number][value] += 1

    def input_anew(self, *, complete: bool) -> None:
        """Switches to another input topic. `complete`: the query had time to read the old one to its end."""
        due = self._now if complete else self._now & self.seen()
        self._due |= due
        self._known |= self._now
        self._now = set()

    @property
    def new_seen(self) -> int:
        """Returns how many inputs of the current generation are in the output."""
        return len(self._now & self.seen())

    def seen(self) -> set[bytes]:
        """Returns the values seen in any output topic."""
        return set(self._found).union(*self._before)

    def missing(self) -> set[bytes]:
        """Returns the inputs that are still missing."""
        return (self._due | self._now) - self.seen()

    def strange(self) -> set[bytes]:
        """Returns outputs that are no known input. While inputs are being read, some may just not be read
        back yet."""
        return self.seen() - self._now - self._known

    def twice(self) -> list[bytes]:
        """Returns the values that occur more than once in one topic."""
        counters = (self._found, *self._before)
        return [value for found in counters for value, count in found.items() if count > 1]

    def some(self) -> bytes:
        """Returns a value of the current output topic."""
        return min(self._found)

    def close(self) -> None:
        """Notes that everything has been read."""
        self.gone = len(self._known - self.seen())

    @property
    def inputs(self) -> int:
        return len(self._known) + len(self._now)
