"""The ready messages of one priority of a queue, in order, with a bounded part of them in memory.

    returned          head                pages                  tail
    came back  |  in memory     |  entries in the store  |  entries of the next page
    oldest                                                            newest

Messages are taken from the front. Returned messages are therefore older than all that are left: `returned`
is ordered by position and read first. Once `head` has reached the memory limit, a new run goes to the store,
and its entry to `tail`; a full tail becomes a page. When the head is empty, the next page takes its place.
The order never changes.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from .message import Part, Run
from .settings import QueueSettings
from .store import RunStore

_ENTRY: Final = struct.Struct(
    ">QIIIIQdHB"
)  # place, begin, end, count, size, position, expires, deliveries, flags
_MOST_DELIVERIES: Final = 0xFFFF
_REDELIVERED: Final = 1
_DURABLE: Final = 2


class Backlog:
    """The backlog of one priority, with `count` messages."""

    def __init__(self, store: RunStore, settings: QueueSettings, priority: int) -> None:
        self.count = 0
        self.priority = priority
        self._store = store
        self._resident = settings.resident_bytes
        self._entries = settings.page_entries
        self._returned: list[tuple[int, Part]] = []
        self._head: deque[Part] = deque()
        self._head_bytes = 0
        self._pages: deque[int] = deque()  # the pages' places
        self._tail = bytearray()

    def push(self, part: Part) -> None:
        """Appends a part whose run is in memory."""
        run = part.run
        assert run is not None
        self.count += part.count
        if self._pages or self._tail or self._head_bytes > self._resident:
            self._put_away(part, run)
        else:
            self._head.append(part)
            self._head_bytes += part.end - part.begin

    def _put_away(self, part: Part, run: Run) -> None:
        if part.place == 0:
            self._store.put(run)
            part.place = run.place
            self._store.hold(part.place, part.count)
        self._note(part)

    def push_stored(self, part: Part) -> None:
        """Appends a part without its run, which the store already holds for this queue."""
        self.count += part.count
        self._note(part)

    def _note(self, part: Part) -> None:
        self._tail += _ENTRY.pack(
            part.place,
            part.begin,
            part.end,
            part.count,
            part.size,
            part.position,
            part.expires_at,
            min(part.deliveries, _MOST_DELIVERIES),
            (_REDELIVERED if part.redelivered else 0) | (_DURABLE if part.durable else 0),
        )
        if len(self._tail) == self._entries * _ENTRY.size:
            self._pages.append(self._store.put_page(bytes(self._tail)))
            self._tail = bytearray()

    def push_back(self, part: Part) -> None:
        """Puts a taken part back in its old position."""
        self.count += part.count
        heappush(self._returned, (part.position, part))

    @property
    def first(self) -> Part | None:
        """The oldest part, or None. Its run may not be in memory."""
        if self._returned:
            return self._returned[0][1]
        if not self._head and (self._pages or self._tail):
            self._refill()
        return self._head[0] if self._head else None

    def take(self, most: int) -> Part | None:
        """Removes and returns up to `most` messages of the first part, with their run."""
        part = self.first
        if part is None:
            return None
        if part.run is None:
            part.run = self._store.load(part.place)
            if not self._returned:
                self._head_bytes += part.end - part.begin
        if part.count > most:
            taken = part.cut(most)
            if self._returned:
                heappop(self._returned)
                heappush(self._returned, (part.position, part))
            else:
                self._head_bytes -= taken.end - taken.begin
        else:
            taken = part
            if self._returned:
                heappop(self._returned)
            else:
                self._head.popleft()
                self._head_bytes -= taken.end - taken.begin
        self.count -= taken.count
        return taken

    def _refill(self) -> None:
        """Loads the next page, or the tail, into the head."""
        if self._pages:
            entries = self._store.take_page(self._pages[0])
            self._pages.popleft()  # only now: if the disk refuses, the page is read later
        else:
            entries = bytes(self._tail)
            self._tail = bytearray()
        for fields in _ENTRY.iter_unpack(entries):
            place, begin, end, count, size, position, expires, deliveries, flags = fields
            self._head.append(
                Part(
                    None,
                    place,
                    begin,
                    end,
                    count,
                    size,
                    position,
                    expires,
                    self.priority,
                    deliveries,
                    flags & _REDELIVERED != 0,
                    flags & _DURABLE != 0,
                )
            )

    def clear(self, gone: Callable[[Part], None]) -> int:
        """Removes all messages, calling `gone` with each part, without loading runs. Returns their number."""
        count = self.count
        while (part := self.first) is not None:
            if self._returned:
                heappop(self._returned)
            else:
                self._head.popleft()
            gone(part)
        self.count = self._head_bytes = 0
        return count
