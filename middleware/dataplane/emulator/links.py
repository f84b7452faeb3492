"""One direction of a link: delay and loss of packets.

A packet passes, in this order: the queue before the link (if the rate is limited; a full queue drops it), the
wire (size by rate), loss, the delay, reordering (it arrives up to `late` seconds later, so others overtake
it), and duplication (a copy arrives with it). Disabled effects draw no random numbers.

    packets + doubled == lost + overflow + arrived or in flight
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct


class Random(Protocol):
    """A seeded generator."""

    def random(self) -> float: ...


class LinkSettings(Struct, frozen=True):
    """Rate in bits a second, times in seconds, shares from 0 to 1. Raises ValueError for others."""

    rate: float = 0.0  # 0: not limited
    delay: float = 0.001
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    late: float = 0.005
    queue: int = 0  # bytes that may wait for the wire; 0: unlimited

    def __post_init__(self) -> None:
        for name in ("rate", "delay", "late", "queue"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)} is below 0")
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} {getattr(self, name)} is not from 0 to 1")

    @property
    def plain(self) -> bool:
        """Whether every packet comes once, after the delay."""
        return not (self.rate or self.loss or self.duplicate or self.reorder)


PLAIN: Final = LinkSettings()  # a millisecond, and nothing is lost


class Way:
    """A direction of a link with its counts; it leads to `port` of the node `head`."""

    __slots__ = (
        "bytes",
        "delay",
        "doubled",
        "free_at",
        "head",
        "late",
        "lost",
        "overflow",
        "packets",
        "plain",
        "port",
        "settings",
    )

    def __init__(self, settings: LinkSettings, head: int, port: int) -> None:
        self.head = head
        self.port = port
        self.packets = 0  # that were put on it
        self.bytes = 0
        self.lost = 0
        self.overflow = 0
        self.doubled = 0
        self.late = 0
        self.free_at = 0.0
        self.change(settings)

    def change(self, settings: LinkSettings) -> None:
        """Changes the settings. Packets in flight are not affected."""
        self.settings = settings
        self.plain = settings.plain
        self.delay = settings.delay

    def arrivals(self, size: int, now: float, random: Random) -> tuple[float, ...]:
        """Returns the arrival times of a packet of `size` bytes and of its copy; the caller counts it."""
        settings = self.settings
        at = self._sent(size, now) if settings.rate else now
        if at < 0:
            self.overflow += 1
            return ()
        if settings.loss and random.random() < settings.loss:
            self.lost += 1
            return ()
        at += settings.delay
        if settings.reorder and random.random() < settings.reorder:
            self.late += 1
            at += settings.late * random.random()
        if settings.duplicate and random.random() < settings.duplicate:
            self.doubled += 1
            return at, at
        return (at,)

    def _sent(self, size: int, now: float) -> float:
        """Returns when the last bit is on the wire; -1 if the queue is full."""
        begin = max(now, self.free_at)
        queue = self.settings.queue
        if queue and (begin - now) * self.settings.rate / 8 + size > queue:
            return -1.0
        self.free_at = begin + size * 8 / self.settings.rate
        return self.free_at
