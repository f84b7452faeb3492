"""A tree of edges seen from its root: the links that lead away from it."""

from __future__ import annotations

from .network import Network, RoutingError


def preorder(network: Network, edges: int, root: int) -> list[int]:
    """Returns the tree's links away from the root, each before those behind it, ports ascending.

    Raises RoutingError if the edges are not a tree that contains the root.
    """
    found: list[int] = []
    seen = 1 << root
    waiting = [link for link in reversed(network.out[root]) if edges >> (link >> 1) & 1]
    while waiting:
        link = waiting.pop()
        head = network.heads[link]
        if seen >> head & 1:
            raise RoutingError(f"the edges close a circle at {network.names[head]}")
        seen |= 1 << head
        found.append(link)
        for further in reversed(network.out[head]):
            if edges >> (further >> 1) & 1 and further != link ^ 1:
                waiting.append(further)
    if len(found) != edges.bit_count():
        raise RoutingError(f"not all edges hang together with {network.names[root]}")
    return found


def children(network: Network, edges: int, root: int) -> dict[int, list[int]]:
    """Returns, for every node of the tree, the links to its children, ports ascending."""
    below: dict[int, list[int]] = {root: []}
    for link in preorder(network, edges, root):
        below[network.tails[link]].append(link)
        below[network.heads[link]] = []
    return below


def breadth_first(network: Network, root: int, within: int = -1) -> int:
    """Returns the edges of the breadth-first tree from a root, within the nodes of `within` (bits; default
    all).
    """
    seen, level, edges = 1 << root, [root], 0
    while level:
        below = []
        for node in level:
            for link in network.out[node]:
                head = network.heads[link]
                if within >> head & 1 and not seen >> head & 1:
                    seen |= 1 << head
                    edges |= 1 << (link >> 1)
                    below.append(head)
        level = below
    return edges


def distances(network: Network, root: int) -> list[int]:
    """Returns the hops from a root to every node; -1 if unreachable."""
    far = [-1] * network.node_count
    far[root], level = 0, [root]
    while level:
        below = []
        for node in level:
            for link in network.out[node]:
                head = network.heads[link]
                if far[head] < 0:
                    far[head] = far[node] + 1
                    below.append(head)
        level = below
    return far


def diameter(network: Network) -> int:
    """Returns the longest of all shortest paths, in hops."""
    return max(max(distances(network, node)) for node in range(network.node_count))


def center(network: Network, among: list[int]) -> int:
    """Returns the node of `among` with the smallest distance to its farthest node; among equals the lowest
    number.
    """
    return min(among, key=lambda node: (max(distances(network, node)), node))
