"""Replication segments: one copy for every leaf, the sharing of a fresh computation, no loss during a
change."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks
from tests.unit.routing.watched import METHODS, ONE_COPY_PER_LINK, Watched, change_somehow, planner

from treecast.middleware.routing.bits import mask_of
from treecast.middleware.routing.network import Network, RoutingError, Unreachable, build
from treecast.middleware.routing.replication.delivery import deliver
from treecast.middleware.routing.replication.forest import Forest
from treecast.middleware.routing.replication.paths import Paths, rendezvous_point
from treecast.middleware.routing.replication.segments import LOCAL, Branch, Segment
from treecast.middleware.routing.replication.shapes import by_gateways, direct
from treecast.middleware.routing.topologies import isp


@settings(max_examples=120, deadline=None)
@given(
    networks(14, least=3), st.integers(0, 10**6), st.sampled_from(METHODS), st.integers(0, 2), st.booleans()
)
def test_every_leaf_gets_one_copy_at_every_moment(
    network: Network, seed: int, method: str, superset: int, hosts: bool
) -> None:
    rng = Random(seed)
    forest = Forest(network, planner(network, method, rng), superset=superset)
    watched = Watched(network, forest, one_copy=method in ONE_COPY_PER_LINK)
    for turn in range(25):
        change_somehow(watched, rng, turn)
    for name in list(forest.groups):
        watched.root(name)
        watched.apply(forest.close(name))
    assert not forest.segments.kept, "a segment is removed with the last group that uses it"


@settings(max_examples=60, deadline=None)
@given(networks(10, least=3, hosts=True), st.integers(0, 10**6), st.sampled_from(METHODS), st.integers(0, 2))
def test_hosts_are_leaves_and_roots_as_well(network: Network, seed: int, method: str, superset: int) -> None:
    rng = Random(seed)
    forest = Forest(network, planner(network, method, rng), superset=superset)
    watched = Watched(network, forest, one_copy=method in ONE_COPY_PER_LINK)
    for turn in range(12):
        change_somehow(watched, rng, turn)
    assert all(not network.is_host[one.segment.node] for one in forest.segments.kept.values())


@settings(max_examples=80, deadline=None)
@given(networks(14, least=3), st.integers(0, 10**6), st.sampled_from(ONE_COPY_PER_LINK))
def test_joins_and_leaves_share_as_well_as_a_fresh_computation(
    network: Network, seed: int, method: str
) -> None:
    rng = Random(seed)
    plan = planner(network, method, rng)
    forest = Forest(network, plan)
    watched = Watched(network, forest, one_copy=True)
    for turn in range(30):
        change_somehow(watched, rng, turn)
    fresh = Forest(network, plan)
    for name, group in forest.groups.items():
        fresh.open(name, group.root, group.leaves)
        fresh.reroute(name, group.avoid)
    assert {kept.key for kept in forest.segments.kept.values()} == {
        kept.key for kept in fresh.segments.kept.values()
    }
    assert len(forest.segments) == len(fresh.segments)


def chain(length: int) -> Network:
    return build([f"n{i}" for i in range(length)], [(i, i + 1) for i in range(length - 1)])


def test_the_papers_example() -> None:
    """Fig. 4: publishers at 2 and 4, subscribers at 5 to 9; B14 and B16 are shared, as the text says."""
    network = isp()
    forest = Forest(network, direct(Paths(network)))
    leaves = mask_of(network.node(f"h{number}") for number in (5, 6, 7, 8, 9))
    first = forest.open("of 2", network.node("h2"), leaves)
    assert {network.names[one.node] for one in first.created} == {"r10", "r14", "r16"}
    second = forest.open("of 4", network.node("h4"), leaves)
    assert [network.names[one.node] for one in second.created] == ["r4"]
    assert {network.names[one.node] for one in second.created[0].branches} == {"r14", "r16"}
    gone = forest.close("of 2")
    assert [network.names[one.node] for one in gone.removed] == ["r10"]
    assert {network.names[one.node] for one in forest.close("of 4").removed} == {"r4", "r14", "r16"}


def test_a_join_writes_what_differs_only() -> None:
    """On a line of ten nodes with leaves at 3, 6 and 9, one leaf joins in between and one leaves."""
    network = chain(10)
    forest = Forest(network, direct(Paths(network)))
    forest.open("a", 0, mask_of([3, 6, 9]))
    join = forest.join("a", 8)
    assert [one.node for one in join.created] == [8]
    assert join.rewritten is not None
    assert join.rewritten.node == 6
    assert not join.entered
    assert not join.removed
    again = forest.join("a", 8)
    assert (again.writes, again.entered, list(again.steps())) == (0, False, [])
    leave = forest.leave("a", 9)
    assert leave.rewritten is not None
    assert (leave.rewritten.node, [one.node for one in leave.removed]) == (6, [8])


def test_what_is_shared_is_not_rewritten() -> None:
    network = chain(10)
    forest = Forest(network, direct(Paths(network)))
    forest.open("a", 0, mask_of([3, 6, 9]))
    shared = forest.open("b", 1, mask_of([3, 6, 9]))
    assert not shared.created
    join = forest.join("b", 8)
    assert [one.node for one in join.created] == [8, 6, 3]
    assert join.entered
    assert not join.removed
    assert not forest.leave("b", 8).created
    assert len(forest.segments) == 2


def test_a_node_with_more_than_64_branches_copies_to_itself_first() -> None:
    network = build([f"n{i}" for i in range(200)], [(0, i) for i in range(1, 200)])
    forest = Forest(network, direct(Paths(network)))
    watched = Watched(network, forest, one_copy=True)
    watched.roots["a"] = 1
    watched.apply(forest.open("a", 1, mask_of(range(2, 66))))
    assert len(forest.segments) == 1
    watched.apply(forest.join("a", 66))
    watched.apply(forest.join("a", 0))
    watched.apply(forest.set_leaves("a", mask_of(range(200)) & ~2))
    assert len(forest.segments) == 5
    assert {one.segment.node for one in forest.segments.kept.values()} == {0}


def test_a_superset_saves_a_segment_and_is_cut_to_measure_when_it_is_alone() -> None:
    network = chain(10)
    forest = Forest(network, direct(Paths(network)), superset=2)
    forest.open("a", 0, mask_of([5, 7, 8, 9]))
    taken = forest.open("b", 1, mask_of([5, 8, 9]))
    assert not taken.created
    assert forest.unwanted("b") == 1 << 7
    forest.close("a")
    assert forest.unwanted("b") == 1 << 7, "nothing is written for an unchanged group"
    forest.join("b", 6)
    assert not forest.unwanted("b")


def test_a_superset_never_sends_to_the_root() -> None:
    network = chain(6)
    forest = Forest(network, direct(Paths(network)), superset=2)
    forest.open("a", 2, mask_of([0, 1, 3, 4, 5]))
    other = forest.open("b", 1, mask_of([3, 4, 5]))
    assert other.entry is not None
    assert not forest.unwanted("b") >> 1 & 1


def test_what_is_refused_changes_nothing() -> None:
    network = build("abcd", [(0, 1), (2, 3)])
    forest = Forest(network, direct(Paths(network)))
    forest.open("a", 0, 1 << 1)
    for wrong in (
        lambda: forest.open("a", 0, 1),
        lambda: forest.open("b", 0, 1 << 4),
        lambda: forest.open("b", 4, 1),
        lambda: forest.join("b", 1),
        lambda: forest.join("a", 2),
        lambda: forest.reroute("a", 1),
        lambda: forest.close("b"),
    ):
        with pytest.raises(RoutingError):
            wrong()
        assert list(forest.groups) == ["a"]
        assert forest.groups["a"].entry == Branch((0,), 1, LOCAL)
    with pytest.raises(Unreachable):
        rendezvous_point(Paths(network), network.clients)
    with pytest.raises(RoutingError, match="two zones"):
        by_gateways(Paths(network), [[0, 1], [1]])


def test_a_leaf_behind_links_that_are_avoided_is_served_all_the_same() -> None:
    network = build("abcd", [(0, 1), (1, 2), (2, 0), (2, 3)])
    forest = Forest(network, direct(Paths(network)))
    forest.open("a", 0, 1 << 2)
    forest.reroute("a", 1 << network.link(0, 2) | 1 << network.link(2, 3))
    assert forest.links_of("a") == 1 << network.link(0, 1) | 1 << network.link(1, 2)
    forest.join("a", 3)
    assert forest.links_of("a") == 1 << network.link(0, 2) | 1 << network.link(2, 3)
    assert not forest.groups["a"].avoid


def test_delivery_sees_what_is_wrong() -> None:
    network = chain(4)
    out, back = network.link(0, 1), network.link(1, 0)
    held = {
        1: Segment(1, 1, True, (Branch((back,), 0, 2),)),
        2: Segment(2, 0, False, (Branch((out,), 1, 1),)),
    }
    with pytest.raises(RoutingError, match="go round"):
        deliver(network, held, 0, Branch((out,), 1, 1))
    with pytest.raises(RoutingError, match="does not know"):
        deliver(network, held, 0, Branch((out,), 1, 3))
    with pytest.raises(RoutingError, match="does not know"):
        deliver(network, held, 0, Branch((out,), 1, 2))
    with pytest.raises(RoutingError, match="jumps"):
        deliver(network, held, 0, Branch((back,), 1, 1))
    with pytest.raises(RoutingError, match="ends at"):
        deliver(network, held, 0, Branch((out,), 2, 1))
