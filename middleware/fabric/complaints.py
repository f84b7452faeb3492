"""Counts what is refused, by reason, and logs it without flooding: the 1st time, the 2nd, the 4th..."""

from __future__ import annotations

import enum
import logging

_log = logging.getLogger(__name__)


class EdgeFault(enum.Enum):
    """Why a packet is let go before it is looked into, or after. Beside SegmentFault and Refused."""

    TOO_SHORT = "fewer bytes than a segment's header"
    TOO_LONG = "the packet was longer than a packet may be"
    NO_STARE_HEADER = "no header of STARE before it"
    BARE_STATE = "a state of STARE without a segment"
    UNKNOWN_STREAM = "of a stream that is not received here"
    UNKNOWN_ORIGIN = "for a stream of this host that there is not"
    OWN = "sent by this very host"


class Complaints:
    """Adds to a dictionary of counters."""

    def __init__(self, counted: dict[str, int]) -> None:
        self.counted = counted

    def add(self, reason: enum.Enum) -> None:
        name = reason.name
        count = self.counted.get(name, 0) + 1
        self.counted[name] = count
        if not count & (count - 1):
            _log.warning("fabric: packets refused: %s (%s), %d so far", name, reason.value, count)
