"""Traffic engineering: trees leave overloaded links (SNAPS, IV-B3), and return when they fit again.

Inputs are each directed link's capacity and other traffic, and each group's rate. A group loads a link with
its rate times the copies of a packet that its tree sends there: a tree of two tiers may send two. A link
above `high`, a share of its capacity, gives up groups, those with the highest loads first, until it is below.
A group moves only if all links of its new tree stay below `high` with it: nothing moves from one full link to
another. It returns to the planner's own tree when its links stay below `low` with it; the gap between both
thresholds prevents oscillation.

Each move is one change (`changes`), make before break, so that it loses no packet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from msgspec import Struct

from ..bits import mask_of
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
        return _loaded(background, rates, {name: self._forest.copies_of(name) for name in rates})

    def balance(self, background: Sequence[float], rates: Mapping[Hashable, float]) -> Moves:
        """Moves trees off links above `high`, then back if there is room. A group moves at most once."""
        copies = {name: self._forest.copies_of(name) for name in rates}
        state = _State(rates, copies, _loaded(background, rates, copies))
        for link in self._by_share(state.load):
            for name in state.on(link):
                if state.load[link] <= self.high * self._capacity[link]:
                    break
                if name not in state.changes:
                    self._away(name, link, state)
        for name in sorted((n for n in rates if n not in state.changes), key=lambda n: rates[n]):
            self._back(name, state)
        return Moves(tuple(state.changes.values()), self._above(state.load))

    def _by_share(self, load: list[float]) -> list[int]:
        """Returns the links, most loaded first."""
        shares = [now / most for now, most in zip(load, self._capacity, strict=True)]
        return sorted(range(len(shares)), key=lambda link: shares[link], reverse=True)

    def _above(self, load: list[float]) -> tuple[int, ...]:
        limits = [self.high * most for most in self._capacity]
        return tuple([link for link, now in enumerate(load) if now > limits[link]])

    def _away(self, name: Hashable, hot: int, state: _State) -> None:
        """Moves a group to a tree whose links all stay below `high` with it, if there is one."""
        avoid = 1 << hot
        for link in range(len(state.load)):
            if state.with_copies(name, link, 1) > self.high * self._capacity[link]:
                avoid |= 1 << link
        try:
            while full := self._full(name, self._forest.planned_copies(name, avoid), self.high, state):
                avoid |= full
            state.change(name, self._forest, avoid)
        except Unreachable:
            return  # no other path: it stays, and the next group is tried

    def _back(self, name: Hashable, state: _State) -> None:
        """Moves a group back to the planner's own tree if that has room; otherwise it keeps avoiding
        links.
        """
        if not self._forest.groups[name].avoid:
            return
        if not self._full(name, self._forest.planned_copies(name, 0), self.low, state):
            state.change(name, self._forest, 0)

    def _full(self, name: Hashable, planned: Counter[int], most: float, state: _State) -> int:
        """Returns the links of a tree that would exceed a share of their capacity with it (bits)."""
        return mask_of(
            link
            for link, copies in planned.items()
            if state.with_copies(name, link, copies) > most * self._capacity[link]
        )


class _State:
    """The knowledge of `balance` while it moves groups: their copies by link, the load, and the changes."""

    def __init__(
        self, rates: Mapping[Hashable, float], copies: dict[Hashable, Counter[int]], load: list[float]
    ) -> None:
        self._rates = rates
        self._copies = copies
        self.load = load
        self.changes: dict[Hashable, Change] = {}

    def on(self, link: int) -> list[Hashable]:
        """Returns the groups on a link, the highest load first."""
        found = [name for name, copies in self._copies.items() if copies[link]]
        return sorted(found, key=lambda name: self._rates[name] * self._copies[name][link], reverse=True)

    def with_copies(self, name: Hashable, link: int, copies: int) -> float:
        """Returns the load of a link if the group sent that many copies over it."""
        return self.load[link] + self._rates[name] * (copies - self._copies[name][link])

    def change(self, name: Hashable, forest: Forest, avoid: int) -> None:
        """Gives the group another tree. Raises Unreachable, and changes nothing, if there is none."""
        self.changes[name] = forest.reroute(name, avoid)
        now = forest.copies_of(name)
        for link in now | self._copies[name]:
            self.load[link] = self.with_copies(name, link, now[link])
        self._copies[name] = now


def _loaded(
    background: Sequence[float], rates: Mapping[Hashable, float], copies: Mapping[Hashable, Counter[int]]
) -> list[float]:
    found = list(background)
    for name, rate in rates.items():
        for link, count in copies[name].items():
            found[link] += rate * count
    return found
