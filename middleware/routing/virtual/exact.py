"""The minimum number of labels, for small cases: all choices of virtual trees, all delivery trees."""

from __future__ import annotations

from itertools import combinations

from ..bits import members
from ..network import Network, RoutingError
from ..steiner.common import prune, spanning_tree
from .reference import count_stops
from .rules import RuleBase
from .stacks import Encoding, Request, encoding

_MOST_NODES = 14
_MOST_EDGES = 16


def delivery_trees(network: Network, asked: Request) -> list[int]:
    """Returns all trees over the request's nodes whose leaves are receivers. Raises RoutingError beyond 16
    edges.
    """
    nodes = [
        node for node in range(network.node_count) if network.edge_masks[node] != asked.access or node < 0
    ]
    if network.edge_count - asked.access.bit_count() > _MOST_EDGES or len(nodes) > _MOST_NODES:
        raise RoutingError(f"exact search ends at {_MOST_NODES} nodes and {_MOST_EDGES} edges")
    edges = [edge for edge in range(network.edge_count) if not asked.access >> edge & 1]
    found, keep = [], asked.receivers | 1 << asked.start
    for count in range(1, len(nodes)):
        for chosen in combinations(edges, count):
            tree = sum(1 << edge for edge in chosen)
            if spanning_tree(network, list(chosen), [1] * network.edge_count) != tree:
                continue
            touched = 0
            for edge in chosen:
                first, second = network.ends[edge]
                touched |= 1 << first | 1 << second
            connected = touched.bit_count() == count + 1 and not keep & ~touched
            if connected and prune(network, tree, keep) == tree:
                found.append(tree)
    return found


def encode(network: Network, rules: RuleBase, asked: Request, most_trees: int = 3) -> Encoding:
    """Returns an encoding with the fewest labels, then links, of at most `most_trees` trees."""
    trees = delivery_trees(network, asked)
    if not trees:
        raise RoutingError("a receiver cannot be reached")
    best: tuple[int, int] | None = None
    chosen: tuple[tuple[int, ...], int] = ((), 0)
    for count in range(most_trees + 1):
        for numbers in combinations(sorted(rules.trees), count):
            union = 0
            for number in numbers:
                union |= rules.trees[number]
            for tree in trees:
                away = union & ~tree & ~asked.access
                stops = count_stops(network, away, tree, asked.start)
                key = (count + stops + (tree & ~union).bit_count(), len(members(tree)))
                if best is None or key < best:
                    best, chosen = key, (numbers, tree)
    return encoding(network, rules, asked, list(chosen[0]), chosen[1])
