"""Unique shortest paths, segment lists that pin a path, and Algorithm 1 as printed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks

from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network, Unreachable, build
from treecast.middleware.routing.replication.algorithm1 import (
    AS_MEANT,
    AS_PRINTED,
    MENDED,
    Existing,
    Outcome,
    Reading,
    Reverse,
    missed,
    replication_segments,
    strays,
)
from treecast.middleware.routing.replication.forest import Forest
from treecast.middleware.routing.replication.paths import Paths, marks, rendezvous_point
from treecast.middleware.routing.replication.pinning import Pinning, Waypoint
from treecast.middleware.routing.replication.shapes import direct
from treecast.middleware.routing.rooted import distances

GRID = build(
    [f"n{i}" for i in range(9)],
    [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8), (0, 3), (3, 6), (1, 4), (4, 7), (2, 5), (5, 8)],
)


@settings(max_examples=60)
@given(networks(14))
def test_a_part_of_a_shortest_path_is_one_and_the_way_back_is_the_same(network: Network) -> None:
    paths = Paths(network)
    for start in range(network.node_count):
        far = distances(network, start)
        assert paths.hops(start) == far
        for end in range(network.node_count):
            way = paths.path(start, end)
            assert len(way) == far[end]
            assert tuple(link ^ 1 for link in reversed(way)) == paths.path(end, start)
            for cut, link in enumerate(way):
                assert paths.path(network.tails[link], end) == way[cut:]


def test_ties_are_broken_by_marks_and_by_salt() -> None:
    assert len(set(marks(GRID))) == len(marks(GRID))
    assert {len(Paths(GRID, salt).path(0, 8)) for salt in range(8)} == {4}
    assert len({Paths(GRID, salt).path(0, 8) for salt in range(8)}) > 2


@settings(max_examples=40)
@given(networks(12, least=3), st.integers(0, 10**6))
def test_paths_avoid_links_in_one_direction(network: Network, seed: int) -> None:
    avoid = mask_of(Random(seed).sample(range(len(network.tails)), 2))
    graph = nx.DiGraph(
        [(network.tails[n], network.heads[n]) for n in range(len(network.tails)) if not avoid >> n & 1]
    )
    graph.add_nodes_from(range(network.node_count))
    paths = Paths(network)
    for end in range(1, network.node_count):
        there = nx.has_path(graph, 0, end)
        assert paths.reachable(0, 1 << end, avoid) is there
        if not there:
            with pytest.raises(Unreachable):
                paths.path(0, end, avoid)
            continue
        way = paths.path(0, end, avoid)
        assert len(way) == nx.shortest_path_length(graph, 0, end)
        assert not mask_of(way) & avoid


def test_the_rendezvous_point_is_the_nearest_to_all() -> None:
    assert rendezvous_point(Paths(GRID), list(range(9))) == 4
    assert rendezvous_point(Paths(GRID), [0, 1]) == 0


def test_networks_without_hosts_inside_paths() -> None:
    """A host is the end of a path and never inside one, whatever it is linked to."""
    network = build("abch", [(0, 1), (1, 2), (0, 3)], hosts=[3])
    assert Paths(network).hops(3) == [1, 2, 3, 0]


@settings(max_examples=60)
@given(networks(12, least=3), st.integers(0, 10**6))
def test_a_segment_list_leaves_routers_one_way_only(network: Network, seed: int) -> None:
    """Routers that know all shortest paths follow the list; each of their choices is on the path."""
    rng = Random(seed)
    graph = nx.Graph(network.ends)
    way: list[int] = []
    node = rng.randrange(network.node_count)
    seen = {node}
    for _ in range(6):
        onward = [link for link in network.out[node] if network.heads[link] not in seen]
        if not onward:
            break
        way.append(rng.choice(onward))
        node = network.heads[way[-1]]
        seen.add(node)
    if not way:
        return
    place, gone = network.tails[way[0]], []
    for one in [*Pinning(network).segment_list(tuple(way)), Waypoint(node)]:
        (found,) = list(nx.all_shortest_paths(graph, place, one.node))
        gone += [network.link(a, b) for a, b in pairwise(found)]
        place = one.node
        if one.link >= 0:
            gone.append(one.link)
            place = network.heads[one.link]
    assert gone == way


def test_segment_lists_of_a_grid() -> None:
    links = [GRID.link(a, b) for a, b in ((0, 1), (1, 2), (2, 5), (5, 8))]
    assert Pinning(GRID).segment_list(tuple(links)) == (Waypoint(2),)
    assert Pinning(GRID).segment_list(tuple(links[:2])) == ()
    assert Pinning(GRID).segment_list(()) == ()
    triangle = build("abcd", [(0, 1), (1, 2), (0, 3), (3, 2), (0, 2)])
    detour = (triangle.link(0, 1), triangle.link(1, 2))
    assert Pinning(triangle).segment_list(detour) == (Waypoint(1),)


def reached(tree: Reverse, outcome: Outcome) -> Counter[int]:
    """Counts the leaves that a tree's segments serve; the root sends to segments to which no other leads."""
    led_to = {id(below) for one in outcome.segments.values() for below in one.branches.values()}
    tops = {id(one): one for one in outcome.segments.values() if id(one) not in led_to}
    return Counter(node for one in tops.values() for node in one.delivers())


