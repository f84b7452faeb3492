"""Unique shortest paths between any two nodes, the same in both directions.

If several paths have the same number of hops, the smallest sum of their edges' marks decides. A mark is a
fixed hash of the edge's number, so no two paths have the same sum in practice. Then a part of a shortest path
is a shortest path, the way back is the way there, and the paths from a node to a set of leaves are the same
in every tree through this node: two trees with the same leaves behind a node have the same links there.
Therefore trees can share a subtree by its leaves alone.
"""

from __future__ import annotations

from heapq import heappop, heappush

from ..bits import members
from ..network import Network, Unreachable

# A hop outweighs the marks of any path: a path has fewer than 2^12 edges, a mark fewer than 2^40 values.
_HOP = 1 << 52
_MARK = (1 << 40) - 1


def marks(network: Network, salt: int = 0) -> list[int]:
    """Returns the cost of each edge: a hop and its mark. Another salt breaks ties differently."""
    return [_HOP + (_mixed(edge + (salt << 20)) & _MARK) for edge in range(network.edge_count)]


def _mixed(number: int) -> int:
    """Returns the bits of a number spread over 64 (SplitMix64's finalizer)."""
    number = (number + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    number = (number ^ number >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return number ^ number >> 31


class Paths:
    """The shortest paths of a network, computed on first use and kept.

    `salt` determines how ties are broken; `avoid` in the calls is a set of links (bits) that no path may use.
    """

    def __init__(self, network: Network, salt: int = 0) -> None:
        self.network = network
        self._costs = marks(network, salt)
        self._arrivals: dict[tuple[int, int], list[int]] = {}

    def arrivals(self, root: int, avoid: int = 0) -> list[int]:
        """Returns for each node the last link of the path from the root; -1 at the root and for unreachable
        nodes.
        """
        found = self._arrivals.get((root, avoid))
        if found is None:
            found = self._search(root, avoid)
            if avoid and len(self._arrivals) > 4 * self.network.node_count:
                self._arrivals = {key: links for key, links in self._arrivals.items() if not key[1]}
            self._arrivals[root, avoid] = found
        return found

    def _search(self, root: int, avoid: int) -> list[int]:
        network, costs = self.network, self._costs
        size, heads, is_host = network.node_count, network.heads, network.is_host
        far = [-1] * size
        arrived = [-1] * size
        far[root] = 0
        heap = [root]  # cost * nodes + node, which sorts like the pair
        while heap:
            entry = heappop(heap)
            so_far, node = divmod(entry, size)
            if so_far > far[node] or (is_host[node] and node != root):
                continue
            for link in network.out[node]:
                head, cost = heads[link], so_far + costs[link >> 1]
                if (far[head] < 0 or cost < far[head]) and not avoid >> link & 1:
                    far[head] = cost
                    arrived[head] = link
                    heappush(heap, cost * size + head)
        return arrived

    def path(self, start: int, end: int, avoid: int = 0) -> tuple[int, ...]:
        """Returns the links from one node to another, in order. Raises Unreachable if there is no path."""
        arrived, network = self.arrivals(start, avoid), self.network
        found: list[int] = []
        node = end
        while node != start:
            link = arrived[node]
            if link < 0:
                raise Unreachable(f"no path from {network.names[start]} to {network.names[end]}")
            found.append(link)
            node = network.tails[link]
        return tuple(reversed(found))

    def reachable(self, root: int, leaves: int, avoid: int = 0) -> bool:
        """Returns whether there is a path to each of the leaves (bits of nodes)."""
        arrived = self.arrivals(root, avoid)
        return all(leaf == root or arrived[leaf] >= 0 for leaf in members(leaves))

    def hops(self, root: int) -> list[int]:
        """Returns the number of links to each node; -1 if unreachable."""
        arrived, tails = self.arrivals(root), self.network.tails
        found = [-1] * self.network.node_count
        found[root] = 0
        for node in range(self.network.node_count):
            behind = []
            while found[node] < 0 and arrived[node] >= 0:
                behind.append(node)
                node = tails[arrived[node]]
            far = found[node]
            for one in reversed(behind):
                far += 1
                found[one] = far
        return found


def rendezvous_point(paths: Paths, border: list[int]) -> int:
    """Returns the switch with the shortest average distance to all border nodes (SNAPS, IV-A); among equals
    the first.

    Raises Unreachable if no switch reaches all of them.
    """
    best: tuple[int, int] | None = None
    for node in paths.network.switches:
        far = paths.hops(node)
        if all(far[other] >= 0 for other in border):
            best = min(best or (1 << 60, 0), (sum(far[other] for other in border), node))
    if best is None:
        raise Unreachable("no switch reaches all border nodes: the network is in parts")
    return best[1]
