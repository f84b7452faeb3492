"""Parts of all heuristics: distances, spanning trees, pruning. Costs are non-negative integers per edge."""

from __future__ import annotations

from heapq import heappop, heappush

from ..network import Network

FAR = 1 << 60


class Reach:
    """For every node: the nearest source, its distance, and the last link from it (-1 at a source)."""

    def __init__(self, nodes: int) -> None:
        self.distance: list[int] = [FAR] * nodes
        self.source: list[int] = [-1] * nodes
        self.link: list[int] = [-1] * nodes


def reach(network: Network, costs: list[int], sources: list[int]) -> Reach:
    """Runs Dijkstra's algorithm from all sources at once."""
    found = Reach(len(network.names))
    distance, heads, out = found.distance, network.heads, network.out
    size = len(network.names)
    heap: list[int] = []  # distance * nodes + node, which sorts like the pair
    for source in sources:
        distance[source] = 0
        found.source[source] = source
        heappush(heap, source)
    while heap:
        entry = heappop(heap)
        node = entry % size
        so_far = entry // size
        if so_far > distance[node]:
            continue
        for link in out[node]:
            head = heads[link]
            far = so_far + costs[link >> 1]
            if far < distance[head]:
                distance[head] = far
                found.source[head] = found.source[node]
                found.link[head] = link
                heappush(heap, far * size + head)
    return found


def path_to(network: Network, found: Reach, node: int) -> int:
    """Returns the edges of the path to a node, as bits."""
    edges = 0
    while found.link[node] >= 0:
        edges |= 1 << (found.link[node] >> 1)
        node = network.tails[found.link[node]]
    return edges


class Forest:
    """Disjoint sets."""

    def __init__(self, size: int) -> None:
        self.parent: list[int] = list(range(size))

    def find(self, node: int) -> int:
        parent = self.parent
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def join(self, first: int, second: int) -> bool:
        """Joins two sets; returns whether they were separate."""
        first, second = self.find(first), self.find(second)
        self.parent[first] = second
        return first != second


def spanning_tree(network: Network, edges: list[int], costs: list[int]) -> int:
    """Returns a cheapest spanning forest of these edges, as bits."""
    forest, tree = Forest(len(network.names)), 0
    for _, edge in sorted([(costs[edge], edge) for edge in edges]):
        first, second = network.ends[edge]
        if forest.join(first, second):
            tree |= 1 << edge
    return tree


def prune(network: Network, edges: int, keep: int) -> int:
    """Returns the forest without branches that lead to no node of `keep` (bits of nodes)."""
    waiting = _ends(network, edges)
    while waiting:
        node = waiting.pop()
        mine = network.edge_masks[node] & edges
        if mine and not mine & (mine - 1) and not keep >> node & 1:
            edges ^= mine
            first, second = network.ends[mine.bit_length() - 1]
            waiting.append(second if first == node else first)
    return edges


def _ends(network: Network, edges: int) -> list[int]:
    found: list[int] = []
    while edges:
        low = edges & -edges
        edges ^= low
        first, second = network.ends[low.bit_length() - 1]
        found.append(first)
        found.append(second)
    return found


def nodes_of(network: Network, edges: int) -> int:
    """Returns the nodes that edges touch, as bits."""
    mask = 0
    for node in _ends(network, edges):
        mask |= 1 << node
    return mask
