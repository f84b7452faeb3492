"""Mehlhorn's heuristic: one Dijkstra from all terminals, then the cheapest bridges between their regions.

Source: Mehlhorn, A faster approximation algorithm for the Steiner problem in graphs, IPL 27, 1988.
"""

from __future__ import annotations

from ..bits import mask_of
from ..network import Network
from .common import FAR, Forest, path_to, prune, reach


def mehlhorn(network: Network, terminals: list[int], costs: list[int]) -> int:
    """The edges of the tree, as bits. Terminals are distinct and connected."""
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
