"""Finds which of many receivers want a message by its content: filters that are evaluated together.

Subscriptions of a topic and bindings of an exchange are receivers in an order; each has filters, or none and
wants everything. Receivers with equal filters share one, and all filters share one diagram (`filters.many`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Final

from treecast.middleware.filters.content import StatelessFilter
from treecast.middleware.filters.many import Built, ManyFilters
from treecast.middleware.model.records import Record
from treecast.middleware.model.wishes import ContentFilter, Schemas

_KEPT: Final = 1_000  # sets of patterns whose diagrams are kept

Patterns = tuple[bytes, ...]
"""The patterns of the receivers with filters: topics that match the same ones share a diagram."""


class Contents:
    """The filters of receivers: the one at place n wants what passes one of `filters[n]`, and all if None is
    among them."""

    def __init__(self, filters: Sequence[Sequence[ContentFilter | None]], many: ManyFilters) -> None:
        self._always = [place for place, wanted in enumerate(filters) if None in wanted]
        self._places: dict[ContentFilter, list[int]] = {}
        for place, wanted in enumerate(filters):
            for one in wanted:
                if one is not None:
                    self._places.setdefault(one, []).append(place)
        self._many = many
        self._version = many.become(self._places)

    def passed(self, topic: str, record: Record, schemas: Schemas) -> set[ContentFilter]:
        """Returns the filters that a message passes, and counts it if it does not meet its topic's schema."""
        many = self._many
        if many.version != self._version:  # other receivers of the same patterns had it meanwhile
            self._version = many.become(self._places)
        found = many.passing(topic, record, schemas.of(topic))
        if found is None:
            schemas.unmet(topic)
            return set()
        return set(found)

    def places(self, passed: set[ContentFilter]) -> list[int]:
        """Returns the places of the receivers that want a message that passes these filters, in order."""
        wanted = set(self._always)
        for one in passed:
            wanted.update(self._places.get(one, ()))
        return sorted(wanted)


@lru_cache(maxsize=1)
def _thread() -> ThreadPoolExecutor:
    """Returns the thread that builds large diagrams: they take a second, and the event loop goes on."""
    return ThreadPoolExecutor(1, "filters")


def _built_apart(filters: Sequence[StatelessFilter]) -> Future[Built]:
    return _thread().submit(Built, filters)


class KeptFilters:
    """The diagrams of a hub or an exchange, kept while receivers come and go: as long as each of their
    patterns has a receiver with a filter."""

    def __init__(self) -> None:
        self._kept: dict[Patterns, ManyFilters] = {}
        self._uses: dict[bytes, int] = {}  # by pattern

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, pattern: bytes) -> None:
        """Counts a receiver with a filter."""
        self._uses[pattern] = self._uses.get(pattern, 0) + 1

    def end(self, pattern: bytes) -> None:
        """The receiver is gone; with the last one of a pattern go all diagrams of it."""
        self._uses[pattern] -= 1
        if self._uses[pattern] == 0:
            del self._uses[pattern]
            for key in [key for key in self._kept if pattern in key]:
                del self._kept[key]

    def of(self, patterns: set[bytes], filters: Sequence[Sequence[ContentFilter | None]]) -> Contents:
        """Returns the filters of receivers with these patterns."""
        key = tuple(sorted(patterns))
        many = self._kept.get(key)
        if many is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            many = self._kept[key] = ManyFilters(_built_apart)
        return Contents(filters, many)
