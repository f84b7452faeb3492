"""Routing on subscriptions in general networks, along one spanning tree (Camus, section IV.E).

Each edge of the tree parts the subscribers; a switch's port stands for those on the other side. MST takes
edges of equal weight; MST++ weighs an edge by the product of its ends' degrees, which keeps the tree's
degrees low, so that fewer ports divide the rules. With equal weights the tree depends on how ties are
broken.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Sequence

from .rng import Rng

Edge = tuple[int, int]


class Weight(enum.Enum):
    """How an edge is weighed."""

    MST = "MST"  # all alike
    MST_PLUS = "MST++"  # by the product of the degrees of its ends


class NotConnected(ValueError):
    """The network has nodes that no tree reaches."""


def spanning_tree(
    nodes: int, edges: Sequence[Edge], weight: Weight, rng: Rng | None = None
) -> list[list[int]]:
    """Returns each node's neighbours in a minimum spanning tree, by Prim's algorithm from node 0.

    Of equally light edges the one that was met first is taken, or with `rng` any. Raises NotConnected.
    """
    near: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    tree: list[list[int]] = [[] for _ in range(nodes)]
    reached = [False] * nodes
    heap: list[tuple[int, float, int, int, int]] = []
    met = 0

    def reach(node: int) -> None:
        nonlocal met
        reached[node] = True
        for other in near[node]:
            heavy = len(near[node]) * len(near[other]) if weight is Weight.MST_PLUS else 1
            tie = rng.random() if rng is not None else 0.0
            met += 1
            heapq.heappush(heap, (heavy, tie, met, node, other))

    if nodes:
        reach(0)
    while heap:
        *_, node, other = heapq.heappop(heap)
        if not reached[other]:
            tree[node].append(other)
            tree[other].append(node)
            reach(other)
    if not all(reached):
        raise NotConnected(f"{reached.count(False)} of {nodes} nodes are not connected to node 0")
    return tree


def route(tree: Sequence[Sequence[int]], subscribers: Iterable[int]) -> dict[Edge, frozenset[int]]:
    """Returns, for each (node, neighbour) with any, the subscribers on the neighbour's side."""
    wanting = frozenset(subscribers)
    order, parent = _down(tree)
    below = {node: frozenset({node}) & wanting for node in order}
    for node in reversed(order):
        if parent[node] >= 0:
            below[parent[node]] |= below[node]
    found = {(parent[node], node): below[node] for node in order if parent[node] >= 0}
    found |= {(node, parent[node]): wanting - below[node] for node in order if parent[node] >= 0}
    return {edge: behind for edge, behind in found.items() if behind}


def _down(tree: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Returns the nodes from node 0 on, each after its parent, and the parents."""
    parent = [-1] * len(tree)
    order = [0] if tree else []
    for node in order:
        for other in tree[node]:
            if other != parent[node]:
                parent[other] = node
                order.append(other)
    return order, parent


def deliver(
    tree: Sequence[Sequence[int]], routes: dict[Edge, frozenset[int]], source: int, wanting: frozenset[int]
) -> tuple[set[int], int]:
    """Sends a packet that some subscribers want; returns the nodes that it reaches, and the copies on
    links.
    """
    reached = {source}
    left = [(source, -1)]
    copies = 0
    while left:
        node, came = left.pop()
        for other in tree[node]:
            if other != came and routes.get((node, other), frozenset()) & wanting:
                copies += 1
                reached.add(other)
                left.append((other, node))
    return reached, copies
