"""Steiner heuristics: their trees span, are pruned and stay within twice the optimum; compared with
networkx."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks

from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, RoutingError, build
from treecast.middleware.routing.steiner import METHODS, steiner_tree
from treecast.middleware.routing.steiner.common import nodes_of, spanning_tree


def cost_of(edges: int, costs: list[int]) -> int:
    return sum(costs[edge] for edge in members(edges))


def best_cost(network: Network, terminals: list[int], costs: list[int]) -> int:
    """Returns the optimum, from the spanning tree of every set of nodes."""
    others = [node for node in range(network.node_count) if node not in terminals]
    best = None
    for count in range(len(others) + 1):
        for chosen in combinations(others, count):
            nodes = mask_of([*terminals, *chosen])
            inside = [e for e, (a, b) in enumerate(network.ends) if nodes >> a & 1 and nodes >> b & 1]
            tree = spanning_tree(network, inside, costs)
            if tree.bit_count() == nodes.bit_count() - 1:
                cost = cost_of(tree, costs)
                best = cost if best is None else min(best, cost)
    assert best is not None
    return best


def is_tree(network: Network, edges: int) -> bool:
    return spanning_tree(network, members(edges), [1] * network.edge_count) == edges and (
        edges.bit_count() == nodes_of(network, edges).bit_count() - 1
    )


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=60)
@given(networks(8), st.integers(0, 10**6), st.booleans())
def test_against_the_optimum(method: str, network: Network, seed: int, zeros: bool) -> None:
    rng = Random(seed)
    costs = [rng.randrange(0 if zeros else 1, 4) for _ in range(network.edge_count)]
    terminals = rng.sample(range(network.node_count), rng.randint(2, network.node_count))
    tree = steiner_tree(network, terminals, method, costs)
    assert is_tree(network, tree)
    assert nodes_of(network, tree) & mask_of(terminals) == mask_of(terminals)
    for node in members(nodes_of(network, tree)):
        assert node in terminals or (network.edge_masks[node] & tree).bit_count() > 1
    assert cost_of(tree, costs) <= 2 * best_cost(network, terminals, costs)


@settings(max_examples=15)
@given(networks(20), st.integers(0, 10**6))
def test_like_networkx(network: Network, seed: int) -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.Graph(network.ends)
    terminals = Random(seed).sample(range(network.node_count), min(5, network.node_count))
    theirs = nx.algorithms.approximation.steiner_tree(graph, terminals, method="mehlhorn")
    ours = steiner_tree(network, terminals)
    # Both are the same heuristic, but may break ties differently.
    assert abs(ours.bit_count() - theirs.number_of_edges()) <= 3


def test_refusals() -> None:
    network = build(["a", "b", "c", "d"], [(0, 1), (2, 3)])
    with pytest.raises(RoutingError, match="d cannot be reached from a"):
        steiner_tree(network, [0, 1, 3])
    with pytest.raises(RoutingError, match="no Steiner"):
        steiner_tree(network, [0, 1], "magic")
    with pytest.raises(RoutingError, match="4 nodes"):
        steiner_tree(network, [0, 4])
    assert steiner_tree(network, [0]) == 0 == steiner_tree(network, [])
    assert steiner_tree(network, [0, 1, 1]) == 1
