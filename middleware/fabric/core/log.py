"""The messages that one end of a stream can repair, in sequence order.

`StreamLog` is the interface that a sender needs; `Log` is the implementation in memory.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator
from typing import Protocol

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import Message
from treecast.middleware.wire.segment_bodies import Expiry, Skipped

_COST_OF_ENTRY = 200  # bytes of memory besides the payload
# Ranges, for bounded memory. Receivers are told SIZE for older ones.
_KEPT_REASONS = 256


class StreamLog(Protocol):
    """The log that a sender reads and trims. Sequences are those of the stream.

    A log may grow by itself (a partition's log does, where sequence and offset are the same number): the
    sender reads `end` in every `to_send`. A log may also lose data; `entries` then yields a `Skipped` in its
    place.
    """

    @property
    def end(self) -> int:
        """The sequence after the last record. It never decreases."""

    @property
    def oldest(self) -> int:
        """The first sequence that can be repaired. It never decreases."""

    @property
    def most_bytes(self) -> float:
        """Size bound: beyond it the oldest data is dropped even if receivers lack it; NEVER: data that
        receivers lack is kept."""

    def entries(self, first: int, end: int) -> Iterator[Message | Skipped]:
        """Yields everything that touches [first, end) in ascending order: whole messages, and lost ranges as
        Skipped.

        A message that extends beyond [first, end) may be yielded as several messages, if it consists of
        several.

        Evaluated lazily: the sender stops at its window or rate limit. Nothing is appended in the meantime.
        """

    def newest(self, first: int) -> Message | None:
        """The last message if it begins at `first`, so that `entries(first, end)` would yield nothing
        else."""

    def trim(self, sequence: int, keep_bytes: int = 0) -> None:
        """Drops data before `sequence`, which all receivers have settled. A log with other users keeps it."""

    def trimmed(self, first: int) -> dict[Expiry, int]:
        """The number of records of [first, oldest) that a bound has dropped, by reason."""

    def expire(self, now: float) -> None:
        """Applies the log's time bounds."""

    def next_deadline(self) -> float:
        """When `expire` has something to do; NEVER for a log that expires by itself."""


class _Entry:
    __slots__ = ("at", "end", "message", "sequence")

    def __init__(self, message: Message, at: float) -> None:
        self.sequence = message.sequence
        self.end = message.end
        self.message: Message | None = message  # None: its time to live has expired
        self.at = at

    @property
    def size(self) -> int:
        return _COST_OF_ENTRY + (len(self.message.payload) if self.message is not None else 0)


class Log:
    """A log in memory, bounded by bytes and age. It remembers why a bound dropped records."""

    def __init__(self, first: int, max_bytes: int, max_age: float) -> None:
        self.end = first
        self.bytes = 0
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._oldest = first
        self._sequences: list[int] = []
        self._entries: list[_Entry] = []
        self._head = 0  # entries before it are dropped
        self._expiring: list[tuple[float, int]] = []  # (time, sequence), a heap
        self._trimmed: list[Skipped] = []  # by a bound, oldest first

    def __len__(self) -> int:
        return len(self._entries) - self._head

    @property
    def oldest(self) -> int:
        """The first sequence that is not trimmed."""
        return self._oldest

    @property
    def most_bytes(self) -> float:
        """Bound on payload bytes plus the overhead per entry."""
        return self._max_bytes

    def append(self, message: Message, now: float, expires: float = NEVER) -> None:
        """Appends `message`, which may leave a hole after the last one. Drops the oldest messages if over the
        bound. Raises ValueError if it begins before `end`."""
        if message.sequence < self.end:
            raise ValueError(f"message {message.sequence} does not follow {self.end}")
        self._sequences.append(message.sequence)
        self._entries.append(_Entry(message, now))
        self.bytes += _COST_OF_ENTRY + len(message.payload)
        self.end = message.end
        if expires != NEVER:
            heapq.heappush(self._expiring, (expires, message.sequence))
        # The newest stays, however large: it may exceed the bound alone, and has not been sent yet.
        while self.bytes > self._max_bytes and len(self) > 1:
            self._drop_first(Expiry.SIZE)

    def trim(self, sequence: int, keep_bytes: int = 0) -> None:
        """Drops messages before `sequence`, which all have, while more than `keep_bytes` are held."""
        while len(self) and self.bytes > keep_bytes and self._entries[self._head].end <= sequence:
            # Nobody lacks it, so there is no reason to remember.
            self._drop_first(None)

    def expire(self, now: float) -> None:
        """Applies the age bound and the messages' own times to live."""
        while len(self) and self._entries[self._head].at + self._max_age <= now:
            self._drop_first(Expiry.AGE)
        while self._expiring and self._expiring[0][0] <= now:
            # The entry stays without its message: whoever lacks it is told TIME_TO_LIVE rather than waits.
            entry = self._find(heapq.heappop(self._expiring)[1])
            if entry is not None and entry.message is not None:
                self.bytes -= len(entry.message.payload)
                entry.message = None

    def next_deadline(self) -> float:
        held = len(self._entries) > self._head
        oldest = self._entries[self._head].at + self._max_age if held else NEVER
        return min(oldest, self._expiring[0][0]) if self._expiring else oldest

    def _drop_first(self, reason: Expiry | None) -> None:
        entry = self._entries[self._head]
        self.bytes -= entry.size
        if reason is not None:
            self._remember(Skipped(self._oldest, entry.end, reason))
        self._oldest = entry.end
        self._head += 1
        # Deleting moves all that follows. Done once as much is dead as alive, it costs each append the same.
        if self._head >= 512 and self._head * 2 >= len(self._entries):
            del self._entries[: self._head]
            del self._sequences[: self._head]
            self._head = 0
        else:
            entry.message = None  # free the payload: the entry itself stays in the list a little longer

    def _remember(self, skipped: Skipped) -> None:
        last = self._trimmed[-1] if self._trimmed else None
        if last is not None and last.end == skipped.first and last.reason is skipped.reason:
            self._trimmed[-1] = Skipped(last.first, skipped.end, last.reason)
        else:
            self._trimmed.append(skipped)
            del self._trimmed[:-_KEPT_REASONS]

    def _find(self, sequence: int) -> _Entry | None:
        at = bisect_right(self._sequences, sequence, lo=self._head) - 1
        if at < self._head:
            return None
        entry = self._entries[at]
        return entry if entry.sequence <= sequence < entry.end else None

    def entries(self, first: int, end: int) -> Iterator[Message | Skipped]:
        """Yields the messages that touch [first, end) and what has expired of it, but nothing for holes."""
        if first < self._oldest:
            yield from self._trimmed_between(first, min(end, self._oldest))
        # One entry earlier: it may begin before `first` and reach into the range.
        at = max(self._head, bisect_right(self._sequences, first, lo=self._head) - 1)
        while at < len(self._entries) and self._entries[at].sequence < end:
            entry = self._entries[at]
            if entry.end > first:
                yield entry.message or Skipped(entry.sequence, entry.end, Expiry.TIME_TO_LIVE)
            at += 1

    def newest(self, first: int) -> Message | None:
        """The last message, if it begins at `first` and has not expired."""
        if len(self._entries) == self._head:
            return None
        last = self._entries[-1]
        return last.message if last.sequence == first else None

    def _trimmed_between(self, first: int, end: int) -> Iterator[Skipped]:
        """Yields the trimmed ranges with their reasons. The reason is SIZE if it is no longer remembered, or
        if the range was trimmed because all receivers had it."""
        for known in self._trimmed:
            if known.end <= first:
                continue
            if known.first >= end:
                break
            if known.first > first:
                yield Skipped(first, known.first, Expiry.SIZE)
            yield Skipped(max(first, known.first), min(end, known.end), known.reason)
            first = min(end, known.end)
        if first < end:
            yield Skipped(first, end, Expiry.SIZE)

    def trimmed(self, first: int) -> dict[Expiry, int]:
        """The number of records from `first` on that a bound has dropped, by reason."""
        lost: dict[Expiry, int] = {}
        for one in self._trimmed_between(first, self._oldest) if first < self._oldest else ():
            lost[one.reason] = lost.get(one.reason, 0) + one.end - one.first
        return lost
