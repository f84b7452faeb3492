"""A strategy's knowledge of the clients; matching of advertisements and subscriptions."""

from __future__ import annotations

import enum

from msgspec import Struct, field


class Knowledge(Struct, frozen=True):
    """For every publisher, its subscribers with the share of its notifications that each receives; dense
    regions.

    A permanent match has the share 1. `regions` are lists of nodes. `threshold` is the share from which
    threshold and frequency-relation include a subscriber.
    """

    subscribers: dict[int, dict[int, float]] = field(default_factory=dict)
    regions: list[list[int]] = field(default_factory=list)
    threshold: float = 0.3


class Match(enum.Enum):
    """The relation of a subscription's filter to a publisher's advertisement (5.3.4)."""

    PERMANENT = "all that is published matches"
    POTENTIAL = "some of it may match"
    NONE = "nothing of it matches"


Interval = tuple[float, float]


def match(advertised: dict[str, Interval], wanted: dict[str, Interval]) -> Match:
    """Compares closed intervals per attribute; an attribute that one side does not name is unlimited
    there.
    """
    found = Match.PERMANENT
    for attribute, (low, high) in wanted.items():
        least, most = advertised.get(attribute, (float("-inf"), float("inf")))
        if high < least or most < low:
            return Match.NONE
        if least < low or high < most:
            found = Match.POTENTIAL
    return found
