"""Clocks of hosts, and the minutes that a batch has to recompute because of them. Pure.

A clock's error is the least difference of an interval's append and its end, among all intervals of a boot. A
batch reads only what came last, so these differences are kept (`DIR/clocks.json`): each only falls. When one
falls, all intervals of its boot are earlier than they were, and move to other minutes. So the tables after
each batch are those that all of the archive gives.

Errors are rounded to a quarter of a second. A difference falls by some milliseconds all the time, as one
interval in many comes faster than any before; the rounded one falls seldom, and each fall costs reading the
archive from the boot's first interval on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

OLDEST: Final = 24 * 3600  # seconds: what is later than that counts when it comes
_ROUND: Final = 250_000  # microseconds
_BEFORE: Final = 900  # seconds that are read before what came: most minutes of a batch are not older
_SECOND: Final = 1_000_000

Boot = tuple[str, int]  # host, boot


class Clock(Struct, frozen=True, array_like=True):
    """The intervals of one boot: the `least` difference of append and end, and the `first` and `last` append;
    all in microseconds.
    """

    least: int
    first: int
    last: int

    @property
    def error(self) -> int:
        """Microseconds by which the host's clock is behind, to the nearest quarter of a second."""
        return (self.least + _ROUND // 2) // _ROUND * _ROUND

    def joined(self, other: Clock) -> Clock:
        return Clock(min(self.least, other.least), min(self.first, other.first), max(self.last, other.last))


class Group(Struct, frozen=True):
    """Intervals of one minute that came in one hour (since the epoch), the last at `last` (us). `was`: the
    minute that they were in before their clock fell; None: it has not.
    """

    slot: int
    was: int | None
    hour: int
    size: int
    last: int


class Counted(Struct, frozen=True):
    """The minutes around a batch. `sizes`: intervals by minute, of all minutes around; `hours`: those in
    which they came, since the Unix epoch; `touched`: the minutes that have to be computed.
    """

    sizes: dict[int, int]
    hours: dict[int, set[int]]
    touched: set[int]


class Clocks(Struct, frozen=True):
    """The clocks that the tables rest on (`before`), and those with what has come since (`now`)."""

    before: Mapping[Boot, Clock]
    now: Mapping[Boot, Clock]

    def rows(self, since: int) -> list[tuple[str, int, int, int | None]]:
        """Returns (host, boot, error, the error before if it has fallen) of all boots with an interval that
        came since a time, in seconds.
        """
        return [
            (*boot, clock.error, self._fallen(boot, clock))
            for boot, clock in self.now.items()
            if clock.last >= since * _SECOND
        ]

    def _fallen(self, boot: Boot, clock: Clock) -> int | None:
        known = self.before.get(boot)
        return known.error if known is not None and known.error != clock.error else None

    def reach(self, first: int, count: Callable[[int], Counted]) -> Counted:
        """Returns the minutes that a batch touches whose first interval came at `first` (us). `count`: reads
        the intervals that came since a time, in seconds.
        """
        moved = (clock.first for boot, clock in self.now.items() if self._fallen(boot, clock) is not None)
        read = min([first, *moved]) // _SECOND - _BEFORE
        while True:
            counted = count(read)
            # An interval comes after it was, but for the rounding; so what is in a minute came since then.
            needed = min(counted.touched, default=read + 1) - 1
            if needed >= read:
                return counted
            read = needed


def after(before: Mapping[Boot, Clock], came: Mapping[Boot, Clock]) -> Clocks:
    """Returns the clocks after some intervals came."""
    now = dict(before)
    for boot, clock in came.items():
        now[boot] = now[boot].joined(clock) if boot in now else clock
    return Clocks(before, now)


def counted(groups: Iterable[Group], first: int) -> Counted:
    """Returns what a batch touches: the minutes of intervals that came from `first` on (us), and those that
    intervals left, or came into, as their clock fell.
    """
    found = Counted({}, {}, set())
    for one in groups:
        found.sizes[one.slot] = found.sizes.get(one.slot, 0) + one.size
        found.hours.setdefault(one.slot, set()).add(one.hour)
        if one.last >= first or one.was is not None:
            found.touched.add(one.slot)
        if one.was is not None:
            found.touched.add(one.was)
    return found


def slot_of(from_us: int, to_us: int, came: int, error: int, step: int) -> int:
    """Returns the minute of an interval: the plain reference of `minutes.timed`."""
    at = to_us + error
    if came - at > OLDEST * _SECOND:
        at = came
    return (2 * at - (to_us - from_us)) // (2 * _SECOND * step) * step


def encode(clocks: Mapping[Boot, Clock]) -> bytes:
    return msgspec.json.encode([(*boot, clock) for boot, clock in clocks.items()])


def decode(content: bytes) -> dict[Boot, Clock] | None:
    """Returns what was kept; None if it is damaged."""
    try:
        rows = msgspec.json.decode(content, type=list[tuple[str, int, Clock]])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return {(host, boot): clock for host, boot, clock in rows}
