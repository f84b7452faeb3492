"""The schemes of chapters 3 and 4: each stack delivers once to each receiver and to nobody else."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks, receivers_of

from treecast.middleware.routing.forwarding import Outcome, faults, simulate
from treecast.middleware.routing.network import Network, RoutingError, build, with_hosts
from treecast.middleware.routing.schemes.common import branch, delivery_tree
from treecast.middleware.routing.schemes.destinations import Destinations
from treecast.middleware.routing.schemes.hops import Hops
from treecast.middleware.routing.schemes.mixed import Ability, Mixed, Way
from treecast.middleware.routing.schemes.split import split
from treecast.middleware.routing.schemes.stored import Hybrid, publisher_tree, replacements
from treecast.middleware.routing.schemes.switch_bitmask import SwitchBitmask
from treecast.middleware.routing.schemes.switch_group import SwitchGroup, group_count
from treecast.middleware.routing.schemes.switch_port import SwitchPort
from treecast.middleware.routing.schemes.tunnel import TUNNEL_BYTES, overlay
from treecast.middleware.wire.label_stack import decode_labels, encode_labels
from treecast.middleware.wire.label_stack_entries import Entry, EntryFormat

SEEDS = st.integers(0, 10**6)
WIDE = EntryFormat(8, 24)


def abilities(network: Network, rng: Random) -> dict[int, Ability]:
    """Gives some switches bitmasks and some a few groups."""
    found = {}
    for switch in network.switches:
        ports = len(network.out[switch])
        groups = {number: rng.randrange(1, 1 << ports) for number in range(1, 4)}
        if rng.random() < 0.8:
            found[switch] = Ability(bitmask=rng.random() < 0.5, groups=groups if rng.random() < 0.7 else None)
    return found


def entry_schemes(network: Network, rng: Random) -> dict[str, Any]:
    return {
        "predictive": SwitchPort(network),
        "reactive": SwitchPort(network, predictive=False),
        "bitmask": SwitchBitmask(network, form=WIDE),
        "group": SwitchGroup(network, form=WIDE),
        "group, 2": SwitchGroup(network, subsets=2, form=WIDE),
        "group, all": SwitchGroup(network, subsets=max(map(len, network.out)), form=WIDE),
        "mixed": Mixed(network, abilities(network, rng), form=EntryFormat(14, 24, 2)),
        "hops": Hops(network),
        "destinations": Destinations(network),
    }


@settings(max_examples=60)
@given(networks(10, hosts=True), SEEDS)
def test_entry_schemes_deliver_exactly_once(network: Network, seed: int) -> None:
    rng = Random(seed)
    source, receivers = receivers_of(network, rng)
    tree = delivery_tree(network, source, receivers)
    sizes: dict[str, Outcome] = {}
    for name, scheme in entry_schemes(network, rng).items():
        stack, _ = scheme.form.decode(scheme.form.encode(scheme.encode(source, tree)))
        sizes[name] = outcome = simulate(network, scheme, source, stack, payload=50)
        assert faults(network, source, receivers, outcome) == [], name
        if name not in ("hops", "destinations"):
            assert outcome.packets == tree.bit_count(), name
    assert sizes["predictive"].bytes <= sizes["reactive"].bytes
    assert sum(sizes["group"].lookups.values()) <= sum(sizes["bitmask"].lookups.values())


@settings(max_examples=60)
@given(networks(10, hosts=True), SEEDS, st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]), st.booleans())
def test_hybrid_delivers_exactly_once_for_any_stable_share(
    network: Network, seed: int, share: float, clean_up: bool
) -> None:
    rng = Random(seed)
    source, potential = receivers_of(network, rng)
    rng.shuffle(potential)
    stable = potential[: round(share * len(potential))]
    dynamic = potential[len(stable) :]
    wanted = [*stable, *rng.sample(dynamic, rng.randint(0, len(dynamic)))] or potential
    hybrid = Hybrid(network, clean_up=clean_up)
    hybrid.subscribe(source, publisher_tree(network, source, potential), stable)
    labels = hybrid.encode(source, publisher_tree(network, source, wanted))
    stack, _ = decode_labels(encode_labels(labels))
    assert faults(network, source, wanted, simulate(network, hybrid, source, stack)) == []
    if share == 1.0:
        assert len(stack) == 1
    if len(stable) > 1:
        with pytest.raises(RoutingError):
            hybrid.encode(source, publisher_tree(network, source, stable[:-1]))


def test_thesis_example_of_pruning() -> None:
    """Fig. 3.4: with predictive pruning N3 gets nothing from N2, with reactive pruning it does."""
    #       P - N1 - N3 - (a, b), N1 - N2 - c
    network = build(
        ["N1", "N2", "N3", "P", "a", "b", "c"],
        [(0, 3), (0, 2), (0, 1), (2, 4), (2, 5), (1, 6)],
        hosts=[3, 4, 5, 6],
    )
    tree = delivery_tree(network, 3, [4, 5, 6])
    predictive, reactive = SwitchPort(network), SwitchPort(network, predictive=False)
    stack = predictive.encode(3, tree)
    assert stack == [Entry(0, 2), Entry(2, 2), Entry(2, 3), Entry(0, 3), Entry(1, 2)]
    copies, _ = predictive.forward(0, 1, stack)
    assert [its for _, its in copies] == [[Entry(2, 2), Entry(2, 3)], [Entry(1, 2)]]
    copies, _ = reactive.forward(0, 1, stack)
    assert [its for _, its in copies] == [stack[1:], [Entry(1, 2)]]
    assert SwitchBitmask(network).encode(3, tree) == [Entry(0, 0b110), Entry(2, 0b110), Entry(1, 0b10)]


def test_hops_where_a_grandchild_is_a_neighbour() -> None:
    """As printed, the first switch would serve c twice: by its own link and through b."""
    network = with_hosts(build(["a", "b", "c"], [(0, 1), (1, 2), (0, 2)]))
    hosts = network.hosts
    tree = delivery_tree(network, hosts[0], [hosts[1], hosts[2]]) & ~0b111 | 0b011  # over b to c
    scheme = Hops(network)
    outcome = simulate(network, scheme, hosts[0], scheme.encode(hosts[0], tree))
    assert faults(network, hosts[0], hosts[1:], outcome) == []
    printed = [Entry(0, node) for node in (1, hosts[1], 2, hosts[2])]  # preorder of the tree itself
    outcome = simulate(network, scheme, hosts[0], printed)
    assert outcome.copies[network.link(0, 2)] == 1  # the printed form takes c for a neighbour of a
    deeper = [Entry(0, node) for node in (1, 2, hosts[2], hosts[1])]
    assert faults(network, hosts[0], hosts[1:], simulate(network, scheme, hosts[0], deeper)) != []


def test_group_counts_of_the_thesis() -> None:
    assert group_count(16) == 65535
    assert group_count(16, 2) == 510
    star = build([str(n) for n in range(6)], [(0, n) for n in range(1, 6)], hosts=range(1, 6))
    for subsets in (0, 6):
        with pytest.raises(RoutingError):
            SwitchGroup(star, subsets=subsets)


def test_mixed_prefers_groups_then_bitmasks() -> None:
    star = build([str(n) for n in range(6)], [(0, n) for n in range(1, 6)], hosts=range(1, 6))
    tree = delivery_tree(star, 1, [2, 3])
    assert Mixed(star, {0: Ability(groups={7: 0b110})}).encode(1, tree) == [Entry(0, 7, Way.GROUP)]
    assert Mixed(star, {0: Ability()}).encode(1, tree) == [Entry(0, 0b110, Way.BITMASK)]
    assert Mixed(star, {}).encode(1, tree) == [Entry(0, 2, Way.PORT), Entry(0, 3, Way.PORT)]


@settings(max_examples=40)
@given(networks(10, hosts=True), SEEDS, st.integers(6, 60))
def test_splitting(network: Network, seed: int, room: int) -> None:
    rng = Random(seed)
    source, receivers = receivers_of(network, rng)
    tree = delivery_tree(network, source, receivers)
    scheme = SwitchPort(network)
    try:
        parts = split(network, source, tree, room, lambda edges: scheme.size(scheme.encode(source, edges)))
    except RoutingError:
        alone = [branch(network, tree, source, [one]) for one in receivers]
        assert any(scheme.size(scheme.encode(source, edges)) > room for edges in alone)
        return
    assert sorted(one for _, part in parts for one in part) == receivers
    for edges, part in parts:
        stack = scheme.encode(source, edges)
        assert scheme.size(stack) <= room
        assert faults(network, source, part, simulate(network, scheme, source, stack)) == []


@settings(max_examples=40)
@given(networks(10, hosts=True), SEEDS)
def test_tunnels_through_legacy_switches(network: Network, seed: int) -> None:
    rng = Random(seed)
    switches = network.switches
    legacy = rng.sample(switches, rng.randint(0, len(switches) - 1))
    over = overlay(network, legacy)
    source, receivers = receivers_of(over.network, rng)
    scheme = SwitchPort(over.network)
    stack = scheme.encode(source, delivery_tree(over.network, source, receivers))
    outcome = simulate(over.network, scheme, source, stack)
    assert faults(over.network, source, receivers, outcome) == []
    for link, way in enumerate(over.under):
        ends = [over.network.names[over.network.tails[link]], over.network.names[over.network.heads[link]]]
        assert [network.names[network.tails[way[0]]], network.names[network.heads[way[-1]]]] == ends
        assert [network.heads[one] for one in way[:-1]] == [network.tails[one] for one in way[1:]]
        assert {network.heads[one] for one in way[:-1]} <= set(legacy)
    below = over.bytes_below(outcome)
    tunnels = sum(len(over.under[link]) for link in outcome.copies if len(over.under[link]) > 1)
    assert sum(below.values()) >= outcome.bytes + tunnels * TUNNEL_BYTES


def test_overlay_refuses() -> None:
    network = with_hosts(build(["a", "b"], [(0, 1)]))
    for legacy in ([0, 1], [2]):
        with pytest.raises(RoutingError):
            overlay(network, legacy)


def test_replacements_of_subscribers() -> None:
    """Fig. 4.8: HEAD costs nothing while it replaces dynamic subscribers, RULE from the start; all end
    alike."""
    rng = Random(3)
    network = with_hosts(build([str(n) for n in range(40)], [(rng.randrange(n), n) for n in range(1, 40)]))
    source, *others = network.hosts
    rng.shuffle(others)
    stable, newcomers = others[:14], others[19:39]  # six more are dynamic
    places = list(range(20))
    head = replacements(network, source, stable, newcomers, [*places[14:], *places[:14]])
    # The same newcomers for the same places, so that the sums are comparable.
    rule = replacements(network, source, stable, [*newcomers[6:], *newcomers[:6]], places)
    assert head[:6] == [0] * 6
    assert rule[0] > 0
    assert head[-1] == rule[-1]


def test_refusals() -> None:
    network = with_hosts(build(["a", "b"], [(0, 1)]))
    for source, receivers in ((0, [3]), (2, [2]), (2, []), (2, [1])):
        with pytest.raises(RoutingError):
            delivery_tree(network, source, receivers)
    large = with_hosts(build([str(n) for n in range(300)], [(0, n) for n in range(1, 300)]))
    with pytest.raises(RoutingError, match="wider"):
        SwitchPort(large)
    with pytest.raises(RoutingError):
        Hops(large, form=EntryFormat(0, 8))
