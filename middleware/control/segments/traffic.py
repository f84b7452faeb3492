"""Which links between routers trees leave because of their load (SNAPS, IV-B3). Pure.

    traffic = Traffic(plan.network, manager.ways, capacity)
    traffic.count(now, counters)                  # bytes by directed link since a router began, as it says
    avoid = traffic.avoid(rates)                  # by group, for `manager.update`

Load is what routers have sent over a link between two looks, by their own counters. What of it is not from
trees is other traffic: the trees are those of the last decision. A look during which trees moved decides
nothing, because both paths have carried some of it. `routing.replication.engineering` decides.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import inf
from typing import cast

from treecast.middleware.routing.bits import mask_of
from treecast.middleware.routing.network import Network, RoutingError, Unreachable
from treecast.middleware.routing.replication.engineering import HIGH, LOW, Engineer
from treecast.middleware.routing.replication.forest import Forest
from treecast.middleware.routing.replication.ways import Ways

from .manager import Group


class Rates:
    """Bits per second from bytes that are counted."""

    def __init__(self) -> None:
        self._at = -1.0
        self._before: dict[Group, int] = {}

    def take(self, now: float, sent: Mapping[Group, int]) -> dict[Group, float]:
        """Returns the rates since the last call; 0 for a new group, or a counter that has fallen."""
        seconds, before = now - self._at, self._before
        self._at, self._before = now, dict(sent)
        if seconds <= 0:
            return dict.fromkeys(sent, 0.0)
        return {
            group: 8 * max(0, count - before.get(group, count)) / seconds for group, count in sent.items()
        }


class Traffic:
    """The load of one network. `capacity`: of each link between routers, in bits per second.

    Its own forest has the same trees as the manager's, so that decisions can be made before routers change.
    """

    def __init__(
        self, network: Network, ways: Ways, capacity: float, *, high: float = HIGH, low: float = LOW
    ) -> None:
        self._network = network
        self._ways = ways
        self._forest = Forest(network, ways.plan)
        self._engineer = Engineer(self._forest, _capacities(network, capacity), high=high, low=low)
        self._down = ways.down
        self._at = -1.0
        self._bytes: dict[int, int] = {}
        self._load: list[float] | None = None  # bits per second by link, in the last look

    @property
    def load(self) -> list[float] | None:
        """Returns the bits per second of each link, in the last look; None before the second one."""
        return self._load

    def count(self, now: float, sent: Mapping[int, int]) -> None:
        """Takes the bytes that routers have sent by link. Links without a router that answers are left out.

        A counter that has fallen was restarted.
        """
        if self._at >= 0 and now > self._at:
            load = [0.0] * (2 * self._network.edge_count)
            for link, count in sent.items():
                before = self._bytes.get(link, count)
                load[link] = 8 * (count - before if count >= before else count) / (now - self._at)
            self._load = load
        self._at, self._bytes = now, dict(sent)

    def avoid(self, rates: Mapping[Group, float]) -> dict[Group, int]:
        """Returns the links to avoid (bits), by group. `rates`: of all groups, in bits per second."""
        moved = self._follow(rates)
        if self._load is not None and not moved:
            trees = self._engineer.load([0.0] * len(self._load), self._known(rates))
            pairs = zip(self._load, trees, strict=True)
            background = [max(0.0, measured - own) for measured, own in pairs]
            moved = bool(self._engineer.balance(background, self._known(rates)).changes)
        if moved:
            self._load = None  # the next look has both paths
            self._at = -1.0
        groups = self._forest.groups
        return {group: groups[group].avoid for group in rates if group in groups}

    def take(self, avoid: Mapping[Group, int], groups: Mapping[Group, float]) -> None:
        """Starts from trees that somebody else has moved, those of groups that have come meanwhile among
        them: the next look only measures.
        """
        self._follow(groups)
        for group, known in self._forest.groups.items():
            links = avoid.get(cast(Group, group), 0)
            if known.avoid != links:
                try:
                    self._forest.reroute(group, links)
                except RoutingError:
                    continue  # the manager has it on the shortest paths, too
        self._load, self._at = None, -1.0

    def _known(self, rates: Mapping[Group, float]) -> dict[Hashable, float]:
        return {group: rate for group, rate in rates.items() if group in self._forest.groups}

    def _follow(self, rates: Mapping[Group, float]) -> bool:
        """Has exactly these groups in the forest, with paths over links that are up. Returns whether a tree
        that stays has moved.
        """
        changed, self._down = self._down != self._ways.down, self._ways.down
        for group in [name for name in self._forest.groups if name not in rates]:
            self._forest.close(group)
        moved = False
        for group in sorted(rates):
            if group not in self._forest.groups:
                self._open(group)
            elif changed:
                before = self._forest.links_of(group)
                self._again(group)
                moved |= group in self._forest.groups and self._forest.links_of(group) != before
        return moved

    def _open(self, group: Group) -> None:
        try:
            leaves = mask_of([self._network.node(name) for name in group[1]])
            self._forest.open(group, self._network.node(group[0]), leaves)
        except RoutingError:
            pass  # the manager says so

    def _again(self, group: Group) -> None:
        """Plans a group's tree again; it is closed if its receivers cannot be reached."""
        for avoid in (self._forest.groups[group].avoid, 0):
            try:
                self._forest.reroute(group, avoid)
            except Unreachable:
                continue
            return
        self._forest.close(group)


def _capacities(network: Network, capacity: float) -> list[float]:
    """Returns the capacity of each link. No tree can leave a host's link, so that is never too full."""
    ends = zip(network.tails, network.heads, strict=True)
    return [inf if network.is_host[tail] or network.is_host[head] else capacity for tail, head in ends]
