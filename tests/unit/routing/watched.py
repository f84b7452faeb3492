"""Forests whose changes are carried out step by step, with packets sent in between."""

from __future__ import annotations

from collections import Counter
from random import Random

from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.clusters import k_medoids
from treecast.middleware.routing.network import Network, Unreachable
from treecast.middleware.routing.replication.changes import Change, Step, StepKind
from treecast.middleware.routing.replication.delivery import Delivery, deliver
from treecast.middleware.routing.replication.forest import Forest
from treecast.middleware.routing.replication.paths import Paths, rendezvous_point
from treecast.middleware.routing.replication.segments import LOCAL, Branch, Segment
from treecast.middleware.routing.replication.shapes import (
    MOST_BRANCHES,
    Planner,
    by_gateways,
    by_rendezvous,
    direct,
    on_spanning_tree,
)

METHODS = ("direct", "rendezvous", "spanning", "gateways")
ONE_COPY_PER_LINK = ("direct", "rendezvous", "spanning")


def planner(network: Network, method: str, rng: Random) -> Planner:
    paths = Paths(network)
    if method == "gateways":
        return by_gateways(paths, k_medoids(network, min(3, len(network.switches)), rng))
    if method == "direct":
        return direct(paths)
    point = rendezvous_point(paths, network.clients)
    return by_rendezvous(paths, point) if method == "rendezvous" else on_spanning_tree(paths, point)


class Held:
    """The state of nodes and publishers, step by step."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}
        self.entries: dict[object, Branch | None] = {}

    def do(self, group: object, step: Step) -> None:
        segment = step.segment
        if step.kind is StepKind.ENTER:
            self.entries[group] = step.entry
        elif step.kind is StepKind.CREATE:
            assert segment is not None
            assert segment.number not in self.segments
            assert all(one.segment == LOCAL or one.segment in self.segments for one in segment.branches)
            self.segments[segment.number] = segment
        elif step.kind is StepKind.REWRITE:
            assert segment is not None
            assert self.segments[segment.number].node == segment.node
            self.segments[segment.number] = segment
        elif step.kind is StepKind.REMOVE:
            assert segment is not None
            del self.segments[segment.number]


def arrived(network: Network, forest: Forest, held: Held, name: object, root: int) -> Delivery:
    return deliver(network, held.segments, root, held.entries.get(name))


def whom(delivery: Delivery) -> Counter[int]:
    return +delivery.arrivals


class Watched:
    """Carries out a forest's changes step by step, and sends a packet of every group after each."""

    def __init__(self, network: Network, forest: Forest, *, one_copy: bool) -> None:
        self.network, self.forest, self.one_copy = network, forest, one_copy
        self.held = Held()
        self.roots: dict[object, int] = {}

    def apply(self, change: Change) -> None:
        before = whom(arrived(self.network, self.forest, self.held, change.group, self.root(change.group)))
        group = self.forest.groups.get(change.group)
        wanted = group.leaves if group is not None else 0
        switched = False
        for step in change.steps():
            self.held.do(change.group, step)
            switched = switched or step.kind in (StepKind.REWRITE, StepKind.ENTER)
            now = whom(arrived(self.network, self.forest, self.held, change.group, self.root(change.group)))
            if not switched:
                assert now == before, "before the switch a packet takes the old tree"
            else:
                assert all(now[leaf] == 1 for leaf in members(wanted)), (
                    "after the switch it takes the new tree"
                )
            self.check_others(change.group)
        self.check_all()

    def root(self, name: object) -> int:
        group = self.forest.groups.get(name)
        if group is not None:
            self.roots[name] = group.root
        return self.roots[name]

    def check_others(self, changed: object) -> None:
        for name, group in self.forest.groups.items():
            if name != changed:
                now = whom(arrived(self.network, self.forest, self.held, name, group.root))
                assert all(now[leaf] == 1 for leaf in members(group.leaves)), "other groups are unaffected"

    def check_all(self) -> None:
        self.forest.check_invariants()
        kept = {number: one.segment for number, one in self.forest.segments.kept.items()}
        assert kept == self.held.segments
        assert all(len(one.branches) + one.delivers <= MOST_BRANCHES for one in kept.values())
        assert all(len(one.branches) + one.delivers > 1 for one in kept.values())
        for name, group in self.forest.groups.items():
            found = arrived(self.network, self.forest, self.held, name, group.root)
            assert set(found.arrivals.values()) <= {0, 1}, "nobody gets two copies, wanted or not"
            assert mask_of(whom(found)) == group.leaves | self.forest.unwanted(name)
            assert mask_of(found.copies) == self.forest.links_of(name)
            if self.one_copy:
                assert set(found.copies.values()) <= {1}, "no link carries two copies"


def change_somehow(watched: Watched, rng: Random, turn: int) -> None:
    """Makes one join, leave, open, close or detour."""
    forest, network = watched.forest, watched.network
    names = sorted(map(str, forest.groups))
    clients = network.clients
    kind = rng.choice(["open", "join", "join", "leave", "leave", "set", "close", "reroute"])
    if kind == "open" or not names:
        leaves = mask_of(rng.sample(clients, rng.randint(0, len(clients))))
        watched.roots[f"g{turn}"] = root = rng.choice(clients)
        watched.apply(forest.open(f"g{turn}", root, leaves))
        return
    name = rng.choice(names)
    watched.root(name)
    if kind == "join":
        watched.apply(forest.join(name, rng.choice(clients)))
    elif kind == "leave":
        watched.apply(forest.leave(name, rng.choice(members(forest.groups[name].leaves) or clients)))
    elif kind == "set":
        watched.apply(forest.set_leaves(name, mask_of(rng.sample(clients, rng.randint(0, len(clients))))))
    elif kind == "close":
        watched.apply(forest.close(name))
    else:
        avoid = mask_of(rng.sample(range(len(network.tails)), min(3, len(network.tails))))
        try:
            change = forest.reroute(name, avoid)
        except Unreachable:
            return
        watched.apply(change)
