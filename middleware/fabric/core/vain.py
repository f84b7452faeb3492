"""`Vain`: counts how often the same data is sent again to a receiver without arriving.

A receiver that reports, and lacks the same part after several repairs of it, gets nothing of what is sent
again: its path drops long packets, for example. More would be lost as well. From then on it gets the first
missing parts only, each time after twice as long, until its reports or requests show that they have arrived.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.timers import NEVER

PARTS: Final = 8  # of a message that are sent as a try
_SUSPECT_TRIES: Final = 3
_SUSPECT_AFTER: Final = 0.3  # seconds since the first of them
_TRIES: Final = 4
_AFTER: Final = 1.0


class Vain:
    """The tries of one receiver's first missing part since its last progress."""

    __slots__ = (
        "_count",
        "_longest",
        "_shortest",
        "_since",
        "again_at",
        "at",
        "hopeless",
        "lost_until",
        "part",
        "sequence",
    )

    def __init__(self, shortest: float, longest: float) -> None:
        """`shortest`, `longest`: seconds between tries once they are hopeless."""
        self.sequence = -1  # the message tried, and its first missing part
        self.part = 0
        self.hopeless = False
        self.at = -NEVER  # of the last try
        self.again_at = -NEVER  # when it may be tried again
        self.lost_until = -NEVER  # what was sent before it did not arrive when it was sent
        self._count = 0
        self._since = NEVER
        self._shortest = shortest
        self._longest = longest

    def over(self) -> None:
        """Notes progress, or that what follows is sent otherwise than before."""
        self.sequence, self.part, self._count = -1, 0, 0
        self._since = NEVER
        self.hopeless = False
        self.again_at = -NEVER

    def settled(self, sequence: int) -> None:
        """Notes that everything before `sequence` is settled."""
        if self._count and sequence > self.sequence:
            self.over()

    def tried(self, sequence: int, part: int, now: float) -> bool:
        """Notes that the message at `sequence` is sent again from `part` on, -1: from where it is. Returns
        whether it seems to be in vain."""
        if part < 0:
            part = self.part if sequence == self.sequence else 0
        if (sequence, part) > (self.sequence, self.part):
            self.over()
            self.sequence, self.part, self._since = sequence, part, now
        self._count += 1
        self.at = now
        lasts = now - self._since
        self.hopeless = self.hopeless or (self._count >= _TRIES and lasts >= _AFTER)
        if self.hopeless:
            self.lost_until = now
            wait = self._shortest * 2.0 ** min(max(0, self._count - _TRIES), 16)
            self.again_at = now + min(wait, self._longest)
        return self._count >= _SUSPECT_TRIES and lasts >= _SUSPECT_AFTER

    def may_try(self, now: float) -> bool:
        """Whether something may be sent again."""
        return not self.hopeless or now >= self.again_at
