"""The messages that an end of a stream can repair, in order of sequence.

`StreamLog` is what a sender needs of a log; `Log` is the one in memory.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator
from typing import Protocol

from treecast.middleware.wire.segment_assembly import Message
from treecast.middleware.wire.segment_bodies import Expiry, Skipped

from .settings import NEVER

_COST_OF_ENTRY = 200  # bytes of memory beside the payload
_KEPT_REASONS = 256
REPAIRS_PER_NAK = 256  # messages


class StreamLog(Protocol):
    """What a sender reads and lets go. Sequences are those of the stream.

    A log may grow by itself (a partition's log does, where sequence and offset are one number): the
    sender reads `end` whenever it is asked `to_send`. It may also lose what it held; `entries` then has a
    `Skipped` in its place.
    """

    @property
    def end(self) -> int:
        """The sequence that follows the last record. It never falls."""

    @property
    def oldest(self) -> int:
        """The first sequence that can be repaired. It never falls."""

    @property
    def most_bytes(self) -> float:
        """It loses the oldest beyond so many, although receivers lack it; NEVER: it keeps what they lack."""

    def entries(self, first: int, end: int) -> Iterator[Message | Skipped]:
        """What touches [first, end), in ascending order: all of it, messages whole, what is gone as Skipped.

        A message that reaches beyond [first, end) may be given as several, where it consists of several.

        Read lazily: the sender stops where its window or its rate does. Nothing is appended meanwhile.
        """

    def newest(self, first: int) -> Message | None:
        """The last message, if it begins at `first`: then it is all that `entries(first, end)` would give."""

    def trim(self, sequence: int, keep_bytes: int = 0) -> None:
        """All receivers have settled what is before `sequence`. A log that others need keeps it."""

    def trimmed(self, first: int) -> dict[Expiry, int]:
        """How many records of [first, oldest) a bound has taken away, by reason."""

    def expire(self, now: float) -> None:
        """Applies the log's bounds of time."""

    def next_deadline(self) -> float:
        """When `expire` has something to do; NEVER for a log that sees to it by itself."""


class _Entry:
    __slots__ = ("at", "end", "message", "sequence")

    def __init__(self, message: Message, at: float) -> None:
        self.sequence = message.sequence
        self.end = message.end
        self.message: Message | None = message  # None: its time to live is over
        self.at = at

    @property
    def size(self) -> int:
        return _COST_OF_ENTRY + (len(self.message.payload) if self.message is not None else 0)


class Log:
    """Bounded by bytes and age. What a bound takes away is remembered with its reason."""

    def __init__(self, first: int, max_bytes: int, max_age: float) -> None:
        self.end = first
        self.bytes = 0
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._oldest = first
        self._sequences: list[int] = []
        self._entries: list[_Entry] = []
        self._head = 0  # entries before it are gone
        self._expiring: list[tuple[float, int]] = []  # (when, sequence), a heap
        self._trimmed: list[Skipped] = []  # by a bound, oldest first

    def __len__(self) -> int:
        return len(self._entries) - self._head

    @property
    def oldest(self) -> int:
        """The first sequence that is not trimmed."""
        return self._oldest

    @property
    def most_bytes(self) -> float:
        """Payloads, and what keeping them costs beside."""
        return self._max_bytes

    def append(self, message: Message, now: float, expires: float = NEVER) -> None:
        """`message` follows the last one, or leaves a hole. It may push out the oldest ones."""
        if message.sequence < self.end:
            raise ValueError(f"message {message.sequence} does not follow {self.end}")
        entry = _Entry(message, now)
        self._sequences.append(message.sequence)
        self._entries.append(entry)
        self.bytes += entry.size
        self.end = message.end
        if expires != NEVER:
            heapq.heappush(self._expiring, (expires, message.sequence))
        while self.bytes > self._max_bytes and len(self) > 1:
            self._drop_first(Expiry.SIZE)

    def trim(self, sequence: int, keep_bytes: int = 0) -> None:
        """Lets go what all have: messages before `sequence`, while more than `keep_bytes` are held."""
        while len(self) and self.bytes > keep_bytes and self._entries[self._head].end <= sequence:
            self._drop_first(None)

    def expire(self, now: float) -> None:
        """Applies the bound of age and the messages' own times to live."""
        while len(self) and self._entries[self._head].at + self._max_age <= now:
            self._drop_first(Expiry.AGE)
        while self._expiring and self._expiring[0][0] <= now:
            entry = self._find(heapq.heappop(self._expiring)[1])
            if entry is not None and entry.message is not None:
                self.bytes -= len(entry.message.payload)
                entry.message = None

    def next_deadline(self) -> float:
        oldest = self._entries[self._head].at + self._max_age if len(self) else NEVER
        return min(oldest, self._expiring[0][0] if self._expiring else NEVER)

    def _drop_first(self, reason: Expiry | None) -> None:
        entry = self._entries[self._head]
        self.bytes -= entry.size
        if reason is not None:
            self._remember(Skipped(self._oldest, entry.end, reason))
        self._oldest = entry.end
        self._head += 1
        if self._head >= 512 and self._head * 2 >= len(self._entries):
            del self._entries[: self._head]
            del self._sequences[: self._head]
            self._head = 0
        else:
            entry.message = None  # the list keeps the entry a little longer

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
        """The messages that touch [first, end), and what has expired of it. Not what was never here."""
        if first < self._oldest:
            yield from self._trimmed_between(first, min(end, self._oldest))
        at = max(self._head, bisect_right(self._sequences, first, lo=self._head) - 1)
        while at < len(self._entries) and self._entries[at].sequence < end:
            entry = self._entries[at]
            if entry.end > first:
                yield entry.message or Skipped(entry.sequence, entry.end, Expiry.TIME_TO_LIVE)
            at += 1

    def newest(self, first: int) -> Message | None:
        """The last message, if it begins at `first` and has not expired."""
        last = self._entries[-1] if len(self) else None
        return last.message if last is not None and last.sequence == first else None

    def _trimmed_between(self, first: int, end: int) -> Iterator[Skipped]:
        """With their reasons; SIZE where it is not remembered, or all of that time had them."""
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
        """How many records from `first` on a bound has taken away, by reason."""
        lost: dict[Expiry, int] = {}
        for one in self._trimmed_between(first, self._oldest) if first < self._oldest else ():
            lost[one.reason] = lost.get(one.reason, 0) + one.end - one.first
        return lost
