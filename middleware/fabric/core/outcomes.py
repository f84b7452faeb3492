"""The outcomes of a receiver's records, counted as they are reported."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from treecast.middleware.wire.segment_assembly import Message
from treecast.middleware.wire.segment_bodies import Expiry, Rejection, Totals


class How(enum.Enum):
    """How a message was delivered."""

    LIVE = "by what was sent to all receivers"
    REPAIRED = "with parts that were requested again"
    REPLAYED = "with parts that its origin replayed"


# In Python 3.11, enum member access goes through EnumType.__getattr__; bind the members once for the hot
# paths.
_LIVE: Final = How.LIVE
_REPAIRED: Final = How.REPAIRED


class Delivery:
    """A message whose turn has come. `how` is for statistics only."""

    __slots__ = ("how", "message")

    def __init__(self, message: Message, how: How) -> None:
        self.message = message
        self.how = how

    def __repr__(self) -> str:
        return f"Delivery({self.message!r}, {self.how.name})"


class Filtered(Struct, frozen=True):
    """Verdict that no application of this host wants the message: the network sent it needlessly."""


FILTERED = Filtered()

# The host's verdict on a message; None accepts it.
Judge = Callable[[Message], Filtered | Rejection | None]


def take_all(_: Message) -> None:
    """Judge that accepts every message."""


class Progress(Struct, frozen=True):
    """The progress that a receiver stores with the records it has taken, in order to continue after a
    restart.

    It began at `first`, everything before `next` is settled, and `totals` says how.
    """

    first: int
    next: int
    totals: Totals = Totals()


class Outcomes:
    """Running totals of outcomes."""

    def __init__(self, totals: Totals | None = None) -> None:
        totals = totals or Totals()
        self._live = totals.live
        self._repaired = totals.repaired
        self._replayed = totals.replayed
        self._filtered = totals.filtered
        self._expired = dict(totals.expired)
        self._refused = dict(totals.refused)

    def settle(self, records: int, how: How, verdict: Filtered | Rejection | None) -> bool:
        """Counts the outcome of records. Returns whether they are to be delivered."""
        if verdict is None:
            if how is _LIVE:
                self._live += records
            elif how is _REPAIRED:
                self._repaired += records
            else:
                self._replayed += records
        elif isinstance(verdict, Filtered):
            self._filtered += records
        else:
            self.reject(records, verdict)
        return verdict is None

    def expire(self, records: int, reason: Expiry) -> None:
        self._expired[reason] = self._expired.get(reason, 0) + records

    def reject(self, records: int, reason: Rejection) -> None:
        """Counts records that were never handed out."""
        self._refused[reason] = self._refused.get(reason, 0) + records

    def totals(self) -> Totals:
        return Totals(
            self._live,
            self._repaired,
            self._replayed,
            self._filtered,
            dict(self._expired),
            dict(self._refused),
        )
