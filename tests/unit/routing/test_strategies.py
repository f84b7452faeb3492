"""Installation strategies: valid rule bases under every limit, whose stacks deliver exactly once."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks, receivers_of
from tests.unit.routing.test_virtual import delivered

from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.clusters import communities, dense_regions, k_medoids
from treecast.middleware.routing.network import Network, build
from treecast.middleware.routing.steiner.common import nodes_of
from treecast.middleware.routing.topologies import facebook_fabric, k_ary_tree
from treecast.middleware.routing.virtual.choice import adapt, choose
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.reference import encode
from treecast.middleware.routing.virtual.stacks import request
from treecast.middleware.routing.virtual.strategies import STRATEGIES, Knowledge, install
from treecast.middleware.routing.virtual.strategies.basic import broadcast_tree, roots
from treecast.middleware.routing.virtual.strategies.clients import prune_tree, threshold_hops
from treecast.middleware.routing.virtual.strategies.topology import cycle_basis, is_cycle

SEEDS = st.integers(0, 10**6)
# The thesis' Fig. 6.5: (a, b, e, c), (b, d, e) and (c, e, f).
THREE_CYCLES = build(list("abcdef"), [(0, 1), (0, 2), (1, 4), (2, 4), (1, 3), (3, 4), (4, 5), (2, 5)])


def knowledge_of(network: Network, rng: Random) -> Knowledge:
    clients = network.clients
    subscribers = {}
    for publisher in rng.sample(clients, max(1, len(clients) // 3)):
        others = [client for client in clients if client != publisher]
        chosen = rng.sample(others, max(1, len(others) // 2))
        subscribers[publisher] = {client: rng.choice([0.1, 0.4, 1.0]) for client in chosen}
    return Knowledge(subscribers, dense_regions(network, k_medoids(network, 2, rng), 0.6))


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=12)
@given(st.booleans().flatmap(lambda hosts: networks(10, hosts=hosts)), SEEDS, st.integers(0, 6))
def test_every_strategy_installs_what_delivers(name: str, network: Network, seed: int, limit: int) -> None:
    rng = Random(seed)
    knowledge = knowledge_of(network, rng)
    rules = install(network, limit, STRATEGIES[name], knowledge, Random(seed))
    rules.check_invariants()
    assert max(rules.used) <= limit
    again = install(network, limit, STRATEGIES[name], knowledge, Random(seed))
    assert again.trees == rules.trees  # depends on the seed alone
    source, receivers = receivers_of(network, rng)
    asked = request(network, source, receivers)
    for found in (encode(network, rules, asked), Encoder(network, rules).encode(asked)):
        assert delivered(network, rules, source, receivers, found) == []


def test_broadcast_trees_of_the_fabric() -> None:
    """Fig. 5.5: per spine one tree over one fabric switch per pod, all racks and all machines."""
    fabric = facebook_fabric()
    spines = roots(fabric)
    assert [fabric.names[root][:5] for root in spines] == ["spine"] * 16
    for root in spines:
        tree = broadcast_tree(fabric, root)
        nodes = members(nodes_of(fabric, tree))
        kinds = [
            sum(fabric.names[node].startswith(kind) for node in nodes) for kind in ("spine", "fabric", "tor")
        ]
        assert (kinds, tree.bit_count()) == ([1, 8, 32], 8 + 32 + 64)


def test_pruning_a_tree() -> None:
    """Algorithm 5.2 removes non-terminal leaves repeatedly, and discards a tree that is too small."""
    network = k_ary_tree(2, 2)
    tree = broadcast_tree(network, 0)
    hosts = network.hosts
    found = prune_tree(network, tree, [hosts[0], hosts[1]])
    assert found == mask_of(
        e for e in range(network.edge_count) if set(network.ends[e]) <= {1, 3, 4, *hosts[:2]}
    )
    assert prune_tree(network, tree, hosts) == tree
    assert prune_tree(network, tree, [hosts[0], hosts[1]], least=4) == 0


def test_threshold_takes_the_frequent() -> None:
    network = facebook_fabric(pods=2, racks=2, machines=2)
    hosts = network.hosts
    known = Knowledge({hosts[0]: {hosts[1]: 0.29, hosts[4]: 0.3, hosts[7]: 1.0}})
    (tree,) = threshold_hops(network, known, Random(0))
    leaves = [host for host in hosts if network.edge_masks[host] & tree]
    assert leaves == [hosts[0], hosts[4], hosts[7]]
    first = {
        name: next(STRATEGIES[name](network, known, Random(0))) for name in ("tree", "path", "threshold")
    }
    assert first["path"] & ~first["threshold"] == 0 == first["threshold"] & ~first["tree"]
    assert first["path"] != first["threshold"] != first["tree"]


def test_three_cycles() -> None:
    """Fig. 6.5: three simple cycles, seven with their combinations; a VT is a cycle less one edge."""
    basis = cycle_basis(THREE_CYCLES)
    assert sorted(cycle.bit_count() for cycle in basis) == [3, 3, 4]
    assert all(is_cycle(THREE_CYCLES, cycle) for cycle in basis)
    trees = list(STRATEGIES["cycles"](THREE_CYCLES, Knowledge(), Random(1)))
    # (b, d, e) and (c, e, f) meet only in e: together they are no simple cycle.
    assert len(trees) == 6
    assert not list(STRATEGIES["cycles"](k_ary_tree(2, 2), Knowledge(), Random(1)))


def test_topological_stars() -> None:
    """Without an effective limit: all combinations of at least two of a switch's links down."""
    network = facebook_fabric(pods=2, racks=3, planes=1, spines=1, machines=2)
    trees = list(STRATEGIES["topological"](network, Knowledge(), Random(0)))
    # 6 racks with 2 machines: 1 each; 2 fabric switches with 3 racks: 4 each; 1 spine with 2 pods: 1
    assert len(trees) == len(set(trees)) == 6 + 2 * 4 + 1


