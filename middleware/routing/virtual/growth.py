"""Delivery trees grown to need few labels beside a given choice of virtual trees.

With F the edges of the chosen trees and D a delivery tree, D needs a hop for each of its edges outside F, and
a stop for each link that leads from a node of D over an edge of F that is not in D. As sums over D:

    labels(D) = sum over nodes of (edges of F there)  -  2 * |D and F|  +  |D without F|

So labels are prices of nodes and edges, and a shortest path under these prices avoids branches that need
stops: a node that the path only passes costs its edges of F minus the two (or one, or none) that the path
uses; a receiver must be entered anyway, so that only the way in counts. The tree grows as in Takahashi and
Matsuyama's heuristic: the cheapest receiver is joined, and all nodes on its path become part of the tree.
Among equal prices fewer links win.

Hot: compiled by mypyc. Lists of small integers, no closures.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

from ..network import Network, RoutingError

FAR: Final = 1 << 60
# A label weighs more than any number of links that one path can save.
LABEL: Final = 64
LINK: Final = 1
# The bold surcharge for leaving the union, and both prices of entering a receiver from outside. At least 1
# and 3 labels are lost; these values did better on the zoo's networks, as a tree is seldom left for one node
# only.
BOLD: Final = 3
AWAY: Final = 5
# How often all branches of a tree are tried again.
PASSES: Final = 3


class Grown:
    """A delivery tree: per node the link by which it is entered (-1: outside the tree, or its root)."""

    def __init__(self, entered: list[int], nodes: list[int], edges: int, labels: int) -> None:
        self.entered = entered
        self.nodes = nodes
        self.edges = edges
        self.labels = labels  # hops and stops

    @property
    def size(self) -> int:
        return len(self.nodes) - 1


class Soil:
    """The ground on which a tree grows: the union of chosen virtual trees, as lists, without the
    access edge.
    """

    def __init__(self, network: Network, access: int) -> None:
        self.network = network
        self.access = access.bit_length() - 1
        self.chosen = 0
        self.inside: list[int] = [0] * len(network.ends)  # per edge: how many chosen trees hold it
        self.degree: list[int] = [0] * len(network.names)  # per node: how many edges of the union

    def add(self, edges: list[int]) -> None:
        """Chooses one more virtual tree."""
        inside, degree, ends = self.inside, self.degree, self.network.ends
        self.chosen += 1
        for edge in edges:
            if inside[edge] == 0 and edge != self.access:
                first, second = ends[edge]
                degree[first] += 1
                degree[second] += 1
            inside[edge] += 1

    def remove(self, edges: list[int]) -> None:
        """Takes one back."""
        inside, degree, ends = self.inside, self.degree, self.network.ends
        self.chosen -= 1
        for edge in edges:
            inside[edge] -= 1
            if inside[edge] == 0 and edge != self.access:
                first, second = ends[edge]
                degree[first] -= 1
                degree[second] -= 1


class Prices:
    """The prices of entering a node, by an edge of the union or by another: labels first, then links."""

    def __init__(self, inside: list[int], outside: list[int]) -> None:
        self.inside = inside
        self.outside = outside


def wary_prices(soil: Soil, wanted: list[int]) -> Prices:
    """Fears all branches: a node that a way passes stops all its edges of the union that the way does not
    use."""
    return _prices(soil, wanted, [0] * len(wanted))


def bold_prices(soil: Soil, start: int, wanted: list[int]) -> Prices:
    """Fears only branches behind which no receiver is: all others are thought to be used."""
    return _prices(soil, wanted, _useful(soil, start, wanted))


def _prices(soil: Soil, wanted: list[int], useful: list[int]) -> Prices:
    """Returns prices. `useful`: per node, the edges of the union that are expected to be used; 0 if
    unknown.
    """
    size: i64 = len(wanted)
    inside: list[int] = [LINK] * len(wanted)
    outside: list[int] = [AWAY * LABEL + LINK] * len(wanted)
    for node in range(size):
        if wanted[node]:  # must be entered anyway; a hop costs 3 labels more than an edge of the union
            continue
        degree: i64 = soil.degree[node]
        used: i64 = useful[node]
        if used > 0:
            inside[node] = (degree - used) * LABEL + LINK
            outside[node] = (degree - used + BOLD) * LABEL + LINK
        else:
            if degree > 2:
                inside[node] = (degree - 2) * LABEL + LINK
            outside[node] = (degree + 1) * LABEL + LINK
    return Prices(inside, outside)


def _useful(soil: Soil, start: int, wanted: list[int]) -> list[int]:
    """Returns, per node, its edges of the union after repeatedly cutting off ends without receivers."""
    network, inside = soil.network, soil.inside
    left = list(soil.degree)
    ends = [node for node in range(len(left)) if left[node] == 1 and not wanted[node] and node != start]
    while ends:
        node = ends.pop()
        left[node] = 0
        for link in network.out[node]:
            head = network.heads[link]
            if inside[link >> 1] and left[head] > 0:
                left[head] -= 1
                if left[head] == 1 and not wanted[head] and head != start:
                    ends.append(head)
    return left


def grow(soil: Soil, start: int, wanted: list[int], missing: int) -> Grown:
    """Returns a tree from `start` over all nodes that are 1 in `wanted`; there are `missing` of them.

    The better of a wary and a bold one. Raises RoutingError if receivers are unreachable.
    """
    bold = grow_boldly(soil, start, wanted, missing)
    if not soil.chosen:
        return bold
    wary = grow_warily(soil, start, wanted, missing)
    return wary if _is_better(wary, bold) else bold


def grow_warily(soil: Soil, start: int, wanted: list[int], missing: int) -> Grown:
    """Returns the wary tree alone."""
    return _extend(soil, [start], [-1] * len(wanted), wanted, missing, wary_prices(soil, wanted))


def grow_boldly(soil: Soil, start: int, wanted: list[int], missing: int) -> Grown:
    """Returns the bold tree alone: half the work, and usually the better one."""
    return _extend(soil, [start], [-1] * len(wanted), wanted, missing, bold_prices(soil, start, wanted))


def _is_better(tree: Grown, other: Grown) -> bool:
    if tree.labels != other.labels:
        return tree.labels < other.labels
    return tree.size < other.size


def _extend(
    soil: Soil, nodes: list[int], entered: list[int], wanted: list[int], missing: int, prices: Prices
) -> Grown:
    """Extends an existing tree; `nodes`, root first, and `entered` become part of the result."""
    network, inside = soil.network, soil.inside
    heads, tails, out = network.heads, network.tails, network.out
    in_price, out_price = prices.inside, prices.outside
    size: i64 = len(wanted)
    price, way = [FAR] * len(wanted), [-1] * len(wanted)
    heap: list[int] = []  # price * nodes + node, which sorts as the pair does
    for node in nodes:
        price[node] = -1
        heap.append(node)
    heapify(heap)
    while missing > 0:
        if not heap:
            raise RoutingError("a receiver cannot be reached")
        entry: i64 = heappop(heap)
        at: i64 = entry % size
        paid: i64 = price[at]
        if paid < 0:
            paid = 0
        if entry // size > paid:
            continue
        if paid > 0 and wanted[at]:
            here: int = at
            while price[here] >= 0:  # up to the tree
                entered[here] = way[here]
                nodes.append(here)
                missing -= wanted[here]
                price[here] = -1
                heappush(heap, here)
                here = tails[way[here]]
            continue
        for link in out[at]:
            head: i64 = heads[link]
            known: i64 = price[head]
            if known >= 0:
                cost: i64 = paid + (in_price[head] if inside[link >> 1] else out_price[head])
                if cost < known:
                    price[head] = cost
                    way[head] = link
                    heappush(heap, cost * size + head)
    return _weigh(soil, nodes, entered)


def _weigh(soil: Soil, nodes: list[int], entered: list[int]) -> Grown:
    edges, labels = 0, soil.degree[nodes[0]]
    for node in nodes[1:]:
        edge = entered[node] >> 1
        edges |= 1 << edge
        labels += soil.degree[node] + (-2 if soil.inside[edge] else 1)
    return Grown(entered, nodes, edges, labels)


def weigh(soil: Soil, tree: Grown) -> int:
    """Returns the hops and stops that a tree needs on this soil."""
    labels = soil.degree[tree.nodes[0]]
    for node in tree.nodes[1:]:
        labels += soil.degree[node] + (-2 if soil.inside[tree.entered[node] >> 1] else 1)
    return labels


def improve(soil: Soil, tree: Grown, wanted: list[int]) -> Grown:
    """Local search: cuts back and regrows each branch that ends at a receiver, while that helps."""
    prices = wary_prices(soil, wanted)
    for _ in range(PASSES):
        before = tree
        for leaf in _dear_leaves(soil, tree, wanted):
            other = _regrow(soil, tree, wanted, leaf, prices)
            if _is_better(other, tree):
                tree = other
        if tree is before:
            break
    return tree


def _dear_leaves(soil: Soil, tree: Grown, wanted: list[int]) -> list[int]:
    """Returns the leaves whose branches need more labels than the cheapest way into them could."""
    tails, entered, inside, degree = soil.network.tails, tree.entered, soil.inside, soil.degree
    children = [0] * len(entered)
    for node in tree.nodes[1:]:
        children[tails[entered[node]]] += 1
    root, found = tree.nodes[0], []
    for leaf in tree.nodes[1:]:
        if children[leaf]:
            continue
        extra = 0 if inside[entered[leaf] >> 1] or not degree[leaf] else 3
        node = tails[entered[leaf]]
        while node != root and children[node] == 1 and not wanted[node]:
            extra += degree[node] + (-2 if inside[entered[node] >> 1] else 1)
            node = tails[entered[node]]
        if extra > 0:
            found.append(leaf)
    return found


def _regrow(soil: Soil, tree: Grown, wanted: list[int], leaf: int, prices: Prices) -> Grown:
    """Returns the tree with the branch to a leaf cut back, up to its fork or another receiver, and regrown;
    the same tree if the node is no longer a leaf.
    """
    tails, entered = soil.network.tails, list(tree.entered)
    children = [0] * len(entered)
    for node in tree.nodes[1:]:
        children[tails[entered[node]]] += 1
    if children[leaf]:
        return tree
    root, node = tree.nodes[0], leaf
    while node != root and children[node] == 0 and (node == leaf or not wanted[node]):
        above = tails[entered[node]]
        entered[node] = -1
        children[above] -= 1
        node = above
    kept = [node for node in tree.nodes if node == root or entered[node] >= 0]
    return _extend(soil, kept, entered, wanted, 1, prices)
