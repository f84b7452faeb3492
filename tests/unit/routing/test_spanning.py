"""Subscriptions along a spanning tree: everyone gets what it wants, no link carries what nobody behind it
wants.
"""

from __future__ import annotations

from random import Random

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.routing.spanning import NotConnected, Weight, deliver, route, spanning_tree


def graph(nodes: int, seed: int) -> list[tuple[int, int]]:
    """A connected graph: a random tree with some more edges."""
    rng = Random(seed)
    edges = {(rng.randrange(node), node) for node in range(1, nodes)}
    for _ in range(nodes):
        a, b = sorted((rng.randrange(nodes), rng.randrange(nodes)))
        if a != b:
            edges.add((a, b))
    return sorted(edges)


@pytest.mark.parametrize("weight", Weight)
@given(st.integers(1, 25), st.integers(0, 1000), st.booleans())
@settings(max_examples=60, deadline=None)
def test_trees_are_minimal(weight: Weight, nodes: int, seed: int, ties: bool) -> None:
    """By another implementation."""
    edges = graph(nodes, seed)
    degree = [sum(node in edge for edge in edges) for node in range(nodes)]
    cost = {edge: degree[edge[0]] * degree[edge[1]] if weight is Weight.MST_PLUS else 1 for edge in edges}
    tree = spanning_tree(nodes, edges, weight, Random(seed) if ties else None)
    taken = {(a, b) for a in range(nodes) for b in tree[a] if a < b}
    other = networkx.Graph()
    other.add_nodes_from(range(nodes))
    other.add_weighted_edges_from((*edge, heavy) for edge, heavy in cost.items())
    least = sum(one["weight"] for _, _, one in networkx.minimum_spanning_edges(other))
    assert len(taken) == nodes - 1
    assert sum(cost[edge] for edge in taken) == least


@given(st.integers(1, 25), st.integers(0, 1000), st.data())
@settings(max_examples=60, deadline=None)
def test_deliveries_follow_what_is_wanted(nodes: int, seed: int, data: st.DataObject) -> None:
    tree = spanning_tree(nodes, graph(nodes, seed), Weight.MST)
    some = st.sets(st.integers(0, nodes - 1))
    subscribers = data.draw(some)
    wanting = frozenset(data.draw(some)) & subscribers
    source = data.draw(st.integers(0, nodes - 1))
    reached, copies = deliver(tree, route(tree, subscribers), source, wanting)
    assert wanting <= reached
    assert copies == len(reached) - 1
    plain = networkx.Graph([(a, b) for a in range(nodes) for b in tree[a]])
    plain.add_nodes_from(range(nodes))
    ways = [networkx.shortest_path(plain, source, node) for node in wanting]
    assert reached == {source, *(node for way in ways for node in way)}


def test_low_degrees() -> None:
    """A hub with a ring around it: MST++ goes along the ring, MST from the hub takes the hub's edges."""
    edges = [(0, node) for node in range(1, 21)] + [(node, node % 20 + 1) for node in range(1, 21)]
    degrees = {
        weight: max(map(len, spanning_tree(21, edges, weight))) for weight in (Weight.MST, Weight.MST_PLUS)
    }
    assert degrees == {Weight.MST: 20, Weight.MST_PLUS: 3}


def test_parts_are_refused() -> None:
    with pytest.raises(NotConnected, match="2 of 4 nodes"):
        spanning_tree(4, [(0, 1), (2, 3)], Weight.MST)
