"""The graph-level model of a scheme and its P4 program: every packet, port and byte, and every pass."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks, random_network, receivers_of
from tests.unit.routing.test_virtual import random_rules
from tests.unit.trees.schemes import (
    FRAME,
    PAYLOAD,
    Recorded,
    Scheme,
    entry_schemes,
    label_scheme,
    switched,
)

from treecast.middleware.control.trees import states
from treecast.middleware.routing.forwarding import Outcome, faults, simulate
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.schemes.common import delivery_tree
from treecast.middleware.routing.schemes.stored import Hybrid, publisher_tree
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import LabelForwarder, request
from treecast.middleware.wire.label_stack import LabelKind

SEEDS = st.integers(0, 10**6)
NAMES = ("predictive", "reactive", "bitmask", "group", "group, 2", "mixed", "hops", "destinations")


def agree(network: Network, scheme: Scheme, source: int, stack: Any) -> Outcome:
    """Sends a stack both ways, compares all that can be seen, and answers what the model says."""
    recorded = Recorded(scheme.model)
    outcome = simulate(network, recorded, source, stack, payload=len(PAYLOAD))
    run = switched(scheme.program)
    run.become(network, {switch: scheme.state(switch) for switch in network.switches})
    carried = run.send(source, FRAME + scheme.encoded(stack) + PAYLOAD)
    assert carried.looped == outcome.looped
    if outcome.looped:  # both were cut off somewhere
        return outcome
    copies = list(recorded.copies)
    if network.is_host[source]:
        copies.append((network.out[source][0], stack))
    expected: dict[int, list[bytes]] = {}
    for link, its in copies:
        expected.setdefault(link, []).append(FRAME + scheme.encoded(its) + PAYLOAD)
    assert {link: sorted(frames) for link, frames in carried.frames.items()} == {
        link: sorted(frames) for link, frames in expected.items()
    }
    assert carried.astray == []
    assert (carried.packets, carried.bytes) == (outcome.packets, outcome.bytes)
    assert carried.passes == recorded.passes
    assert carried.recirculations == sum(recorded.passes.values()) - recorded.calls
    return outcome


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6, deadline=None)
@given(network=networks(7, hosts=True), seed=SEEDS)
def test_an_encoded_stack(name: str, network: Network, seed: int) -> None:
    rng = Random(seed)
    scheme = entry_schemes(network, rng)[name]
    source, receivers = receivers_of(network, rng)
    stack = scheme.model.encode(source, delivery_tree(network, source, receivers))
    assert faults(network, source, receivers, agree(network, scheme, source, stack)) == []


@settings(max_examples=8, deadline=None)
@given(network=networks(7, hosts=True), seed=SEEDS, share=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
def test_a_hybrid_stack(network: Network, seed: int, share: float) -> None:
    rng = Random(seed)
    model = Hybrid(network, clean_up=rng.random() < 0.5)
    source, receivers = receivers_of(network, rng)
    potential = publisher_tree(network, source, [h for h in network.hosts if h != source])
    stable = receivers[: round(share * len(receivers))]
    model.subscribe(source, potential, stable)
    stack = model.encode(source, publisher_tree(network, source, receivers))
    scheme = label_scheme(
        "hybrid",
        network,
        model,
        lambda s: states.labels(
            network, s, model.stored, model.stored.trees, clean_up=model.switches.clean_up
        ),
    )
    if stack:
        assert faults(network, source, receivers, agree(network, scheme, source, stack)) == []


def _virtual(network: Network, rules: RuleBase, clean_up: bool) -> Scheme:
    return label_scheme(
        "virtual_trees",
        network,
        LabelForwarder(network, rules, clean_up=clean_up),
        lambda s: states.labels(network, s, rules, rules.trees, clean_up=clean_up),
    )


@settings(max_examples=20, deadline=None)
@given(
    network=st.booleans().flatmap(lambda hosts: networks(8, hosts=hosts)),
    seed=SEEDS,
    limit=st.integers(0, 5),
    clean_up=st.booleans(),
)
def test_a_stack_of_virtual_trees(network: Network, seed: int, limit: int, clean_up: bool) -> None:
    rng = Random(seed)
    rules = random_rules(network, rng, limit)
    source, receivers = receivers_of(network, rng)
    found = Encoder(network, rules).encode(request(network, source, receivers))
    if found.labels:
        outcome = agree(network, _virtual(network, rules, clean_up), source, found.labels)
        assert faults(network, source, receivers, outcome) == []


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, count=st.integers(1, 8))
def test_any_labels_at_all(seed: int, count: int) -> None:
    """Unknown ids, stops before trees, labels twice, packets that go round: still the same everywhere."""
    rng = Random(seed)
    network = random_network(seed, rng.randint(2, 5), rng.randint(0, 2), hosts=True)
    rules = random_rules(network, rng, 3)
    ids = {
        LabelKind.HOP: [*range(len(network.tails)), 9999],
        LabelKind.STOP: [*range(len(network.tails)), 9999],
        LabelKind.TREE: [*rules.trees, 9999],
    }
    kinds = [rng.choice([LabelKind.HOP, LabelKind.STOP, LabelKind.TREE]) for _ in range(count)]
    labels = [kind << 14 | rng.choice(ids[kind]) for kind in kinds]
    agree(network, _virtual(network, rules, False), rng.choice(network.hosts), labels)
