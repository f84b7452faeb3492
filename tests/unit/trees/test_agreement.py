"""The graph-level model of a scheme agrees with its P4 program in every packet, port, byte and pass."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks, random_network, receivers_of
from tests.unit.routing.test_virtual import random_rules

from treecast.middleware.evaluation.twins import Twin, entry_twins, hybrid_twin, send, virtual_twin
from treecast.middleware.routing.forwarding import faults
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.schemes.common import delivery_tree
from treecast.middleware.routing.schemes.stored import Hybrid, publisher_tree
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.stacks import request
from treecast.middleware.wire.label_stack import LabelKind

SEEDS = st.integers(0, 10**6)
NAMES = ("predictive", "reactive", "bitmask", "group", "group, 2", "mixed", "hops", "destinations")


def wrong(network: Network, twin: Twin, source: int, receivers: list[int], stack: Any) -> list[str]:
    """Returns the differences between the two, and errors of the delivery."""
    sent = send(network, twin, source, stack, b"what is carried")
    return [*sent.differences, *faults(network, source, receivers, sent.outcome)]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6, deadline=None)
@given(network=networks(7, hosts=True), seed=SEEDS)
def test_an_encoded_stack(name: str, network: Network, seed: int) -> None:
    rng = Random(seed)
    twin = entry_twins(network, rng)[name]
    source, receivers = receivers_of(network, rng)
    stack = twin.model.encode(source, delivery_tree(network, source, receivers))
    assert wrong(network, twin, source, receivers, stack) == []


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
    if stack:
        assert wrong(network, hybrid_twin(network, model), source, receivers, stack) == []


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
        twin = virtual_twin(network, rules, clean_up=clean_up)
        assert wrong(network, twin, source, receivers, found.labels) == []


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, count=st.integers(1, 8))
def test_any_labels_at_all(seed: int, count: int) -> None:
    """Unknown ids, stops before trees, repeated labels, packets in a loop: both still agree everywhere."""
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
    sent = send(network, virtual_twin(network, rules), rng.choice(network.hosts), labels, b"data")
    assert sent.differences == []
