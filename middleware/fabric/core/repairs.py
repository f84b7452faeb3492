"""Repair requests, collected for a short time so that one multicast can answer many of them."""

from __future__ import annotations

import heapq

from treecast.middleware.model.timers import NEVER

Parts = tuple[int, int] | None  # segment numbers from, to before; None: the whole message

_WHOLE = (0, 1 << 16)
_MOST_REQUESTS = 4096
_MOST_REMEMBERED = 16384


class Request:
    """The hosts that requested parts of the message at `sequence`. `end`: the lowest end given in a
    request."""

    __slots__ = ("due", "end", "hosts", "sequence")

    def __init__(self, sequence: int, end: int, due: float) -> None:
        self.sequence = sequence
        self.end = end
        self.due = due
        self.hosts: dict[int, set[Parts]] = {}

    def parts(self) -> list[Parts]:
        """The parts that any of the hosts lacks."""
        return in_order({part for parts in self.hosts.values() for part in parts})


def in_order(asked: set[Parts]) -> list[Parts]:
    """The parts in order of number; only the whole message if that was requested."""
    if None in asked:
        return [None]
    return [*sorted(part for part in asked if part is not None)]


class Repairs:
    """Pending repair requests. A repair waits `aggregation` round trips of its first requester for more
    requests.

    If the same host requests the same part or a subset within a round trip of the answer, the request is
    suppressed: it was sent before the answer arrived.
    """

    def __init__(self, aggregation: float) -> None:
        self._aggregation = aggregation
        self._requests: dict[int, Request] = {}
        self._queue: list[tuple[float, int]] = []  # (due, sequence), a heap
        # By host and sequence: parts from, to before, and until when they are suppressed.
        self._answered: dict[tuple[int, int], list[tuple[int, int, float]]] = {}

    def ask(
        self,
        host: int,
        sequence: int,
        end: int,
        parts: Parts,
        round_trip: float,
        now: float,
        *,
        alone: bool = False,
    ) -> bool:
        """Adds a request. Returns whether it is kept. `alone`: there is no other host to wait for."""
        first, stop = parts if parts is not None else _WHOLE
        key = (host, sequence)
        answered = [one for one in self._answered.get(key, ()) if one[2] > now]
        for begin, before, _ in answered:
            if begin <= first and stop <= before:
                return False
        request = self._requests.get(sequence)
        if request is None:
            if len(self._requests) >= _MOST_REQUESTS:
                return False
            wait = 0.0 if alone else self._aggregation * round_trip
            request = Request(sequence, end, now + wait)
            self._requests[sequence] = request
            heapq.heappush(self._queue, (request.due, sequence))
        request.end = min(request.end, end)
        request.hosts.setdefault(host, set()).add(parts)
        answered.append((first, stop, request.due + round_trip))
        self._remember(key, answered, now)
        return True

    def _remember(self, key: tuple[int, int], answered: list[tuple[int, int, float]], now: float) -> None:
        if len(self._answered) >= _MOST_REMEMBERED:
            self._answered = {one: last for one, last in self._answered.items() if last[-1][2] > now}
            if len(self._answered) >= _MOST_REMEMBERED:
                self._answered.clear()  # the price is a repeated repair
        self._answered[key] = answered

    def pop(self, now: float) -> Request | None:
        """Removes and returns the next due request; None if none is due."""
        if not self._queue or self._queue[0][0] > now:
            return None
        return self._requests.pop(heapq.heappop(self._queue)[1])

    def next_deadline(self) -> float:
        return self._queue[0][0] if self._queue else NEVER
