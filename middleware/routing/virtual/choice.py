"""The choice of a strategy by measuring: what the thesis leaves open (7.2, automated selection, adaptation).

Every strategy's rule base encodes a sample of observed notifications; the one with the fewest labels is
taken. Nothing has to be known of diameters or churn: a network where trees of publishers decay shows it in
the sample.
"""

from __future__ import annotations

from msgspec import Struct

from ..network import Network
from ..rng import Rng
from .encoder import Encoder
from .learning import held_out, learn
from .rules import RuleBase
from .stacks import Request
from .strategies import STRATEGIES, Knowledge, install
from .update import Plan, plan

# New rules cost writes to switches: they have to save this share of labels.
WORTH = 0.05


class Measured(Struct, frozen=True):
    """A strategy and the labels per notification that it needed for a sample."""

    strategy: str
    labels: float
    rules: RuleBase


def measure(network: Network, rules: RuleBase, sample: list[Request]) -> float:
    """Labels per notification; 0 for an empty sample."""
    encoder = Encoder(network, rules)
    return sum(encoder.encode(asked).label_count for asked in sample) / max(1, len(sample))


def choose(
    network: Network,
    limit: int,
    knowledge: Knowledge,
    sample: list[Request],
    rng: Rng,
    names: list[str] | None = None,
) -> list[Measured]:
    """Returns all strategies with what they need, the best first; among equals the one with fewer rules."""
    found = []
    for name in names or list(STRATEGIES):
        rules = install(network, limit, STRATEGIES[name], knowledge, rng)
        found.append(Measured(name, measure(network, rules, sample), rules))
    return sorted(found, key=lambda measured: (measured.labels, measured.rules.total))


def adapt(
    current: RuleBase, knowledge: Knowledge, sample: list[Request], rng: Rng
) -> tuple[str, Plan] | None:
    """Returns the update to a better strategy for what has been observed lately, or None if none is
    worth it.
    """
    network, limit = current.network, current.limit
    now = measure(network, current, sample)
    best = choose(network, limit, knowledge, sample, rng)[0]
    if not sample or best.labels > now * (1 - WORTH):
        return None
    return best.strategy, plan(current, list(best.rules.trees.values()))


def relearn(current: RuleBase, sample: list[Request], rng: Rng) -> Plan | None:
    """Returns the update to trees learned from what has been observed lately, or None if they are not worth
    it.

    They are learned from two thirds of the sample, and judged by the last: it takes a few hundreds for them
    to suit others too.
    """
    seen, judges = held_out(sample)
    learned = learn(current.network, current, seen, rng).rules
    if not judges or measure(current.network, learned, judges) > (1 - WORTH) * measure(
        current.network, current, judges
    ):
        return None
    return plan(current, list(learned.trees.values()))
