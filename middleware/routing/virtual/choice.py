"""Choice of a strategy by measurement, which the thesis leaves open (7.2, automated selection, adaptation).

Every strategy's rule base encodes a sample of observed notifications; the one with the fewest labels wins.
Diameters and churn need not be known: the sample shows it if publishers' trees decay in a network.
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

# New rules cost writes to switches, so they must save this share of labels.
WORTH = 0.05


class Measured(Struct, frozen=True):
    """A strategy and the labels per notification that it needed for a sample."""

    strategy: str
    labels: float
    rules: RuleBase


def measure(network: Network, rules: RuleBase, sample: list[Request]) -> float:
    """Returns the labels per notification; 0 for an empty sample."""
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
    """Returns all strategies with their results, the best first; among equals the one with fewer rules."""
    found = []
    for name in names or list(STRATEGIES):
        rules = install(network, limit, STRATEGIES[name], knowledge, rng)
        found.append(Measured(name, measure(network, rules, sample), rules))
    return sorted(found, key=lambda measured: (measured.labels, measured.rules.total))


def adapt(
    current: RuleBase, knowledge: Knowledge, sample: list[Request], rng: Rng
) -> tuple[str, Plan] | None:
    """Returns the update to a better strategy for recent observations, or None if none is worthwhile."""
    network, limit = current.network, current.limit
    now = measure(network, current, sample)
    best = choose(network, limit, knowledge, sample, rng)[0]
    if not sample or best.labels > now * (1 - WORTH):
        return None
    return best.strategy, plan(current, list(best.rules.trees.values()))


def relearn(current: RuleBase, sample: list[Request], rng: Rng) -> Plan | None:
    """Returns the update to trees learned from recent observations, or None if they are not worthwhile.

    They are learned from two thirds of the sample and measured on the rest: a few hundred notifications are
    needed for trees that suit others too.
    """
    seen, judges = held_out(sample)
    learned = learn(current.network, current, seen, rng).rules
    if not judges or measure(current.network, learned, judges) > (1 - WORTH) * measure(
        current.network, current, judges
    ):
        return None
    return plan(current, list(learned.trees.values()))
