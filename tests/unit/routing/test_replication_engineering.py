"""Trees leave links above a threshold, return below another, and never move onto a full link."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks, random_network
from tests.unit.routing.watched import METHODS, ONE_COPY_PER_LINK, Watched, arrived, planner

from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.replication.delivery import deliver
from treecast.middleware.routing.replication.engineering import Engineer
from treecast.middleware.routing.replication.forest import Forest
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.routing.replication.shapes import direct
from treecast.middleware.routing.topologies import isp

MBIT = 1e6


def engineered(network: Network) -> tuple[Forest, Engineer]:
    forest = Forest(network, direct(Paths(network)))
    return forest, Engineer(forest, [100 * MBIT] * len(network.tails))


def test_the_papers_experiment() -> None:
    """Fig. 10: 17 Mbit/s from host 2 to hosts 5, 7 and 8; background fills link 12-16; the tree uses 12-4 and
    4-16."""
    network = isp()
    forest, engineer = engineered(network)
    full, detour = network.link(11, 15), mask_of([network.link(11, 3), network.link(3, 15)])
    forest.open("stream", network.node("h2"), mask_of(network.node(f"h{n}") for n in (5, 7, 8)))
    assert {network.names[one.segment.node] for one in forest.segments.kept.values()} == {"r10", "r16"}
    assert forest.links_of("stream") >> full & 1
    background = [0.0] * len(network.tails)
    rates = {"stream": 17 * MBIT}
    for megabits, moved in (
        (0, False),
        (48, False),
        (49, True),
        (120, True),
        (60, True),
        (34, True),
        (33, False),
    ):
        background[full] = megabits * MBIT
        before = forest.links_of("stream")
        found = engineer.balance(background, rates)
        links = forest.links_of("stream")
        assert (links & detour == detour) is moved, megabits
        assert (links >> full & 1 == 0) is moved, megabits
        assert len(found.changes) == (before != links)
        assert found.hot == ((full,) if background[full] > 65 * MBIT else ())
    assert engineer.load(background, rates)[full] == 50 * MBIT


def test_where_there_is_no_other_way_it_stays() -> None:
    network = isp()
    forest, engineer = engineered(network)
    forest.open("stream", network.node("h2"), 1 << network.node("h7"))
    only = network.link(network.node("r16"), network.node("r7"))
    background = [0.0] * len(network.tails)
    background[only] = 90 * MBIT
    found = engineer.balance(background, {"stream": 17 * MBIT})
    assert found.changes == ()
    assert found.hot == (only,)


def twin(watched: Watched, background: list[float], rates: dict[object, float]) -> list[float]:
    """The plain reference: sends a packet of each group, and counts it on every link that it crosses."""
    found = list(background)
    for name, rate in rates.items():
        sent = arrived(watched.network, watched.forest, watched.held, name, watched.root(name))
        for link, copies in sent.copies.items():
            for _ in range(copies):
                found[link] += rate
    return found


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40, deadline=None)
@given(networks(12, least=4), st.integers(0, 10**6))
def test_no_move_makes_another_link_too_full_nor_loses_a_packet(
    method: str, network: Network, seed: int
) -> None:
    rng = Random(seed)
    forest = Forest(network, planner(network, method, rng))
    capacity = [rng.choice([50.0, 100.0]) for _ in network.tails]
    engineer = Engineer(forest, capacity)
    watched = Watched(network, forest, one_copy=method in ONE_COPY_PER_LINK)
    rates: dict[object, float] = {}
    for number in range(6):
        root = rng.randrange(network.node_count)
        watched.roots[number] = root
        leaves = mask_of(rng.sample(range(network.node_count), rng.randint(1, 4)))
        watched.apply(forest.open(number, root, leaves))
        rates[number] = rng.choice([5.0, 10.0, 20.0])
    for _ in range(6):
        background = [rng.choice([0.0, 0.0, 20.0, 70.0]) for _ in network.tails]
        before = engineer.load(background, rates)
        assert before == pytest.approx(twin(watched, background, rates))
        copy = dict(forest.groups)
        found = engineer.balance(background, rates)
        after = engineer.load(background, rates)
        for link, (old, new) in enumerate(zip(before, after, strict=True)):
            assert new <= max(old, engineer.high * capacity[link]) + 1e-9
        assert len({change.group for change in found.changes}) == len(found.changes)
        for change in found.changes:
            assert copy[change.group].leaves == forest.groups[change.group].leaves
            for step in change.steps():
                watched.held.do(change.group, step)
        watched.check_all()
        sent = twin(watched, background, rates)
        assert after == pytest.approx(sent)
        assert found.hot == tuple(n for n in members((1 << len(sent)) - 1) if sent[n] > 0.65 * capacity[n])


def most_copies(network: Network, forest: Forest, root: int) -> tuple[int, int]:
    """Returns the link with the most copies of a packet of group 0, and their number."""
    held = {number: one.segment for number, one in forest.segments.kept.items()}
    copies = deliver(network, held, root, forest.groups[0].entry).copies
    return max(copies.items(), key=lambda found: found[1])


def tree_with_two_copies() -> tuple[Network, Forest, int]:
    """Returns a network, a forest with group 0 of a gateway tree, and a link that carries two copies."""
    for seed in range(500):
        rng = Random(seed)
        network = random_network(seed, 12, 8)
        forest = Forest(network, planner(network, "gateways", rng))
        root, *leaves = rng.sample(range(network.node_count), 6)
        forest.open(0, root, mask_of(leaves))
        link, most = most_copies(network, forest, root)
        if most == 2:
            return network, forest, link
    raise AssertionError("no gateway tree carries two copies on a link")


def test_two_copies_of_a_gateway_tree_load_a_link_twice() -> None:
    network, forest, link = tree_with_two_copies()
    nothing = [0.0] * len(network.tails)
    engineer = Engineer(forest, [10.0] * len(network.tails))
    assert engineer.load(nothing, {0: 4.0})[link] == 8.0
    found = engineer.balance(nothing, {0: 4.0})
    assert (len(found.changes), found.hot) == (1, ())  # 80 % before
    assert max(engineer.load(nothing, {0: 4.0})) == 4.0


def test_a_gateway_tree_returns_only_where_both_copies_have_room() -> None:
    network, forest, link = tree_with_two_copies()
    nothing = [0.0] * len(network.tails)
    engineer = Engineer(forest, [10.0] * len(network.tails))
    engineer.balance(nothing, {0: 4.0})
    assert engineer.balance(nothing, {0: 3.0}).changes == ()  # 60 % with two copies: above `low`
    assert len(engineer.balance(nothing, {0: 2.0}).changes) == 1
    assert engineer.load(nothing, {0: 2.0})[link] == 4.0


def test_settings_that_make_no_sense() -> None:
    network = isp()
    forest = Forest(network, direct(Paths(network)))
    with pytest.raises(ValueError, match="thresholds"):
        Engineer(forest, [1.0], high=0.4, low=0.5)
    with pytest.raises(ValueError, match="capacity"):
        Engineer(forest, [0.0])
