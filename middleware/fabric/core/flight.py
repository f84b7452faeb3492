"""Sent messages and their times: how many bytes precede a message, and how long one was in flight.

A *place* is a number of payload bytes counted from the first one sent. Receivers report the sequence and part
that arrived farthest ahead (`wire.segment_bodies.Report`). This module converts that into a place, so that
the bytes in flight are a subtraction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final

from .settings import NEVER

_ROUNDING: Final = 1e-9  # seconds of tolerance for rounding when comparing with a deadline
_SPARE: Final = 256  # stale entries kept before the head until deleting them pays off


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
