"""Which trees would need fewer labels for what was sent: one trial per strategy, threshold and seed.

    for trial in trials(strategies, thresholds, seeds):
        judged.append(judge(current, sent, held_out, trial, Random(trial.seed)))  # at once, anywhere
    best(judged)

What was sent is a weight in packets for each publisher and set of receivers. A trial lays trees with what
one part of it tells, and is judged by the labels that another part needs. It depends on its arguments alone:
the same ones give the same trees on any machine.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

from msgspec import Struct

from ..clusters import dense_regions, k_medoids
from ..network import Network, RoutingError
from ..rng import Rng
from .encoder import Encoder
from .learning import learn
from .rules import RuleBase
from .stacks import Request, request
from .strategies import NEED_KNOWLEDGE, STRATEGIES, Knowledge, install
from .update import StepKind, plan

Weights = Mapping[tuple[int, tuple[int, ...]], float]

PRESENT: Final = "present"  # the trees that there are
LEARNED: Final = "learned"  # from these, by `learning`
ANEW: Final = "learned-anew"  # by `learning` too, from no trees
SAMPLE: Final = 300  # notifications that trees are learned from
DENSE: Final = 0.6  # the share of nodes that are dense regions
REGIONS: Final = 4  # groups of switches that a dense region is sought in
_WITH_THRESHOLD: Final = frozenset({"threshold", "frequency-relation", "hybrid", "hybrid-partitions"})
_WITH_SEED: Final = frozenset(
    {
        "random",
        "random-variant",
        "cycles",
        "partitions",
        "clusters",
        "hybrid",
        "hybrid-partitions",
        LEARNED,
        ANEW,
    }
)


class Trial(Struct, frozen=True, order=True):
    """One way to lay trees."""

    strategy: str
    threshold: float
    seed: int


class Judged(Struct, frozen=True):
    """The outcome of a trial: `labels` per packet of the judging part, rules on all switches, rules to be
    written and removed, and the trees (edges as bits). `fault`: why there are none.
    """

    trial: Trial
    labels: float
    rules: int
    writes: int
    trees: tuple[int, ...]
    fault: str = ""


def trials(strategies: Iterable[str], thresholds: Iterable[float], seeds: Iterable[int]) -> list[Trial]:
    """Returns all that differ: a strategy without threshold or chance is tried once."""
    found = {Trial(PRESENT, 0.0, 0)}
    for strategy in strategies:
        for threshold in thresholds if strategy in _WITH_THRESHOLD else (0.0,):
            for seed in seeds if strategy in _WITH_SEED else (0,):
                found.add(Trial(strategy, threshold, seed))
    return sorted(found)


def all_strategies() -> list[str]:
    """Returns the names of all strategies that trials may have, but `PRESENT`."""
    return [*STRATEGIES, LEARNED, ANEW]


def sample(network: Network, weights: Weights, rng: Rng, count: int = SAMPLE) -> list[Request]:
    """Returns `count` notifications; each set is drawn in proportion to its weight."""
    keys = sorted(weights)
    sums = list(accumulate(weights[key] for key in keys))
    drawn = [
        keys[bisect(sums, rng.random() * sums[-1], 0, len(keys) - 1)] for _ in range(count if keys else 0)
    ]
    return [request(network, source, list(receivers)) for source, receivers in drawn]


def knowledge(network: Network, weights: Weights, rng: Rng, threshold: float = 0.3) -> Knowledge:
    """Returns, per publisher, the share of its packets that each host gets, and the regions where clients are
    dense.
    """
    sent: dict[int, float] = {}
    got: dict[int, dict[int, float]] = {}
    for (source, receivers), weight in weights.items():
        sent[source] = sent.get(source, 0.0) + weight
        for node in receivers:
            its = got.setdefault(source, {})
            its[node] = its.get(node, 0.0) + weight
    shares = {
        source: {node: weight / sent[source] for node, weight in sorted(its.items())}
        for source, its in sorted(got.items())
    }
    groups = k_medoids(network, min(REGIONS, len(network.switches)), rng)
    return Knowledge(shares, dense_regions(network, groups, DENSE), threshold)


def labels_per_packet(rules: RuleBase, weights: Weights) -> float:
    """Returns the labels per packet; 0 if there are no packets. Raises RoutingError for an unreachable
    receiver.
    """
    encoder, labels, packets = Encoder(rules.network, rules), 0.0, 0.0
    for (source, receivers), weight in sorted(weights.items()):
        labels += weight * encoder.encode(request(rules.network, source, list(receivers))).label_count
        packets += weight
    return labels / packets if packets else 0.0


def judge(current: RuleBase, sent: Weights, held_out: Weights, trial: Trial, rng: Rng) -> Judged:
    """Lays trees by `sent`, and measures them by `held_out`. `rng`: seeded with the trial's. `current` is not
    changed.
    """
    try:
        rules = _laid(current, sent, trial, rng)
        steps = plan(current, list(rules.trees.values()))
        labels = labels_per_packet(steps.rules, held_out)
    except RoutingError as error:
        return Judged(trial, 0.0, 0, 0, (), str(error))
    writes = sum(len(one.rules) for one in steps.steps if one.kind in (StepKind.INSTALL, StepKind.REMOVE))
    return Judged(trial, labels, steps.rules.total, writes, tuple(steps.rules.trees.values()))


def _laid(current: RuleBase, sent: Weights, trial: Trial, rng: Rng) -> RuleBase:
    network = current.network
    if trial.strategy == PRESENT:
        return current
    if trial.strategy in (LEARNED, ANEW):
        start = current if trial.strategy == LEARNED else RuleBase(network, current.limit, current.next)
        return learn(network, start, sample(network, sent, rng), rng).rules
    if trial.strategy in NEED_KNOWLEDGE:
        known = knowledge(network, sent, rng, trial.threshold)
    else:
        known = Knowledge()
    return install(network, current.limit, STRATEGIES[trial.strategy], known, rng)


def best(judged: Iterable[Judged]) -> Judged | None:
    """Returns the one with the fewest labels; among equals with the fewest writes, then the first."""
    fit = [one for one in judged if not one.fault]
    return min(fit, key=lambda one: (one.labels, one.writes, one.trial), default=None)


def receivers_of(network: Network, names: Iterable[str], source: int) -> tuple[int, ...]:
    """Returns the hosts of the network among names, as nodes in ascending order, without the publisher."""
    at = {network.names[node]: node for node in network.clients}
    return tuple(sorted({at[name] for name in names if name in at} - {source}))
