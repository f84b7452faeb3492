"""Measurements of both ends of a stream: rates, round trips, bytes per record, data in flight; deadlines.

A *place* is a number of payload bytes counted from the first one sent. Receivers report the sequence and part
that arrived farthest ahead (`wire.segment_bodies.Report`). `Flight` converts that into a place, so that the
bytes in flight are a subtraction.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final, Protocol

from treecast.middleware.model.timers import NEVER

from .settings import StreamSettings

_UNSEEN: Final = 16  # records of a piece before any record was seen
_RECENT: Final = 256 * 1024.0  # sent bytes over which a mean is taken
_ROUNDING: Final = 1e-9  # seconds of tolerance for rounding when comparing with a deadline
_SPARE: Final = 256  # stale entries kept before the head until deleting them pays off
_SLACK: Final = 64  # stale entries allowed beyond twice the number of current ones


class Random(Protocol):
    """A seeded generator, such as `random.Random`."""

    def random(self) -> float:
        """Returns a number in [0, 1)."""


class TokenBucket:
    """Allows `rate` bytes per second and `burst` at once.

    Something may be sent as long as tokens are left, however large it is; the debt is paid back before the
    next. A message larger than the burst therefore does not wait forever.
    """

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self.limits = rate != NEVER  # False: `ready` is always true, and `spend` has no effect
        self._rate = rate
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at = now

    def ready(self, now: float) -> bool:
        """Whether something may be sent."""
        if not self.limits:
            return True
        if now > self._at:  # a clock that jumps back adds nothing
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens > 0

    def set_rate(self, rate: float, now: float) -> None:
        """Sets the rate from now on. Saved tokens and debt remain."""
        self.ready(now)
        if not self.limits:
            self._tokens, self._at = 0.0, now
        self._rate = rate
        self.limits = rate != NEVER

    def spend(self, size: int) -> None:
        self._tokens -= size

    def ready_at(self, now: float) -> float:
        """When something may be sent; `now` if at once."""
        if self.ready(now):
            return now
        # One token more than the debt: `ready` wants some left.
        return now + (1 - self._tokens) / self._rate


class RoundTrip:
    """Smoothed round trip and its variation, after RFC 6298; times in seconds."""

    def __init__(self, initial: float) -> None:
        self.smoothed = initial
        self.variation = initial / 2
        self.measured = False

    def sample(self, value: float) -> None:
        if value < 0:
            return  # the clock went back
        if not self.measured:
            self.smoothed, self.variation, self.measured = value, value / 2, True
            return
        self.variation += (abs(value - self.smoothed) - self.variation) / 4
        self.smoothed += (value - self.smoothed) / 8

    @property
    def timeout(self) -> float:
        """How long an answer may take before it counts as lost."""
        return self.smoothed + 4 * self.variation


class Weight:
    """The allowed lag of a receiver in records, limited by a number of records and by a number of bytes."""

    def __init__(self, settings: StreamSettings) -> None:
        self.most_behind = settings.catch_up_after
        self._most = settings.catch_up_after
        self._bytes = settings.catch_up_bytes
        self._mean = 0.0  # recent bytes per record

    def records_of(self, size: int) -> int:
        """The approximate number of records in `size` bytes, at least one."""
        return max(1, int(size / max(self._mean, 1.0))) if self._mean else _UNSEEN

    def size_of(self, records: int) -> int:
        """The approximate number of bytes in `records` records."""
        return int(records * self._mean)

    def add(self, records: int, size: int) -> None:
        """Updates the mean with a message."""
        mean = size / max(records, 1)
        self._mean = mean if not self._mean else self._mean + (mean - self._mean) / 16
        self.most_behind = max(1, min(self._most, int(self._bytes / max(self._mean, 1.0))))


class Spare:
    """Whether receivers could take several times as much as a stream sends.

    It follows the queue that a receiver would have which takes `times` as much as is sent on average. A
    receiver whose data waits no longer than in that queue is at least as fast.
    """

    __slots__ = ("_at", "_begun", "_every", "_queue", "_rate", "_sent", "_times", "wait")

    def __init__(self, times: float, every: float, now: float) -> None:
        """`every`: seconds over which the rate is measured."""
        self.wait = 0.0  # mean seconds in that queue; 0 until a rate is known
        self._times = times
        self._every = every
        self._rate = 0.0  # bytes per second that such a receiver takes
        self._queue = 0.0  # bytes
        self._at = now  # when the queue was this long
        self._begun = now  # of the measurement
        self._sent = 0  # since then

    def sent(self, size: int, now: float) -> None:
        """Notes that `size` bytes were sent at once."""
        passed = now - self._begun
        if passed >= self._every:
            self._rate = self._times * self._sent / passed
            self._begun, self._sent = now, 0
        self._sent += size
        if not self._rate:
            return
        left = max(0.0, self._queue - self._rate * max(now - self._at, 0.0))
        self._queue, self._at = left + size, now
        self.wait += ((left + size / 2) / self._rate - self.wait) * size / (size + _RECENT)


class Flight:
    """Entries (sequence, place, time): everything before `sequence` lies before `place` and was sent by
    `time`.

    Several entries may share a sequence: the first belongs to the message before it, the others to parts of
    the message that begins there.
    """

    __slots__ = ("_head", "_places", "_sequences", "_times", "total")

    def __init__(self, first: int, now: float) -> None:
        self.total = 0  # bytes sent so far
        self._sequences = [first]
        self._places = [0]
        self._times = [now]
        self._head = 0

    def sent(self, sequence: int, size: int, now: float) -> None:
        """Records that `size` more bytes were sent; everything before `sequence` has now been sent."""
        self.total += size
        self._sequences.append(sequence)
        self._places.append(self.total)
        self._times.append(now)

    def place(self, sequence: int) -> int:
        """The number of bytes before the message at `sequence`, as far as remembered."""
        at = bisect_left(self._sequences, sequence, lo=self._head)
        if at == len(self._sequences) or self._sequences[at] != sequence:
            if at == self._head:
                return self._places[at]
            at = bisect_left(self._sequences, self._sequences[at - 1], lo=self._head)
        return self._places[at]

    def place_of_part(self, sequence: int, size: int) -> int:
        """The place `size` bytes after the start of the message at `sequence`, at most the message's end."""
        at = bisect_right(self._sequences, sequence, lo=self._head)
        end = self._places[at] if at < len(self._places) else self.total
        return min(self.place(sequence) + size, end)

    def sent_at(self, place: int) -> float:
        """When the last byte before `place` was sent."""
        at = bisect_left(self._places, place, lo=self._head)
        return self._times[min(at, len(self._times) - 1)]

    def place_at(self, time: float) -> int:
        """The number of bytes sent by `time`, as far as remembered."""
        at = bisect_right(self._times, time + _ROUNDING, lo=self._head)
        return self._places[max(at - 1, self._head)]

    def forget(self, sequence: int) -> None:
        """Forgets places before `sequence`."""
        at = bisect_right(self._sequences, sequence, lo=self._head) - 1
        if at <= self._head:
            return
        self._head = bisect_left(self._sequences, self._sequences[at], lo=self._head)
        if self._head >= _SPARE and 2 * self._head >= len(self._sequences):
            del self._sequences[: self._head], self._places[: self._head], self._times[: self._head]
            self._head = 0


