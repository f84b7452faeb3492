"""Traffic engineering: trees leave overloaded links (SNAPS, IV-B3), and return when they fit again.

Inputs are each directed link's capacity and other traffic, and each group's rate. A link above `high`, a
share of its capacity, gives up groups, those with the highest rates first, until it is below. A group moves
only if all links of its new tree stay below `high` with it: nothing moves from one full link to another. It
returns to the shortest paths when these stay below `low` with it; the gap between both thresholds prevents
oscillation.

Each move is one change (`changes`), make before break, so that it loses no packet.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from msgspec import Struct

from ..bits import members
from ..network import Unreachable
from .changes import Change
from .forest import Forest

HIGH = 0.65  # the paper's threshold
LOW = 0.5


class Moves(Struct, frozen=True):
    """The changes in order, and the links that are still above `high`."""

    changes: tuple[Change, ...]
    hot: tuple[int, ...]


class Engineer:
    """Decides which groups avoid which links. `capacity` is by link, in bits per second."""

    def __init__(
        self, forest: Forest, capacity: Sequence[float], *, high: float = HIGH, low: float = LOW
    ) -> None:
        if not 0 < low <= high:
            raise ValueError(f"thresholds {low} and {high}: expected 0 < low <= high")
        if min(capacity, default=1.0) <= 0:
            raise ValueError("a link needs a positive capacity")
        self._forest = forest
        self._capacity = capacity
        self.high = high
        self.low = low

    def load(self, background: Sequence[float], rates: Mapping[Hashable, float]) -> list[float]:
        """Returns the load by link, in bits per second: other traffic, and the groups with their present
        trees.
        """
        found = list(background)
        for name, rate in rates.items():
            for link in members(self._forest.links_of(name)):
                found[link] += rate
        return found

    def balance(self, background: Sequence[float], rates: Mapping[Hashable, float]) -> Moves:
        """Moves trees off links above `high`, then back if there is room. A group moves at most once."""
        load = self.load(background, rates)
        changes: dict[Hashable, Change] = {}
        for link in self._by_share(load):
            for name in self._on(link, rates):
                if load[link] <= self.high * self._capacity[link]:
                    break
                if name not in changes:
                    self._away(name, rates[name], load, changes)
        for name in sorted((n for n in rates if n not in changes), key=lambda n: rates[n]):
            self._back(name, rates[name], load, changes)
        return Moves(tuple(changes.values()), self._above(load))

    def _by_share(self, load: list[float]) -> list[int]:
        """Returns the links, most loaded first."""
        shares = [now / most for now, most in zip(load, self._capacity, strict=True)]
        return sorted(range(len(shares)), key=lambda link: shares[link], reverse=True)

    def _above(self, load: list[float]) -> tuple[int, ...]:
        limits = [self.high * most for most in self._capacity]
        return tuple([link for link, now in enumerate(load) if now > limits[link]])

    def _on(self, link: int, rates: Mapping[Hashable, float]) -> list[Hashable]:
        """Returns the groups on a link, the highest rate first."""
        found = [name for name in rates if self._forest.links_of(name) >> link & 1]
        return sorted(found, key=lambda name: rates[name], reverse=True)

    def _full(self, load: list[float], rate: float, used: int, most: float) -> int:
        """Returns the links that a group must not use, because with it they would exceed a share (bits)."""
        full = 0
        for link, now in enumerate(load):
            added = 0.0 if used >> link & 1 else rate
            if now + added > most * self._capacity[link]:
                full |= 1 << link
        return full

    def _away(self, name: Hashable, rate: float, load: list[float], changes: dict[Hashable, Change]) -> None:
        used = self._forest.links_of(name)
        avoid = self._full(load, rate, used, self.high)
        try:
            change = self._forest.reroute(name, avoid)
        except Unreachable:
            return  # no other path: it stays, and the next group is tried
        changes[name] = change
        self._shift(name, rate, used, load)

    def _back(self, name: Hashable, rate: float, load: list[float], changes: dict[Hashable, Change]) -> None:
        """Moves a group back to the shortest paths if they have room; otherwise it keeps avoiding links."""
        group = self._forest.groups[name]
        if not group.avoid:
            return
        used = self._forest.links_of(name)
        if self._forest.planned_links(name, 0) & self._full(load, rate, used, self.low):
            return
        changes[name] = self._forest.reroute(name, 0)
        self._shift(name, rate, used, load)

    def _shift(self, name: Hashable, rate: float, used: int, load: list[float]) -> None:
        now = self._forest.links_of(name)
        for link in members(used & ~now):
            load[link] -= rate
        for link in members(now & ~used):
            load[link] += rate
