"""What a channel was given and has not settled: by delivery tag, in ranges of parts.

Delivery tags rise by one. Messages of a part that were delivered together are one range; settled from the
front it grows shorter, settled amid it becomes two. So a consumer that settles in order costs one range for
each part.
"""

from __future__ import annotations

from treecast.middleware.broker.queues import Consumer, MessageQueue, Part


class Given:
    """`count` messages of a part, from number `offset` of it on, under the delivery tags from `first` on.

    `consumer` None: it was asked for by basic.get.
    """

    def __init__(
        self, first: int, count: int, offset: int, part: Part, queue: MessageQueue, consumer: Consumer | None
    ) -> None:
        self.first = first
        self.count = count
        self.offset = offset
        self.part = part
        self.queue = queue
        self.consumer = consumer

    def section(self, first: int, count: int) -> Given:
        """Those of it under the tags from `first` on."""
        offset = self.offset + first - self.first
        return Given(first, count, offset, self.part, self.queue, self.consumer)


class Unsettled:
    """Of one channel. `count` messages."""

    def __init__(self) -> None:
        self.count = 0
        self._ranges: list[Given] = []  # by rising tags, from `_begin` on
        self._begin = 0

    def add(self, given: Given) -> None:
        self._ranges.append(given)
        self.count += given.count

    def take(self, tag: int, count: int = 1) -> list[Given]:
        """Takes out `count` messages with tags from `tag` on; empty where any of them is not there."""
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
        """The same over several ranges."""
        taken = self.take(tag, available)
        more = self.take(tag + available, count - available)
        if not more:
            self.put_back(taken)
            return []
        return taken + more

    def take_up_to(self, tag: int) -> list[Given]:
        """Takes out all up to `tag`, 0: all; empty where `tag` is not there."""
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
        """Takes out all."""
        taken = self._ranges[self._begin :]
        self._ranges = []
        self._begin = self.count = 0
        return taken

    def put_back(self, taken: list[Given]) -> None:
        """What was taken out is unsettled all the same."""
        ranges = [*self._ranges[self._begin :], *taken]
        ranges.sort(key=_first)
        self._ranges = ranges
        self._begin = 0
        self.count += sum([given.count for given in taken])

    def _cut(self, at: int, tag: int, count: int) -> None:
        """Takes `count` messages from `tag` on out of the range at `at`."""
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
        """Lets go of what was settled at the front, now and then."""
        if self._begin > 1024 and self._begin * 2 > len(self._ranges):
            del self._ranges[: self._begin]
            self._begin = 0

    def _find(self, tag: int) -> int:
        """Where the range with `tag` is, or -1."""
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
