"""The shortest-path heuristic: again and again the terminal nearest to the tree is joined to it.

Source: Takahashi and Matsuyama, An approximate solution for the Steiner problem in graphs, 1980.
"""

from __future__ import annotations

from heapq import heappop, heappush

from ..network import Network
from .common import FAR


def cheapest_insertion(network: Network, terminals: list[int], costs: list[int]) -> int:
    """The edges of the tree, as bits. One Dijkstra, whose sources grow by each path that is joined."""
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
            while not inside >> node & 1:  # up to the tree: all on the way are sources from now on
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