def groups(network: Network, rng: Random, count: int) -> list[tuple[int, int]]:
    nodes = range(network.node_count)
    return [(rng.choice(nodes), mask_of(rng.sample(nodes, rng.randint(2, len(nodes))))) for _ in range(count)]


@settings(max_examples=60, deadline=None)
@given(networks(12, least=4), st.integers(0, 10**6))
def test_the_mended_algorithm_and_the_forest_make_the_same_segments(network: Network, seed: int) -> None:
    """The plain form serves as the reference of the real one."""
    paths, existing = Paths(network), Existing()
    forest = Forest(network, direct(paths))
    for number, (root, leaves) in enumerate(groups(network, Random(seed), 12)):
        tree = Reverse(network, paths.arrivals(root), root, leaves)
        outcome = replication_segments(tree, existing)
        forest.open(number, root, leaves)
        if outcome.segments:
            assert reached(tree, outcome) == Counter(members(leaves))
    assert set(existing) == {kept.key for kept in forest.segments.kept.values()}


def trees_that_miss(reading: Reading, *, transit: bool) -> int:
    """Returns how many of 200 trees on the grid miss a leaf; `transit`: leaves may be on others' paths."""
    rng, existing, paths, wrong = Random(1), Existing(), Paths(GRID), 0
    for root, leaves in groups(GRID, rng, 200):
        tree = Reverse(GRID, paths.arrivals(root), root, leaves)
        if not transit:
            ends = mask_of(node for node in members(leaves) if not tree.children[node] and node != root)
            tree = Reverse(GRID, paths.arrivals(root), root, ends)
        wrong += bool(missed(tree, replication_segments(tree, existing, reading)))
    return wrong


def test_as_printed_receivers_are_missed() -> None:
    assert trees_that_miss(AS_PRINTED, transit=False) > 5
    assert trees_that_miss(AS_MEANT, transit=False) == 0
    assert trees_that_miss(MENDED, transit=False) == 0


def test_with_found_set_back_nobody_is_missed_wherever_members_are() -> None:
    assert trees_that_miss(AS_PRINTED, transit=True) > 5
    assert trees_that_miss(AS_MEANT, transit=True) == 0
    assert trees_that_miss(MENDED, transit=True) == 0


def test_a_member_on_the_way_has_a_branch_from_farther_up() -> None:
    """0 sends to 1, to 2 and to the segment of 2, which has the leaves 3 and 4 behind it and is a leaf
    itself."""
    network = build("abcdef", [(5, 0), (0, 1), (0, 2), (2, 3), (2, 4)])
    tree = Reverse(network, Paths(network).arrivals(5), 5, mask_of([1, 2, 3, 4]))
    for reading, branches in ((AS_MEANT, {(1, 2), (2, 4), (2, 24)}), (MENDED, {(1, 2), (2, 28)})):
        found = replication_segments(tree, Existing(), reading)
        assert set(found.segments[0].branches) == branches
        assert reached(tree, found) == Counter([1, 2, 3, 4])


def test_equal_leaves_are_no_equal_subtrees_where_ties_are_broken_at_random() -> None:
    """Two trees go different ways behind one node; otherwise the second would take the first's segment."""
    network = build(
        [f"n{i}" for i in range(8)], [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (4, 6), (1, 7)]
    )
    leaves = mask_of([5, 6, 7])
    ways = {Paths(network, salt).path(1, 4): salt for salt in range(20)}
    assert len(ways) == 2
    for reading, segments in ((AS_MEANT, 2), (MENDED, 3)):
        existing = Existing()
        for salt in ways.values():
            tree = Reverse(network, Paths(network, salt).arrivals(0), 0, leaves)
            outcome = replication_segments(tree, existing, reading)
        assert len(existing) == segments
        assert strays(tree, outcome) is (reading is AS_MEANT)


def test_the_root_and_members_on_the_way_are_branches_only_where_it_is_mended() -> None:
    star = build("abcd", [(0, 1), (0, 2), (0, 3)])
    line = build("abcd", [(0, 1), (1, 2), (2, 3)])
    for network, leaves in ((star, mask_of([1, 2, 3])), (line, mask_of([2, 3]))):
        for reading, count in ((AS_MEANT, 0), (MENDED, 1)):
            tree = Reverse(network, Paths(network).arrivals(0), 0, leaves)
            assert len(replication_segments(tree, Existing(), reading).segments) == count


def test_a_leaf_out_of_reach_is_refused() -> None:
    network = build("abc", [(0, 1)])
    with pytest.raises(Unreachable):
        Reverse(network, Paths(network).arrivals(0), 0, 1 << 2)