def test_random_variant_halves() -> None:
    network = build([str(n) for n in range(8)], [(n, (n + 1) % 8) for n in range(8)])
    trees = list(islice(STRATEGIES["random-variant"](network, Knowledge(), Random(0)), 7))
    assert trees[0].bit_count() == 7  # all; then two halves, then four pairs
    sizes = [nodes_of(network, tree).bit_count() for tree in trees]
    assert min(sizes[1:3]) >= 4
    assert min(sizes[3:]) >= 2


def test_communities_and_regions() -> None:
    """Two squares with diagonals, joined by one edge."""
    square = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)]
    network = build([str(n) for n in range(8)], [*square, *((a + 4, b + 4) for a, b in square), (3, 4)])
    assert [set(group) for group in communities(network)] == [{0, 1, 2, 3}, {4, 5, 6, 7}]
    assert [group[0] for group in communities(network)] == [3, 4]  # hubs
    drawn = [k_medoids(network, 2, Random(seed)) for seed in range(8)]
    groups = next(found for found in drawn if sorted(map(sorted, found)) == [[0, 1, 2, 3], [4, 5, 6, 7]])
    regions = dense_regions(network, groups, 0.5)
    assert sorted(len(region) for region in regions) == [2, 2]
    assert all(region[0] == group[0] for region, group in zip(regions, groups, strict=True))


@settings(max_examples=30)
@given(networks(12), SEEDS, st.integers(1, 5))
def test_groups_hold_every_node_once(network: Network, seed: int, count: int) -> None:
    for groups in (k_medoids(network, count, Random(seed)), communities(network)):
        assert sorted(node for group in groups for node in group) == list(range(network.node_count))


def test_publishers_share_a_tree_with_fewer_rules_than_a_tree_for_each() -> None:
    """Five publishers on one broadcast tree: the shared tree has all of them and their receivers."""
    network = k_ary_tree(2, 3)
    clients = network.clients
    known = Knowledge({one: dict.fromkeys(set(clients[:6]) - {one}, 0.1) for one in clients[:5]})
    trees = [edges for edges in STRATEGIES["shared"](network, known, Random(1)) if edges]
    starts = roots(network)
    assert len(trees) <= len(starts)
    union = 0
    for edges in trees:
        union |= nodes_of(network, edges)
    assert not mask_of(clients[:6]) & ~union
    each = install(network, 40, STRATEGIES["tree"], known, Random(1))
    one = install(network, 40, STRATEGIES["shared"], known, Random(1))
    assert 0 < one.total <= each.total


def test_the_other_hybrid_takes_frequency_relation_and_partitions_in_turn() -> None:
    network = facebook_fabric(pods=2, racks=2, machines=2)
    known = knowledge_of(network, Random(5))
    # Partitions have no end, so no more than the first of each is asked for.
    firsts = [
        next(STRATEGIES[name](network, known, Random(2))) for name in ("frequency-relation", "partitions")
    ]
    assert list(islice(STRATEGIES["hybrid-partitions"](network, known, Random(2)), 2)) == firsts


def test_the_choice_is_the_best_measured_and_adapts() -> None:
    rng = Random(5)
    network = facebook_fabric(pods=2, racks=2, machines=2)
    known = knowledge_of(network, rng)
    sample = [request(network, publisher, sorted(subs)) for publisher, subs in known.subscribers.items()]
    found = choose(network, 6, known, sample, rng)
    assert found[0].strategy in (
        "tree",
        "relation",
        "threshold",
        "frequency-relation",
    )
    assert found[0].labels == min(measured.labels for measured in found)
    assert {measured.strategy for measured in found} == set(STRATEGIES)
    worst = found[-1].rules
    better = adapt(worst, known, sample, rng)
    assert better is not None
    better[1].rules.check_invariants()
    assert adapt(better[1].rules, known, sample, rng) is None
    assert adapt(worst, known, [], rng) is None
