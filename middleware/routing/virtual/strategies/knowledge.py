"""A strategy's knowledge of the clients."""

from __future__ import annotations

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
