"""The last revisions, for watchers: bounded by number and bytes. Watchers further behind take a snapshot."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from msgspec import Struct


class Revision(Struct, frozen=True):
    """One command's changes, encoded."""

    number: int
    changes: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.changes))


class History:
    """Revisions `first` to `last`; empty if `first` is `last + 1`. Numbers between them are missing only
    where the history was given another name.
    """

    def __init__(self, last: int, kept: Iterable[Revision], max_revisions: int, max_bytes: int) -> None:
        self._max_revisions = max_revisions
        self._max_bytes = max_bytes
        self._revisions: deque[Revision] = deque()
        self._bytes = 0
        self.last = last
        for revision in kept:
            self._append(revision)

    @property
    def first(self) -> int:
        return self._revisions[0].number if self._revisions else self.last + 1

    def add(self, revision: Revision) -> None:
        assert revision.number == self.last + 1
        self.last = revision.number
        self._append(revision)

    def skip(self, last: int) -> None:
        """Leaves out the numbers to `last`."""
        self.last = last

    def _append(self, revision: Revision) -> None:
        self._revisions.append(revision)
        self._bytes += revision.size
        while len(self._revisions) > self._max_revisions or self._bytes > self._max_bytes:
            self._bytes -= self._revisions.popleft().size

    def after(self, revision: int, max_bytes: int) -> list[Revision] | None:
        """Returns the revisions after `revision`, up to `max_bytes` but at least one; None if some are
        missing.
        """
        if not self.first - 1 <= revision <= self.last:
            return None
        found: list[Revision] = []
        size = 0
        start = bisect_right(self._revisions, revision, key=lambda one: one.number)
        for index in range(start, len(self._revisions)):
            entry = self._revisions[index]
            size += entry.size
            if found and size > max_bytes:
                break
            found.append(entry)
        return found