class Track:
    """The bytes replayed to one receiver, and how much of it is in flight.

    Bytes sent again lie before the farthest arrival, so no report shows when they arrive. They count as in
    flight for a time given by the caller.
    """

    __slots__ = ("_again", "_flight", "_place", "again_bytes")

    def __init__(self, first: int, now: float) -> None:
        self._flight = Flight(first, now)
        self._place = 0  # place of the farthest arrival
        self._again: deque[tuple[float, int]] = deque()  # (time, bytes) of data sent again
        self.again_bytes = 0  # bytes sent again that are in flight

    @property
    def on_way(self) -> int:
        """Bytes in flight."""
        return self._flight.total - self._place + self.again_bytes

    def again(self, size: int, now: float) -> None:
        """Notes that `size` bytes were sent again."""
        self._again.append((now, size))
        self.again_bytes += size

    def again_over(self, time: float) -> None:
        """Stops counting bytes sent again by `time` as in flight."""
        while self._again and self._again[0][0] <= time + _ROUNDING:
            self.again_bytes -= self._again.popleft()[1]

    def sent(self, sequence: int, size: int, now: float) -> None:
        """Notes that `size` more bytes were sent; everything before `sequence` has been sent."""
        self._flight.sent(sequence, size, now)

    @property
    def oldest_at(self) -> float:
        """When the oldest bytes in flight were sent, not counting those sent again."""
        return self._flight.sent_at(self._place + 1) if self._flight.total > self._place else NEVER

    @property
    def again_at(self) -> float:
        """When the oldest bytes sent again that are still in flight were sent."""
        return self._again[0][0] if self._again else NEVER

    def over(self, time: float) -> int:
        """Stops counting bytes sent by `time` as in flight, whether or not they arrived. Returns their
        number."""
        place = self._flight.place_at(time)
        lost = place - self._place
        if lost <= 0:
            return 0
        self._place = place
        return lost

    def arrived(self, sequence: int, size: int) -> tuple[int, float]:
        """Takes a report that the farthest arrival is `size` bytes after the start of the message at
        `sequence`. Returns (bytes arrived since the last call, send time of the last of them)."""
        flight = self._flight
        place = flight.place_of_part(sequence, size) if size else flight.place(sequence)
        arrived = place - self._place
        if arrived <= 0:
            return 0, NEVER
        sent_at = flight.sent_at(place)
        self._place = place
        flight.forget(sequence)
        return arrived, sent_at


class Schedule:
    """Deadlines of numbered items. `first`: nothing is due before.

    A deadline that moves away keeps its place in the heap until then, because most of them move many times.
    """

    def __init__(self) -> None:
        self.first = NEVER
        self._heap: list[tuple[float, int]] = []
        self._times: dict[int, float] = {}
        self._queued: dict[int, float] = {}  # by number: its place in the heap, at or before its deadline

    def set(self, number: int, at: float) -> None:
        """Sets the only deadline of `number`; NEVER removes it."""
        if at == NEVER:
            self.discard(number)
            return
        self._times[number] = at
        if at < self._queued.get(number, NEVER):
            self._queue(number, at)

    def _queue(self, number: int, at: float) -> None:
        self._queued[number] = at
        heapq.heappush(self._heap, (at, number))
        # Deadlines that moved forward leave their old place behind. Rebuilt before such places are the most.
        if len(self._heap) > 2 * len(self._queued) + _SLACK:
            self._heap = [(time, one) for one, time in self._queued.items()]
            heapq.heapify(self._heap)
        self.first = self._heap[0][0]

    def discard(self, number: int) -> None:
        self._times.pop(number, None)
        self._queued.pop(number, None)

    def due(self, now: float) -> list[int]:
        """Removes and returns the items due by `now`, each once."""
        found: list[int] = []
        while self._heap and self._heap[0][0] <= now:
            place, number = heapq.heappop(self._heap)
            # A place left behind: the item has an earlier one since, or was removed.
            if self._queued.get(number) != place:
                continue
            del self._queued[number]
            at = self._times[number]
            if at <= now:
                del self._times[number]
                found.append(number)
            else:
                self._queue(number, at)
        self.first = self._heap[0][0] if self._heap else NEVER
        return found
