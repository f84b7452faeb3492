"""Counts of what filters of subscriptions cost a host, and would save where messages come from.

    tally = FilterTally(time.perf_counter_ns)
    began = tally.began()
    ...                                            # the filters judge a message
    tally.judged(origin, wishes, size, passed, began)
    taken = tally.take()                           # the interval's counts; the next interval begins

All filters that a topic's subscriptions have on this host count together: a message that passes one of them
is wanted here, and one that passes none would not have had to come. Who filters at the origin by all of them
(`or`) saves just these.

Texts are bounded as well as counts: what is listed has to fit into one record, and clients choose the texts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from msgspec import Struct

FILTERS: Final = 256  # sets of filters listed per interval, of all origins together
CHANGES: Final = 256  # changes of subscriptions listed per interval
TEXT: Final = 1024  # bytes of a pattern or filter that is listed
TEXTS: Final = 128 << 10  # bytes of all that are listed per interval, of filters and of changes each
_WISHES: Final = 32  # filters of one set that are listed
_TIMED: Final = 16  # of so many messages one is timed, and counts for all
_LEAST_SHARE: Final = 30  # halvings


class Wishes(Struct, frozen=True):
    """The filtered subscriptions of a topic on this host. `listed`: (pattern, filter), each once, in order;
    of more than 32 none, nor if one text is longer than 1 KiB, so that no text stands for others. `count`:
    all. `open`: somebody here wants all messages of the topic. `size`: bytes of what is listed.
    """

    listed: tuple[tuple[str, str], ...] = ()
    count: int = 0
    open: bool = False
    place: int = 0  # chooses samples, with the origin; equal for equal texts
    size: int = 0


def wishes_of(found: set[tuple[str, str]], open: bool) -> Wishes:
    """Returns the wishes of some (pattern, filter)."""
    ordered = tuple(sorted(found))
    texts = [part.encode() for one in ordered for part in one]
    place = zlib.crc32(b"\0".join(texts))
    if len(ordered) > _WISHES or max(map(len, texts), default=0) > TEXT:
        return Wishes((), len(ordered), open, place)
    return Wishes(ordered, len(ordered), open, place, sum(map(len, texts)))


class FilterCount(Struct):
    """Messages from one origin that a set of filters has judged. `size`: bytes of topic, payload and
    properties; `nanoseconds`: of judging.
    """

    messages: int = 0
    passed: int = 0
    size: int = 0
    passed_size: int = 0
    nanoseconds: int = 0


class FiltersTaken(Struct, frozen=True):
    """The counts of an interval. `sampled`: the share of pairs of origin and set that is listed, each
    counted in full.
    """

    sampled: float = 1.0
    counts: tuple[tuple[int, Wishes, FilterCount], ...] = ()


class FilterTally:
    """The present interval of one host. `clock`: nanoseconds that only grow. `most`: limit of sets. `room`:
    limit of bytes of their texts.
    """

    def __init__(self, clock: Callable[[], int], most: int = FILTERS, room: int = TEXTS) -> None:
        self._clock = clock
        self._most = most
        self._room = room
        self._size = 0  # bytes of the listed texts
        self._count = 0
        self._halvings = 0
        self._counts: dict[tuple[int, Wishes], FilterCount] = {}

    def began(self) -> int:
        """Returns the time before a message is judged; 0 if this one is not timed."""
        self._count += 1
        return self._clock() if self._count % _TIMED == 0 else 0

    def judged(self, origin: int, wishes: Wishes, size: int, passed: bool, began: int) -> None:
        """Counts a message. `origin`: the host that it came from; 0: this one. `passed`: somebody here gets
        it. `began`: what `began` returned.
        """
        if not self._is_kept(origin, wishes):
            return
        found = self._counts.get((origin, wishes))
        if found is None:
            found = self._counts[origin, wishes] = FilterCount()
            self._size += wishes.size
        found.messages += 1
        found.size += size
        if passed:
            found.passed += 1
            found.passed_size += size
        if began:
            found.nanoseconds += _TIMED * (self._clock() - began)
        while self._is_full() and self._halvings < _LEAST_SHARE:
            self._halvings += 1
            self._counts = {key: one for key, one in self._counts.items() if self._is_kept(*key)}
            self._size = sum([wishes.size for _, wishes in self._counts])

    def _is_full(self) -> bool:
        return len(self._counts) > self._most or self._size > self._room

    def _is_kept(self, origin: int, wishes: Wishes) -> bool:
        # By both: one set of filters may judge what comes from more origins than can be listed. Python hashes
        # numbers alike in every process; the upper bits differ for neighbouring numbers too.
        if not self._halvings:
            return True
        return not hash((origin, wishes.place)) >> 8 & (1 << self._halvings) - 1

    def take(self) -> FiltersTaken:
        """Returns the counts since the last call."""
        ordered = sorted(self._counts.items(), key=lambda item: (item[0][0], item[0][1].listed))
        counts = tuple([(origin, wishes, count) for (origin, wishes), count in ordered])
        taken = FiltersTaken(0.5**self._halvings, counts)
        self._counts, self._halvings, self._size = {}, 0, 0
        return taken


class Change(Struct, frozen=True, order=True):
    """A client has a subscription since, or no longer. `filter`: on the content; empty: none."""

    client: str
    begun: bool
    pattern: str
    filter: str = ""


class ChangesTaken(Struct, frozen=True):
    """Changes in the order in which they happened. `left_out`: those beyond the bounds."""

    listed: tuple[Change, ...] = ()
    left_out: int = 0


class ChangeTally:
    """Changes of clients' subscriptions in the present interval. `most`: limit of listed ones. `room`: limit
    of bytes of their texts.
    """

    def __init__(self, most: int = CHANGES, room: int = TEXTS) -> None:
        self._most = most
        self._room = self._left = room
        self._changes: list[Change] = []
        self._left_out = 0

    def add(self, client: str, begun: bool, pattern: str, filter: str) -> None:
        texts = len(pattern.encode()), len(filter.encode())
        if len(self._changes) < self._most and max(texts) <= TEXT and sum(texts) <= self._left:
            self._left -= sum(texts)
            self._changes.append(Change(client, begun, pattern, filter))
        else:
            self._left_out += 1

    def take(self) -> ChangesTaken:
        """Returns the changes since the last call."""
        taken = ChangesTaken(tuple(self._changes), self._left_out)
        self._changes, self._left_out, self._left = [], 0, self._room
        return taken


class SubscriptionTally:
    """Both, for the hub of a host. `origin`: the host whose messages are fed now; 0: none."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.filters = FilterTally(clock)
        self.changes = ChangeTally()
        self.origin = 0
