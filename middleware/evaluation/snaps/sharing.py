"""Groups drawn as in the paper, and the segments that each method needs.

A group is a root and its leaves, all of them routers: every router is a border node. Random spread draws them
evenly. Locality draws the first evenly, and each next one with a probability that falls with its distance d
in hops to the previous one, as e^(-2d); the paper's text has e^(2d), by which members would prefer the far
side.

| method | meaning |
| --- | --- |
| paper | Algorithm 1 as meant: segments at nodes with several children, none at the root |
| mended | segments at all copying nodes: also at the root, and at members with others behind them |
| superset | the same, and a segment with at most two more leaves is reused; these leaves drop copies |

| strategy | trees |
| --- | --- |
| direct, RP | the paper's: shortest paths from the root, or from the node nearest to all |
| one tree | part of one spanning tree, used in both directions |
| gateways | two tiers: zones of about 25 routers have separate trees |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from math import exp
from pathlib import Path
from random import Random

from msgspec import Struct

from ...routing.bits import mask_of
from ...routing.clusters import k_medoids
from ...routing.network import Network
from ...routing.replication.algorithm1 import AS_MEANT, Existing, Reverse, replication_segments
from ...routing.replication.forest import Forest
from ...routing.replication.paths import Paths, rendezvous_point
from ...routing.replication.shapes import (
    Planned,
    Planner,
    Shape,
    by_gateways,
    by_rendezvous,
    direct,
    on_spanning_tree,
)
from ..figure import Row, mean
from ..topologies import load

SPREADS = ("random", "local")
PAPERS = ("direct", "RP")
OURS = ("one tree", "gateways")
SUPERSET = 2
ZONE = 25

# (strategy, method): the paper's two with all methods, ours beside them.
CASES = (
    *((strategy, method) for strategy in PAPERS for method in ("paper", "mended", "superset")),
    *((strategy, method) for strategy in OURS for method in ("mended", "superset")),
)


class Counts(Struct, frozen=True):
    """Counts after some number of groups: segments of all groups alone, existing ones, and unwanted
    copies.
    """

    groups: int
    alone: int
    shared: int
    unwanted: int

    @property
    def row(self) -> Row:
        """The counts per group, as in the paper."""
        return {
            "groups": self.groups,
            "segments alone": self.alone / self.groups,
            "segments shared": self.shared / self.groups,
            "ratio": self.alone / max(1, self.shared),
            "unwanted": self.unwanted / self.groups,
        }


Groups = Sequence[tuple[int, int]]  # root, leaves (bits)


class Drawing:
    """Draws groups on one network."""

    def __init__(self, paths: Paths) -> None:
        self._border = paths.network.clients
        self._weights = [self._near(paths.hops(node)) for node in range(paths.network.node_count)]

    def _near(self, far: list[int]) -> list[float]:
        return [exp(-2 * far[node]) if far[node] >= 0 else 0.0 for node in self._border]

    def group(self, spread: str, leaves: int, rng: Random) -> tuple[int, int]:
        """Returns a root and `leaves` leaves, all different."""
        drawn = rng.sample(self._border, leaves + 1) if spread == "random" else self._nearby(leaves + 1, rng)
        return drawn[0], mask_of(drawn[1:])

    def _nearby(self, count: int, rng: Random) -> list[int]:
        found = [rng.randrange(len(self._border))]
        taken = set(found)
        while len(found) < count:
            totals = list(accumulate(self._weights[self._border[found[-1]]]))
            for _ in range(8):  # most drawn nodes are new
                one = rng.choices(range(len(totals)), cum_weights=totals)[0]
                if one not in taken:
                    break
            else:
                left = [n for n in range(len(self._border)) if n not in taken]
                near = self._weights[self._border[found[-1]]]
                one = rng.choices(left, [near[n] for n in left])[0]
            found.append(one)
            taken.add(one)
        return [self._border[one] for one in found]


@lru_cache(maxsize=8)
def paths_of(name: str, folder: Path | None) -> Paths:
    """Returns the shortest paths of a network, computed once in a process."""
    return Paths(load(name, folder))


def drawn(paths: Paths, spread: str, leaves: int, count: int, rng: Random) -> Groups:
    """Draws `count` groups. All methods are compared on the same ones."""
    drawing = Drawing(paths)
    return [drawing.group(spread, leaves, rng) for _ in range(count)]


def planner(paths: Paths, strategy: str) -> Planner:
    """Returns how a strategy makes trees."""
    network = paths.network
    if strategy == "direct":
        return direct(paths)
    if strategy == "gateways":
        return by_gateways(paths, zones(network))
    point = rendezvous_point(paths, network.clients)
    return by_rendezvous(paths, point) if strategy == "RP" else on_spanning_tree(paths, point)


def zones(network: Network) -> list[list[int]]:
    """Zones around k-means centres, the same ones in every run."""
    return k_medoids(network, max(2, round(network.node_count / ZONE)), Random(1))


def count(paths: Paths, strategy: str, method: str, groups: Groups, at: Sequence[int]) -> Iterator[Counts]:
    """Yields the counts for each requested number of groups (ascending)."""
    counted = (
        _paper(paths, strategy, groups) if method == "paper" else _forest(paths, strategy, method, groups)
    )
    wanted = set(at)
    for found in counted:
        if found.groups in wanted:
            yield found


def _paper(paths: Paths, strategy: str, groups: Groups) -> Iterator[Counts]:
    point = rendezvous_point(paths, paths.network.clients)
    existing, alone = Existing(), 0
    for number, (root, leaves) in enumerate(groups, 1):
        start = point if strategy == "RP" else root
        tree = Reverse(paths.network, paths.arrivals(start), start, leaves & ~(1 << start))
        replication_segments(tree, existing, AS_MEANT)
        alone += sum(node != start and tree.branches(node, AS_MEANT) for node in tree.children)
        yield Counts(number, alone, len(existing), 0)


class _Noted:
    """A planner that remembers its last plan."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self.last = Planned((), None)

    def __call__(self, root: int, leaves: int, avoid: int) -> Planned:
        self.last = self._planner(root, leaves, avoid)
        return self.last


def _forest(paths: Paths, strategy: str, method: str, groups: Groups) -> Iterator[Counts]:
    plan = _Noted(planner(paths, strategy))
    forest = Forest(paths.network, plan, superset=SUPERSET if method == "superset" else 0)
    alone = unwanted = 0
    for number, (root, leaves) in enumerate(groups, 1):
        forest.open(number, root, leaves)
        alone += 0 if plan.last.top is None else places(plan.last.top)
        unwanted += forest.unwanted(number).bit_count()
        yield Counts(number, alone, len(forest.segments), unwanted)


def places(shape: Shape) -> int:
    """Returns how many places of a tree copy: its segments, if it shares none."""
    return shape.copies + sum(places(behind) for _, behind in shape.below)


def summary(rows: list[Row], keys: tuple[str, ...]) -> list[Row]:
    """Rows of equal keys as one: means, and of the ratio the standard deviation over runs."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    found = []
    for group, same in groups.items():
        row = dict(zip(keys, group, strict=True))
        for column in ("segments alone", "segments shared", "ratio", "unwanted"):
            row[column] = round(mean([one[column] for one in same]), 3)
        for column in ("ratio", "segments shared"):
            apart = mean([(one[column] - row[column]) ** 2 for one in same]) ** 0.5
            row[f"± {column}"] = round(apart, 3)
        found.append(row)
    return found
