"""One direction of a link: how long a packet takes, and whether it comes at all.

A packet meets, in this order: the queue before the link (where the rate is limited; it is thrown away where
the queue is full), the wire (size by rate), loss, the delay, reordering (it comes up to `late` seconds later,
so others overtake it), duplication (a copy comes with it). Nothing is drawn for what a link doesn't do.

    packets + doubled == lost + overflow + what has arrived or is under way
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
    queue: int = 0  # bytes that may wait for the wire; 0: as many as come

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
    """A direction of a link, with what it has counted; it leads to `port` of the node `head`."""

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
        """What is under way comes as it would have come."""
        self.settings = settings
        self.plain = settings.plain
        self.delay = settings.delay

    def arrivals(self, size: int, now: float, random: Random) -> tuple[float, ...]:
        """When a packet of so many bytes comes, and its copy; counted by the caller."""
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
        """When the last bit is on the wire; -1 where the queue is full."""
        begin = max(now, self.free_at)
        queue = self.settings.queue
        if queue and (begin - now) * self.settings.rate / 8 + size > queue:
            return -1.0
        self.free_at = begin + size * 8 / self.settings.rate
        return self.free_at
