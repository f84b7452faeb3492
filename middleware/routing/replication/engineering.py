"""Traffic engineering: trees leave links that carry too much (SNAPS, IV-B3), and come back when they fit
again.

Of each directed link it is known what it can carry and what others send over it; of each group its rate. A
link above `high`, a share of what it can carry, gives up groups, those with the highest rates first, until it
is below. A group goes where all links of its new tree stay below `high` with it, or not at all: nothing is
moved from one full link to another. It comes back to the shortest paths when these stay below `low` with it;
the gap between the two keeps it from going to and fro.

Each move is one change (`changes`): make before break, so that no packet is lost by it.
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
    """What was changed, in order, and the links that are above `high` still."""

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
            raise ValueError("a link that can carry nothing is none")
        self._forest = forest
        self._capacity = capacity
        self.high = high
        self.low = low

    def load(self, background: Sequence[float], rates: Mapping[Hashable, float]) -> list[float]:
        """By link, in bits per second: what others send, and the groups by the trees that they have."""
        found = list(background)
        for name, rate in rates.items():
            for link in members(self._forest.links_of(name)):
                found[link] += rate
        return found

    def balance(self, background: Sequence[float], rates: Mapping[Hashable, float]) -> Moves:
        """Moves trees off links above `high`, then back where there is room for it. A group moves once at
        most.
        """
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
        """Returns the links, the fullest first."""
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
        """Returns the links that a group must not use: with it they would be above a share (bits)."""
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
            return  # nowhere to go: it stays, and another group is tried
        changes[name] = change
        self._shift(name, rate, used, load)

    def _back(self, name: Hashable, rate: float, load: list[float], changes: dict[Hashable, Change]) -> None:
        """Back to the shortest paths, where they have room; else what it avoids stays."""
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
