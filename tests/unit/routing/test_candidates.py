"""Trials of trees: what they are judged by, that they depend on their arguments alone, and which is best."""

from __future__ import annotations

from random import Random

import pytest

from treecast.middleware.routing.network import Network, build, with_hosts
from treecast.middleware.routing.virtual.candidates import (
    LEARNED,
    PRESENT,
    Judged,
    Trial,
    Weights,
    all_strategies,
    best,
    judge,
    labels_per_packet,
    receivers_of,
    sample,
    trials,
)
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import request

RINGS = [*((n, (n + 1) % 4) for n in range(4)), *((4 + n, 4 + (n + 1) % 4) for n in range(4)), (3, 4)]


def rings() -> Network:
    return with_hosts(build([f"s{n}" for n in range(8)], RINGS))


def some_weights(network: Network, seed: int) -> dict[tuple[int, tuple[int, ...]], float]:
    rng, found = Random(seed), {}
    for source in rng.sample(network.hosts, 3):
        others = [host for host in network.hosts if host != source]
        for _ in range(2):
            found[source, tuple(sorted(rng.sample(others, 4)))] = float(rng.randrange(1, 50))
    return found


def run(current: RuleBase, weights: Weights, trial: Trial) -> Judged:
    return judge(current, weights, weights, trial, Random(trial.seed))


def test_a_strategy_without_threshold_or_chance_is_tried_once() -> None:
    found = trials(["hops", "random", "threshold", "hybrid"], [0.1, 0.5], [1, 2])
    assert found == sorted(
        [
            *(Trial(PRESENT, 0.0, 0), Trial("hops", 0.0, 0)),
            *(Trial("random", 0.0, seed) for seed in (1, 2)),
            *(Trial("threshold", threshold, 0) for threshold in (0.1, 0.5)),
            *(Trial("hybrid", threshold, seed) for threshold in (0.1, 0.5) for seed in (1, 2)),
        ]
    )


def test_trials_depend_on_their_arguments_alone() -> None:
    network = rings()
    current, weights = RuleBase(network, 3), some_weights(network, 1)
    every = trials(all_strategies(), [0.3], [5])
    first = {trial: run(current, weights, trial) for trial in every}
    shuffled = dict(sorted(weights.items(), reverse=True))
    assert {trial: run(current, shuffled, trial) for trial in reversed(every)} == first
    assert current.trees == {}
    assert not any(one.fault for one in first.values())


def test_the_best_needs_no_more_labels_than_the_present_trees_and_costs_what_it_says() -> None:
    network = rings()
    current, weights = RuleBase(network, 3), some_weights(network, 2)
    found = [run(current, weights, trial) for trial in trials(all_strategies(), [0.3, 0.8], [1])]
    chosen, present = best(found), next(one for one in found if one.trial.strategy == PRESENT)
    assert chosen is not None
    assert chosen.labels < present.labels
    rules = RuleBase(network, 3)
    for edges in chosen.trees:
        rules.add(edges)
    rules.check_invariants()
    assert chosen.writes == chosen.rules == rules.total  # nothing was there before
    encoder = Encoder(network, rules)
    labels = sum(
        weight * encoder.encode(request(network, source, list(receivers))).label_count
        for (source, receivers), weight in weights.items()
    )
    assert chosen.labels == pytest.approx(labels / sum(weights.values())) == labels_per_packet(rules, weights)
    again = run(rules, weights, Trial(PRESENT, 0.0, 0))
    assert (again.labels, again.writes) == (chosen.labels, 0)


def test_learning_goes_on_from_the_present_trees() -> None:
    network = rings()
    weights = some_weights(network, 3)
    first = run(RuleBase(network, 3), weights, Trial(LEARNED, 0.0, 1))
    assert first.labels < run(RuleBase(network, 3), weights, Trial("hops", 0.0, 0)).labels


def test_what_cannot_be_reached_is_a_fault_and_not_the_best() -> None:
    network = build(["s0", "s1", "a", "b"], [(0, 2), (1, 3)], hosts=[2, 3])
    found = run(RuleBase(network, 2), {(2, (3,)): 1.0}, Trial("hops", 0.0, 0))
    assert found.fault
    assert best([found]) is None


def test_names_become_receivers_and_samples_follow_weights() -> None:
    network = rings()
    source, other = network.hosts[:2]
    names = [network.names[other], "elsewhere", network.names[source], "s0"]
    assert receivers_of(network, names, source) == (other,)
    weights = {(source, (other,)): 9.0, (source, (network.hosts[2],)): 1.0}
    drawn = [one.receivers for one in sample(network, weights, Random(1), 1000)]
    assert 850 < drawn.count(1 << other) < 950
    assert sample(network, {}, Random(1)) == []
