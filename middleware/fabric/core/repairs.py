"""Requests for repair, gathered for a while so that many askers can be answered by one multicast."""

from __future__ import annotations

import heapq

from .settings import NEVER

Parts = tuple[int, int] | None  # segment numbers from, to before; None: the whole message

_MOST_REQUESTS = 4096
_MOST_REMEMBERED = 16384


class Request:
    """Who asked for which parts of the message at `sequence`."""

    __slots__ = ("due", "hosts", "sequence")

    def __init__(self, sequence: int, due: float) -> None:
        self.sequence = sequence
        self.due = due
        self.hosts: dict[int, set[Parts]] = {}

    def parts(self) -> list[Parts]:
        """What all of them together lack."""
        return in_order({part for parts in self.hosts.values() for part in parts})


def in_order(asked: set[Parts]) -> list[Parts]:
    """The parts by number; nothing but the whole where that is asked for."""
    if None in asked:
        return [None]
    return [*sorted(part for part in asked if part is not None)]


class Repairs:
    """A repair waits `aggregation` round trips of its first asker for more of them.

    The same host asking for the same within a round trip of the answer is suppressed: its request
    left before the answer came.
    """

    def __init__(self, aggregation: float) -> None:
        self._aggregation = aggregation
        self._requests: dict[int, Request] = {}
        self._queue: list[tuple[float, int]] = []  # (due, sequence), a heap
        self._answered: dict[tuple[int, int, Parts], float] = {}  # -> until when it is suppressed

    def ask(
        self, host: int, sequence: int, parts: Parts, round_trip: float, now: float, *, alone: bool = False
    ) -> bool:
        """Whether the request is kept. `alone`: nobody else is to be waited for."""
        if self._answered.get((host, sequence, parts), 0.0) > now:
            return False
        request = self._requests.get(sequence)
        if request is None:
            if len(self._requests) >= _MOST_REQUESTS:
                return False
            wait = 0.0 if alone else self._aggregation * round_trip
            request = Request(sequence, now + wait)
            self._requests[sequence] = request
            heapq.heappush(self._queue, (request.due, sequence))
        request.hosts.setdefault(host, set()).add(parts)
        self._remember((host, sequence, parts), request.due + round_trip, now)
        return True

    def _remember(self, key: tuple[int, int, Parts], until: float, now: float) -> None:
        if len(self._answered) >= _MOST_REMEMBERED:
            self._answered = {one: time for one, time in self._answered.items() if time > now}
            if len(self._answered) >= _MOST_REMEMBERED:
                self._answered.clear()  # then something is repaired twice
        self._answered[key] = until

    def pop(self, now: float) -> Request | None:
        """The next request whose time has come."""
        if not self._queue or self._queue[0][0] > now:
            return None
        return self._requests.pop(heapq.heappop(self._queue)[1])

    def next_deadline(self) -> float:
        return self._queue[0][0] if self._queue else NEVER
