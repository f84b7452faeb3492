"""The thesis' strongest reading of its encoding: each round takes the tree that gains most, evaluated again.

Section 5.2.7: the algorithm "iteratively attempts to incorporate each VT [...] and evaluates which individual
VT addition contributes the most". The result equals that of `reference.encode(order="steepest")`, ties
included. Most candidates are not evaluated: a bound of bits and disjoint sets, which no delivery tree can go
below, is computed first. Candidates are evaluated in the order of their bounds, until the next bound is above
the best result.

The bound rests on what all delivery trees share, as their leaves are terminals:

- a branch of the network without terminals is in none of them, and is left out first;
- terminals are in all of them, and so is the way from one that has a single edge left;
- each part of the union, seen as one node, has to be joined: parts with nodes of all trees, less one, are the
  fewest hops;
- an edge of the union from a node of all trees to a node of none needs a stop.
"""

from __future__ import annotations

from ..bits import members
from ..network import Network, RoutingError
from ..steiner.common import Forest, nodes_of, prune
from ..steiner.heuristics import mehlhorn
from .rules import RuleBase
from .stacks import Encoding, Request, encoding


class SteepestEncoder:
    """Encodes for one rule base as it is at creation; create a new one after a change of rules."""

    def __init__(self, network: Network, rules: RuleBase) -> None:
        self.network = network
        self.rules = rules
        self.numbers: list[int] = sorted(rules.trees)
        self.masks: list[int] = [rules.trees[number] for number in self.numbers]

    def encode(self, asked: Request) -> Encoding:
        """Returns the labels of a notification. Raises RoutingError if a receiver is unreachable."""
        network, size = self.network, len(self.masks)
        terminals = [asked.start, *members(asked.receivers)]
        delivery = mehlhorn(network, terminals, [1] * len(network.ends))
        if asked.receivers & ~(nodes_of(network, delivery) | 1 << asked.start):
            raise RoutingError("a receiver cannot be reached")
        bounds = Bounds(network, asked)
        chosen: list[int] = []
        union, cost = 0, delivery.bit_count()
        while True:
            bounds.begin(union)
            entries: list[int] = []  # labels * number of candidates + index, which sorts as the pair does
            for place in range(size):
                low = bounds.of(union | self.masks[place]) + len(chosen) + 1
                if low < cost and place not in chosen:
                    entries.append(low * size + place)
            entries.sort()
            best, tree = cost * size, 0
            for entry in entries:
                if entry > best:
                    break
                place = entry % size
                tried = union | self.masks[place]
                other = self._delivery(terminals, tried)
                total = labels_of(network, asked, tried, other) + len(chosen) + 1
                if total * size + place < best:
                    best, tree = total * size + place, other
            if not tree:
                break
            chosen.append(best % size)
            union, cost, delivery = union | self.masks[best % size], best // size, tree
        return encoding(network, self.rules, asked, [self.numbers[place] for place in chosen], delivery)

    def _delivery(self, terminals: list[int], free: int) -> int:
        costs = [1] * len(self.network.ends)
        for edge in members(free):
            costs[edge] = 0
        return mehlhorn(self.network, terminals, costs)


def labels_of(network: Network, asked: Request, union: int, tree: int) -> int:
    """Returns the hops and stops of a delivery tree: a stop for each end of an edge that leads away."""
    nodes, stops = nodes_of(network, tree) | 1 << asked.start, 0
    for edge in members(union & ~tree & ~asked.access):
        first, second = network.ends[edge]
        stops += (nodes >> first & 1) + (nodes >> second & 1)
    return (tree & ~union).bit_count() + stops


class Bounds:
    """The fewest hops and stops that any delivery tree of one request can need, for a union of trees.

    `kept`: the edges that a delivery tree may have; `must`: the nodes that all have (bits).
    """

    def __init__(self, network: Network, asked: Request) -> None:
        self.network = network
        terminals = asked.receivers | 1 << asked.start
        self.kept = prune(network, (1 << len(network.ends)) - 1, terminals)
        self.must = _shared_nodes(network, self.kept, terminals)
        self.sure_stops = self._sure_stops() & ~asked.access
        self.union = 0
        self.parts = 0
        self.part: list[int] = []
        self.holds: list[bool] = []

    def _sure_stops(self) -> int:
        possible = nodes_of(self.network, self.kept) | self.must
        edges = 0
        for edge in range(len(self.network.ends)):
            first, second = self.network.ends[edge]
            inside, outside = self.must >> first & 1, possible >> second & 1
            if (inside and not outside) or (self.must >> second & 1 and not possible >> first & 1):
                edges |= 1 << edge
        return edges

    def begin(self, union: int) -> None:
        """Takes a union that `of` is going to be asked about extensions of."""
        size = len(self.network.names)
        forest = Forest(size)
        for edge in members(union & self.kept):
            first, second = self.network.ends[edge]
            forest.join(first, second)
        self.union = union
        self.part = [forest.find(node) for node in range(size)]
        self.holds = [False] * size
        for node in members(self.must):
            self.holds[self.part[node]] = True
        self.parts = sum(self.holds)

    def of(self, union: int) -> int:
        """Returns the bound for a union that contains the one begun with."""
        forest, holds, parts = Forest(len(self.part)), list(self.holds), self.parts
        for edge in members(union & self.kept & ~self.union):
            first, second = self.network.ends[edge]
            one, other = forest.find(self.part[first]), forest.find(self.part[second])
            if one != other:
                parts -= holds[one] and holds[other]
                forest.parent[one] = other
                holds[other] = holds[one] or holds[other]
        return parts - 1 + (union & self.sure_stops).bit_count()


def _shared_nodes(network: Network, kept: int, terminals: int) -> int:
    """Returns the nodes (bits) that every tree over the terminals within `kept` has."""
    must, left, open_nodes = terminals, kept, terminals.bit_count()
    waiting = members(terminals)
    while waiting and open_nodes > 1:
        node = waiting.pop()
        mine = network.edge_masks[node] & left
        if not mine or mine & (mine - 1):
            continue  # several ways, or a node that was left before
        left ^= mine
        first, second = network.ends[mine.bit_length() - 1]
        neighbour = second if first == node else first
        if must >> neighbour & 1:
            open_nodes -= 1
        must |= 1 << neighbour
        waiting.append(neighbour)
    return must
