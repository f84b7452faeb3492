"""The virtual trees that a network's switches hold, under a limit of rules per switch.

A tree takes one rule on every switch that it touches, since a packet may enter it at any of them. Its links
work in both directions: a switch forwards over all links of the tree but the one on which the packet came.
"""

from __future__ import annotations

from ...wire.label_stack import LAST_ID
from ..bits import members
from ..network import Network, RoutingError
from ..steiner.common import nodes_of, spanning_tree

# A tree of one edge is a hop.
FEWEST_EDGES = 2


def tree_links(network: Network, edges: int, switch: int) -> int:
    """Returns the links of a switch over which a tree goes, as bits."""
    touching, found = edges & network.edge_masks[switch], 0
    for link in network.out[switch] if touching else []:
        if touching >> (link >> 1) & 1:
            found |= 1 << link
    return found


class RuleBase:
    """Trees by id. Ids rise, and those of removed trees never come back."""

    def __init__(self, network: Network, limit: int, first: int = 1) -> None:
        if limit < 0:
            raise RoutingError(f"a limit of {limit} rules per switch; 0 is the least")
        self.network = network
        self.limit = limit
        self.trees: dict[int, int] = {}
        self.used: list[int] = [0] * network.node_count
        self.next = first

    def fits(self, edges: int) -> bool:
        """Returns whether all switches of a tree have room."""
        return self.limit > 0 and all(self.used[switch] < self.limit for switch in self.switches(edges))

    def switches(self, edges: int) -> list[int]:
        """Returns the switches that a tree takes a rule of."""
        return members(nodes_of(self.network, edges) & ~self.network.host_mask)

    def add(self, edges: int) -> int:
        """Installs a tree and returns its id. Raises RoutingError if it is not a tree, does not fit, or ids
        are exhausted.
        """
        self._check_tree(edges)
        if not self.fits(edges):
            raise RoutingError(f"a switch of the tree has {self.limit} rules already")
        if self.next > LAST_ID:
            raise RoutingError(f"tree ids are used up: there are {LAST_ID}, and none comes back")
        number, self.next = self.next, self.next + 1
        self.trees[number] = edges
        for switch in self.switches(edges):
            self.used[switch] += 1
        return number

    def offer(self, edges: int) -> int:
        """Installs a tree if it fits, is new and is more than a hop. Returns its id, or 0."""
        small = edges.bit_count() < FEWEST_EDGES
        if small or edges in self.trees.values() or not self.fits(edges):
            return 0
        return self.add(edges)

    def remove(self, number: int) -> None:
        """Removes a tree. Raises RoutingError if there is none."""
        if number not in self.trees:
            raise RoutingError(f"there is no tree {number}")
        for switch in self.switches(self.trees.pop(number)):
            self.used[switch] -= 1

    def links(self, switch: int, number: int) -> int:
        """Returns a switch's outgoing links for a tree, as bits; 0 if it has no such rule."""
        return tree_links(self.network, self.trees.get(number, 0), switch)

    @property
    def total(self) -> int:
        """Rules on all switches."""
        return sum(self.used)

    def copy(self) -> RuleBase:
        """Returns the same trees, ids and counts, changed apart from these."""
        other = RuleBase(self.network, self.limit, self.next)
        other.trees, other.used = dict(self.trees), list(self.used)
        return other

    def _check_tree(self, edges: int) -> None:
        if edges.bit_count() < FEWEST_EDGES or edges >> self.network.edge_count:
            raise RoutingError(f"a virtual tree has at least {FEWEST_EDGES} edges of its network")
        spanning = spanning_tree(self.network, members(edges), [1] * self.network.edge_count)
        if spanning != edges or edges.bit_count() != nodes_of(self.network, edges).bit_count() - 1:
            raise RoutingError("the edges of a virtual tree hang together and close no circle")

    def check_invariants(self) -> None:
        """Raises RoutingError if trees, limits, counts or ids contradict each other."""
        counted = [0] * self.network.node_count
        for number, edges in self.trees.items():
            self._check_tree(edges)
            if not 0 <= number < self.next or number > LAST_ID:
                raise RoutingError(f"tree id {number} was never given out")
            for switch in self.switches(edges):
                counted[switch] += 1
        if counted != self.used or max(counted) > self.limit:
            raise RoutingError("rules per switch are counted wrongly, or above the limit")
