"""The unsettled deliveries of a channel, by delivery tag, as ranges of parts.

Delivery tags are consecutive. Messages of a part that were delivered together form one range. Settling at
the front shortens the range; settling in the middle splits it. A consumer that settles in order therefore
needs one range per part.
"""

from __future__ import annotations

from treecast.middleware.broker.queues import AnyQueue, Consumer, Part


class Given:
    """A range: `count` messages of a part from index `offset` on, with delivery tags from `first` on.

    `consumer` is None for a message fetched by basic.get.
    """

    def __init__(
        self, first: int, count: int, offset: int, part: Part, queue: AnyQueue, consumer: Consumer | None
    ) -> None:
        self.first = first
        self.count = count
        self.offset = offset
        self.part = part
        self.queue = queue
        self.consumer = consumer

    def section(self, first: int, count: int) -> Given:
        """Returns the subrange of `count` messages with tags from `first` on."""
        offset = self.offset + first - self.first
        return Given(first, count, offset, self.part, self.queue, self.consumer)


class Unsettled:
    """The unsettled deliveries of one channel, `count` messages in total."""

    def __init__(self) -> None:
        self.count = 0
        self._ranges: list[Given] = []  # in tag order; entries before `_begin` are settled
        self._begin = 0

    def add(self, given: Given) -> None:
        self._ranges.append(given)
        self.count += given.count

    def take(self, tag: int, count: int = 1) -> list[Given]:
        """Removes and returns `count` messages with tags from `tag` on, or [] if any is missing."""
        at = self._find(tag)
        if at < 0:
            return []
        given = self._ranges[at]
        available = given.first + given.count - tag
        if available < count:
            return self._take_over(tag, count, available)
        self._cut(at, tag, count)
        return [given.section(tag, count)]

    def _take_over(self, tag: int, count: int, available: int) -> list[Given]:
        """Does the same across several ranges; the first holds `available` of the messages."""
        taken = self.take(tag, available)
        more = self.take(tag + available, count - available)
        if not more:
            self.put_back(taken)
            return []
        return taken + more

    def take_up_to(self, tag: int) -> list[Given]:
        """Removes and returns all messages up to `tag` (0 for all), or [] if `tag` is missing."""
        if tag == 0:
            return self.clear()
        at = self._find(tag)
        if at < 0:
            return []
        taken = self._ranges[self._begin : at]
        for given in taken:
            self.count -= given.count
        self._begin = at
        last = self._ranges[at]
        count = tag - last.first + 1
        taken.append(last.section(last.first, count))
        self._cut(at, last.first, count)
        self._tidy()
        return taken

    def clear(self) -> list[Given]:
        """Removes and returns all messages."""
        taken = self._ranges[self._begin :]
        self._ranges = []
        self._begin = self.count = 0
        return taken

    def put_back(self, taken: list[Given]) -> None:
        """Adds removed ranges again, in tag order."""
        ranges = [*self._ranges[self._begin :], *taken]
        ranges.sort(key=_first)
        self._ranges = ranges
        self._begin = 0
        self.count += sum([given.count for given in taken])

    def _cut(self, at: int, tag: int, count: int) -> None:
        """Removes `count` messages with tags from `tag` on from the range at index `at`."""
        given = self._ranges[at]
        self.count -= count
        after = given.first + given.count - tag - count
        if tag == given.first:
            if after == 0:
                self._drop(at)
            else:
                self._ranges[at] = given.section(tag + count, after)
            return
        self._ranges[at] = given.section(given.first, tag - given.first)
        if after:
            self._ranges.insert(at + 1, given.section(tag + count, after))

    def _drop(self, at: int) -> None:
        if at == self._begin:
            self._begin += 1
            self._tidy()
        else:
            del self._ranges[at]

    def _tidy(self) -> None:
        """Frees the settled entries at the front once they are many and the majority."""
        if self._begin > 1024 and self._begin * 2 > len(self._ranges):
            del self._ranges[: self._begin]
            self._begin = 0

    def _find(self, tag: int) -> int:
        """Returns the index of the range with `tag`, or -1."""
        low, high = self._begin, len(self._ranges)
        if low < high and tag < self._ranges[low].first + self._ranges[low].count:
            return low if tag >= self._ranges[low].first else -1
        while low < high:
            middle = (low + high) // 2
            given = self._ranges[middle]
            if tag < given.first:
                high = middle
            elif tag >= given.first + given.count:
                low = middle + 1
            else:
                return middle
        return -1


def _first(given: Given) -> int:
    return given.first
