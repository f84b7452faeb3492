"""What an origin has sent and when: how many bytes lie before a message, and how long one was on its way.

A *place* is a number of payload bytes, counted since the first that was sent. Receivers tell by sequence and
part what has arrived farthest ahead (`wire.segment_bodies.Report`); here that becomes a place, so that the
bytes still on their way are a subtraction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final

from .settings import NEVER

_ROUNDING: Final = 1e-9  # seconds: a deadline that is met to the rounding is met
_SPARE: Final = 256  # entries before the head that are kept until they are worth a deletion


class Flight:
    """Entries (sequence, place, time): all before `sequence` lies before `place`, and was sent by `time`.

    Several entries may have one sequence: the first is that of the message before it, the others are of parts
    of the message that begins there.
    """

    __slots__ = ("_head", "_places", "_sequences", "_times", "total")

    def __init__(self, first: int, now: float) -> None:
        self.total = 0  # bytes sent so far
        self._sequences = [first]
        self._places = [0]
        self._times = [now]
        self._head = 0

    def sent(self, sequence: int, size: int, now: float) -> None:
        """`size` more bytes were sent; all before `sequence` has been sent by now."""
        self.total += size
        self._sequences.append(sequence)
        self._places.append(self.total)
        self._times.append(now)

    def place(self, sequence: int) -> int:
        """How many bytes lie before the message at `sequence`, as far as is remembered."""
        at = bisect_left(self._sequences, sequence, lo=self._head)
        if at == len(self._sequences) or self._sequences[at] != sequence:
            if at == self._head:
                return self._places[at]
            at = bisect_left(self._sequences, self._sequences[at - 1], lo=self._head)
        return self._places[at]

    def place_of_part(self, sequence: int, size: int) -> int:
        """The place `size` bytes behind the beginning of the message at `sequence`, at most its end."""
        at = bisect_right(self._sequences, sequence, lo=self._head)
        end = self._places[at] if at < len(self._places) else self.total
        return min(self.place(sequence) + size, end)

    def sent_at(self, place: int) -> float:
        """When the last byte before `place` was sent."""
        at = bisect_left(self._places, place, lo=self._head)
        return self._times[min(at, len(self._times) - 1)]

    def place_at(self, time: float) -> int:
        """The bytes that were sent by `time`, as far as is remembered."""
        at = bisect_right(self._times, time + _ROUNDING, lo=self._head)
        return self._places[max(at - 1, self._head)]

    def forget(self, sequence: int) -> None:
        """Nobody asks for places before `sequence` any more."""
        at = bisect_right(self._sequences, sequence, lo=self._head) - 1
        if at <= self._head:
            return
        self._head = bisect_left(self._sequences, self._sequences[at], lo=self._head)
        if self._head >= _SPARE and 2 * self._head >= len(self._sequences):
            del self._sequences[: self._head], self._places[: self._head], self._times[: self._head]
            self._head = 0


class Track:
    """What one receiver was replayed, and how much of it is on its way.

    What it was sent again lies before the farthest that has arrived, so that no report shows its arrival. It
    counts as on its way for a time that the caller gives.
    """

    __slots__ = ("_again", "_flight", "_place", "again_bytes")

    def __init__(self, first: int, now: float) -> None:
        self._flight = Flight(first, now)
        self._place = 0  # of the farthest that has arrived
        self._again: deque[tuple[float, int]] = deque()  # (when, bytes) sent again
        self.again_bytes = 0  # of what was sent again, on their way

    @property
    def on_way(self) -> int:
        """Bytes."""
        return self._flight.total - self._place + self.again_bytes

    def again(self, size: int, now: float) -> None:
        """`size` bytes were sent that had been sent before."""
        self._again.append((now, size))
        self.again_bytes += size

    def again_over(self, time: float) -> None:
        """What was sent again by `time` is no longer on its way."""
        while self._again and self._again[0][0] <= time + _ROUNDING:
            self.again_bytes -= self._again.popleft()[1]

    def sent(self, sequence: int, size: int, now: float) -> None:
        """`size` bytes more; all before `sequence` has been sent."""
        self._flight.sent(sequence, size, now)

    @property
    def oldest_at(self) -> float:
        """When the first of what is on its way was sent; without what was sent again."""
        return self._flight.sent_at(self._place + 1) if self._flight.total > self._place else NEVER

    @property
    def again_at(self) -> float:
        """When the first of what was sent again, and is on its way, was."""
        return self._again[0][0] if self._again else NEVER

    def over(self, time: float) -> int:
        """What was sent by `time` is no longer on its way, whatever became of it: so many bytes."""
        place = self._flight.place_at(time)
        lost = place - self._place
        if lost <= 0:
            return 0
        self._place = place
        return lost

    def arrived(self, sequence: int, size: int) -> tuple[int, float]:
        """(bytes that have arrived since the last call, when the last of them was sent), where the farthest
        lies `size` bytes behind the beginning of the message at `sequence`."""
        flight = self._flight
        place = flight.place_of_part(sequence, size) if size else flight.place(sequence)
        arrived = place - self._place
        if arrived <= 0:
            return 0, NEVER
        sent_at = flight.sent_at(place)
        self._place = place
        flight.forget(sequence)
        return arrived, sent_at
