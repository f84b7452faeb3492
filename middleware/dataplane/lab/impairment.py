"""The effects of a bad link on frames. Pure: `now` and the generator are arguments.

A frame passes, in this order: a cut link (it is dropped; so is UDP to a group if the link forgets groups),
loss, duplication (a copy follows it directly), reordering (it is held until `OVERTAKERS` later frames have
passed it, or for `HOLD_SECONDS` if none come), delay. Frames that are not held leave in their order of
arrival, even if the delay changes while some are in flight.

At every moment, for each direction:

    received + doubled == sent + lost + cut + overflow + waiting
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Protocol

OVERTAKERS = 2
HOLD_SECONDS = 0.02
MOST_WAITING_BYTES = 64 * 1024 * 1024
_IPV4, _IPV6 = b"\x08\x00", b"\x86\xdd"  # Ethernet types
_UDP = 17
_CLASS_D = 0xE  # the first four bits of an IPv4 group
_IPV6_GROUP = 0xFF  # the first byte of an IPv6 group


class Generator(Protocol):
    """`random.Random`, seeded by the caller."""

    def random(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Impairment:
    """How bad a direction of a link is. `delay` is in seconds, the shares are from 0 to 1. `forgets`: UDP to
    multicast groups does not pass, as at a switch's port that has forgotten its memberships."""

    delay: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    cut: bool = False
    forgets: bool = False

    def __post_init__(self) -> None:
        if self.delay < 0:
            raise ValueError(f"delay {self.delay} is below 0")
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} {getattr(self, name)} is not from 0 to 1")


@dataclass(slots=True)
class Counters:
    """Frames of one direction, since the beginning; bytes count the Ethernet header."""

    received: int = 0
    received_bytes: int = 0
    sent: int = 0
    sent_bytes: int = 0
    lost: int = 0
    cut: int = 0
    doubled: int = 0
    reordered: int = 0
    overflow: int = 0  # no room: more than MOST_WAITING_BYTES were on their way
    waiting: int = 0


def is_group_data(frame: bytes) -> bool:
    """Whether an Ethernet frame has UDP to a multicast group of IPv4 or IPv6, without options before UDP.
    What makes groups and neighbours known (IGMP, MLD, ICMPv6) is none."""
    kind = frame[12:14]
    if kind == _IPV4:
        return len(frame) > 30 and frame[23] == _UDP and frame[30] >> 4 == _CLASS_D
    return kind == _IPV6 and len(frame) > 38 and frame[20] == _UDP and frame[38] == _IPV6_GROUP


@dataclass(slots=True)
class _Held:
    """A frame that later ones are to overtake."""

    frame: bytes
    overtakers: int
    deadline: float


@dataclass(slots=True)
class Direction:
    """One direction of a link: `receive` takes incoming frames, `take` returns due ones."""

    impairment: Impairment
    generator: Generator
    counters: Counters = field(default_factory=Counters)
    _queue: deque[tuple[float, bytes]] = field(default_factory=deque)  # by due time
    _held: list[_Held] = field(default_factory=list)
    _waiting_bytes: int = 0
    _last_due: float = 0.0

    def change(self, **settings: float | bool) -> None:
        """Replaces some settings, from the next frame on. Raises TypeError or ValueError for bad ones."""
        self.impairment = replace(self.impairment, **settings)  # type: ignore[arg-type]

    def receive(self, frame: bytes, now: float) -> None:
        """Takes a frame that came in at `now`."""
        setting, counters, chance = self.impairment, self.counters, self.generator.random
        counters.received += 1
        counters.received_bytes += len(frame)
        if setting.cut or (setting.forgets and is_group_data(frame)):
            counters.cut += 1
            return
        if setting.loss and chance() < setting.loss:
            counters.lost += 1
            return
        copies = 1
        if setting.duplicate and chance() < setting.duplicate:
            counters.doubled += 1
            copies = 2
        if self._waiting_bytes + copies * len(frame) > MOST_WAITING_BYTES:
            counters.overflow += copies
            return
        if setting.reorder and chance() < setting.reorder:
            self._hold(frame, now)
            copies -= 1
        for _ in range(copies):
            self._pass(frame, now)

    def _hold(self, frame: bytes, now: float) -> None:
        self._held.append(_Held(frame, OVERTAKERS, now + HOLD_SECONDS))
        self._waiting_bytes += len(frame)
        self.counters.waiting += 1

    def _pass(self, frame: bytes, now: float) -> None:
        """Sends a frame on its way; those held back come after their last overtaker."""
        self._waiting_bytes += len(frame)
        self.counters.waiting += 1
        self._enqueue(frame, now)
        if self._held:
            for held in self._held:
                held.overtakers -= 1
            for held in [held for held in self._held if held.overtakers <= 0]:
                self._held.remove(held)
                self._enqueue(held.frame, now)
                self.counters.reordered += 1

    def _enqueue(self, frame: bytes, now: float) -> None:
        self._last_due = max(self._last_due, now + self.impairment.delay)
        self._queue.append((self._last_due, frame))

    def take(self, now: float) -> list[bytes]:
        """Returns the frames that leave at `now`, in order. They are counted as sent."""
        while self._held and self._held[0].deadline <= now:
            self._enqueue(self._held.pop(0).frame, now)
        queue, counters = self._queue, self.counters
        leaving: list[bytes] = []
        size = 0
        while queue and queue[0][0] <= now:
            frame = queue.popleft()[1]
            leaving.append(frame)
            size += len(frame)
        self._waiting_bytes -= size
        counters.waiting -= len(leaving)
        counters.sent += len(leaving)
        counters.sent_bytes += size
        return leaving

    def next_due(self) -> float | None:
        """Returns when `take` has a frame next, if no more arrive."""
        times = [self._queue[0][0]] if self._queue else []
        if self._held:
            times.append(self._held[0].deadline)
        return min(times, default=None)

    def check_invariants(self) -> None:
        """Raises AssertionError if a frame is unaccounted for."""
        c = self.counters
        assert c.received + c.doubled == c.sent + c.lost + c.cut + c.overflow + c.waiting
        assert c.waiting == len(self._queue) + len(self._held)
        waiting = [frame for _, frame in self._queue] + [held.frame for held in self._held]
        assert self._waiting_bytes == sum(map(len, waiting))
        assert list(self._queue) == sorted(self._queue, key=lambda entry: entry[0])
