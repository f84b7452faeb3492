"""Trials of links that trees of replication segments avoid: loads are sums over the trees' copies, a trial
depends on its arguments alone, and trees leave a busy link where there is another way."""

from __future__ import annotations

from collections import Counter
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings
from tests.unit.routing.networks import networks, receivers_of

from treecast.middleware.routing.bits import mask_of
from treecast.middleware.routing.network import Network, RoutingError, build
from treecast.middleware.routing.replication.candidates import (
    SHORTEST,
    SPREAD,
    Group,
    busiest,
    judge,
    loads,
    planned,
    spread,
    trials,
    writes,
)
from treecast.middleware.routing.replication.forest import Forest
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.routing.replication.ways import Ways
from treecast.middleware.routing.virtual.candidates import PRESENT, Trial, best


def ring() -> Network:
    """Returns six routers in a ring, with a host each."""
    edges = [(n, (n + 1) % 6) for n in range(6)] + [(n, 6 + n) for n in range(6)]
    return build([f"r{n}" for n in range(6)] + [f"h{n}" for n in range(6)], edges, hosts=range(6, 12))


def ways_of(network: Network) -> Ways:
    return Ways(network, Paths(network))


def drawn(network: Network, rng: Random, count: int = 6) -> dict[Group, float]:
    found: dict[Group, float] = {}
    for _ in range(count):
        root, receivers = receivers_of(network, rng)
        found[root, tuple(receivers)] = float(rng.randint(1, 100))
    return found


@settings(max_examples=20, deadline=None)
@given(networks(8, hosts=True, least=3), st.integers(0, 10**6), st.sampled_from((0.3, 0.6, 0.9)))
def test_loads_are_those_of_a_forest_with_the_same_trees(network: Network, seed: int, share: float) -> None:
    """The reference opens all groups in one forest, and adds up what each sends over each link."""
    ways, sent = ways_of(network), drawn(network, Random(seed))
    avoid = spread(ways, sent, share)
    forest, found = Forest(network, ways.plan), Counter[int]()
    for (root, receivers), weight in sent.items():
        forest.open((root, receivers), root, mask_of(receivers), avoid.get((root, receivers), 0))
        for link, copies in forest.copies_of((root, receivers)).items():
            ends = (network.tails[link], network.heads[link])
            if not any(network.is_host[end] for end in ends):
                found[link] += int(weight) * copies
    assert loads(ways, sent, avoid) == dict(found)
    assert busiest(ways, sent, avoid) == max(found.values(), default=0) / sum(sent.values())


@settings(max_examples=20, deadline=None)
@given(networks(8, hosts=True, least=3), st.integers(0, 10**6))
def test_what_a_trial_leaves_is_never_busier_and_costs_nothing_to_keep(network: Network, seed: int) -> None:
    ways, rng = ways_of(network), Random(seed)
    sent = drawn(network, rng)
    groups = sorted(sent)
    for one in trials((0.3, 0.6, 0.9)):
        first = judge(ways, groups, {}, sent, sent, one)
        assert first == judge(ways_of(network), groups, {}, dict(reversed(sent.items())), sent, one)
        assert first.labels <= busiest(ways, sent, {})
        after = dict(zip(groups, first.trees, strict=True))
        assert writes(ways, groups, after, after) == (first.rules, 0)
        assert writes(ways, groups, {}, after) == (first.rules, first.writes)


def test_trees_leave_a_link_that_all_of_them_cross() -> None:
    network = ring()
    ways, at = ways_of(network), network.node
    # Both cross r1-r2; the second could go around by the other half of the ring.
    sent = {(at("h1"), (at("h2"),)): 100.0, (at("h0"), (at("h2"), at("h3"))): 90.0}
    assert busiest(ways, sent, {}) == 1.0
    judged = [judge(ways, sorted(sent), {}, sent, sent, one) for one in trials((0.3, 0.6, 0.9))]
    chosen = best(judged)
    assert chosen is not None
    assert chosen.trial.strategy == SPREAD
    assert chosen.labels == 100 / 190
    assert chosen.writes > 0
    avoid = dict(zip(sorted(sent), chosen.trees, strict=True))
    for group in sent:
        tree, _ = planned(ways, group, avoid[group])
        ends = {network.heads[link] for link in range(12) if tree.links >> link & 1}
        assert {network.switch_of(host) for host in group[1]} <= ends


def test_the_present_ways_and_the_shortest_are_trials_of_their_own() -> None:
    network = ring()
    ways, at = ways_of(network), network.node
    group = (at("h1"), (at("h2"),))
    around = 1 << network.link(at("r1"), at("r2"))
    here = judge(ways, [group], {group: around}, {group: 1.0}, {group: 1.0}, Trial(PRESENT, 0.0, 0))
    assert (here.trees, here.writes, here.labels) == ((around,), 0, 1.0)
    back = judge(ways, [group], {group: around}, {group: 1.0}, {group: 1.0}, Trial(SHORTEST, 0.0, 0))
    assert back.trees == (0,)


def test_a_set_that_nothing_leads_to_loads_no_link_and_an_unknown_strategy_is_a_fault() -> None:
    network = ring()
    ways, at = ways_of(network), network.node
    ways.down = (1 << 12) - 1
    group = (at("h1"), (at("h2"),))
    assert loads(ways, {group: 5.0}, {}) == {}
    assert writes(ways, [group], {}, {group: 1}) == (0, 0)
    assert spread(ways, {group: 5.0}, 0.5) == {}
    assert "no strategy" in judge(ways, [group], {}, {}, {}, Trial("hybrid", 0.3, 1)).fault


def test_a_way_around_that_is_cut_gives_way_to_the_shortest() -> None:
    network = ring()
    ways, at = ways_of(network), network.node
    group = (at("h1"), (at("h2"),))
    around = 1 << network.link(at("r1"), at("r2"))
    ways.down = 0b11 << network.link(at("r3"), at("r4")) // 2 * 2
    tree, avoids = planned(ways, group, around)
    assert avoids == 0
    assert tree.links & around
    ways.down = mask_of(range(12))
    try:
        planned(ways, group, 0)
    except RoutingError:
        return
    raise AssertionError("no link leads there")
