"""Three heuristics for Steiner trees. Each takes distinct, connected terminals and returns the tree's edges
as bits.
"""

from __future__ import annotations

from heapq import heappop, heappush

from ..bits import mask_of, members
from ..network import Network
from .common import FAR, Forest, path_to, prune, reach, spanning_tree


def cheapest_insertion(network: Network, terminals: list[int], costs: list[int]) -> int:
    """Repeatedly joins the nearest terminal to the tree: one Dijkstra search whose sources grow by each
    joined path.

    Source: Takahashi and Matsuyama, An approximate solution for the Steiner problem in graphs, 1980.
    """
    size = len(network.names)
    distance, arrived, tree = [FAR] * size, [-1] * size, 0
    missing = set(terminals[1:])
    inside = 1 << terminals[0]
    distance[terminals[0]] = 0
    heap = [terminals[0]]  # distance * nodes + node
    while missing:
        entry = heappop(heap)
        node = entry % size
        if entry // size > distance[node]:
            continue
        if node in missing:
            while not inside >> node & 1:  # up to the tree: all nodes on the way become sources
                inside |= 1 << node
                missing.discard(node)
                tree |= 1 << (arrived[node] >> 1)
                distance[node] = 0
                heappush(heap, node)
                node = network.tails[arrived[node]]
            continue
        for link in network.out[node]:
            head = network.heads[link]
            far = distance[node] + costs[link >> 1]
            if far < distance[head]:
                distance[head] = far
                arrived[head] = link
                heappush(heap, far * size + head)
    return tree


def kou(network: Network, terminals: list[int], costs: list[int]) -> int:
    """Returns a spanning tree of the distances between terminals, expanded to edges.

    Source: Kou, Markowsky and Berman, A fast algorithm for Steiner trees, Acta Informatica 15, 1981.
    """
    found = [reach(network, costs, [terminal]) for terminal in terminals]
    pairs: list[tuple[int, int, int]] = []
    for i in range(len(terminals)):
        for j in range(i + 1, len(terminals)):
            pairs.append((found[i].distance[terminals[j]], i, j))
    forest, edges = Forest(len(terminals)), 0
    for _, i, j in sorted(pairs):
        if forest.join(i, j):
            edges |= path_to(network, found[i], terminals[j])
    tree = spanning_tree(network, members(edges), costs)
    return prune(network, tree, mask_of(terminals))


def mehlhorn(network: Network, terminals: list[int], costs: list[int]) -> int:
    """Runs one Dijkstra search from all terminals, then joins their regions by the cheapest bridges.

    Source: Mehlhorn, A faster approximation algorithm for the Steiner problem in graphs, IPL 27, 1988.
    """
    found = reach(network, costs, terminals)
    bridges: list[tuple[int, int]] = []
    for edge in range(len(network.ends)):
        first, second = network.ends[edge]
        apart = found.distance[first] < FAR and found.source[first] != found.source[second]
        if apart:
            bridges.append((found.distance[first] + costs[edge] + found.distance[second], edge))
    forest, tree = Forest(len(network.names)), 0
    for _, edge in sorted(bridges):
        first, second = network.ends[edge]
        if forest.join(found.source[first], found.source[second]):
            tree |= 1 << edge | path_to(network, found, first) | path_to(network, found, second)
    return prune(network, tree, mask_of(terminals))
