"""Counters of the core, and the reasons for refusing segments that the codec accepted."""

from __future__ import annotations

import enum

from .outgoing import NAMES, Outgoing


class Refused(enum.Enum):
    """Why a segment is discarded, counted by name. A duplicate is nobody's fault."""

    DUPLICATE = "these records, or this part, are here"
    OTHER_STREAM = "the segment is of another stream"
    OLD_EPOCH = "the epoch is over here"
    LATER_EPOCH = "the epoch has not begun here: it is joined by itself"
    UNEXPECTED = "a kind that this end does not take, or not from this sender"
    BODY = "a body that does not fit its kind"
    MISALIGNED = "the message lies across the bounds of others"
    BEYOND_END = "records behind the end of the stream"
    NO_ROOM = "the reorder buffer is full; it will be asked for again"
    FAR_AHEAD = "live data while catching up"
    OVERSIZED = "the message has more bytes than may be reassembled"
    CONTRADICTION = "segments of one message contradict each other"
    UNKNOWN_HOST = "the host is no receiver of this stream"
    STALE = "a report older than one that is known"
    INCONSISTENT = "a report that contradicts an earlier one"
    SUPPRESSED = "asked for what has just been sent"
    EARLY = "asked for what may still be on its way"
    TOO_MANY = "more requests than are kept"


class Shipped:
    """Segments of one purpose sent by one carrier; each copy counts as one packet."""

    __slots__ = ("packets", "size")

    def __init__(self) -> None:
        self.packets = 0
        self.size = 0  # bytes, including the segment's header and tag, excluding UDP and IP headers


class StreamCounters:
    """Counters of one end of one stream. `sent` counts segments by kind, `shipped` the packets they became
    per carrier."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.sent_bytes = 0  # payload
        self.shipped: dict[tuple[int, str], Shipped] = {}  # by (carrier, purpose); origins only
        self.received = 0  # segments
        self.refused: dict[str, int] = {}
        self.multicast_repairs = 0  # segments
        self.evicted = 0  # incomplete messages

    def refuse(self, reason: Refused) -> None:
        self.refused[reason.name] = self.refused.get(reason.name, 0) + 1

    def send(self, out: Outgoing) -> None:
        """Counts segments. (`Sender` counts a message that it sends alone itself.)"""
        kind = NAMES[int(out.kind)]
        self.sent[kind] = self.sent.get(kind, 0) + out.count
        self.sent_bytes += out.size

    def by(self, carrier: int, purpose: str) -> Shipped:
        """Returns the count of what the carrier of this number sends for a purpose; the caller adds to it."""
        shipped = self.shipped.get((carrier, purpose))
        if shipped is None:
            shipped = self.shipped[carrier, purpose] = Shipped()
        return shipped

    def ship(self, carrier: int, purpose: str, packets: int, size: int) -> None:
        """Counts `packets` of `size` bytes in total as sent by the carrier of this number."""
        shipped = self.by(carrier, purpose)
        shipped.packets += packets
        shipped.size += size
