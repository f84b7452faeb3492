"""Kou, Markowsky and Berman's heuristic: a spanning tree of all distances between terminals, drawn out.

Source: A fast algorithm for Steiner trees, Acta Informatica 15, 1981.
"""

from __future__ import annotations

from ..bits import mask_of, members
from ..network import Network
from .common import Forest, path_to, prune, reach, spanning_tree


def kou(network: Network, terminals: list[int], costs: list[int]) -> int:
    """The edges of the tree, as bits. Terminals are distinct and connected."""
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
