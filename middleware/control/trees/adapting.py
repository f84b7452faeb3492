"""Trees that follow what publishers send: measured receiver sets become a sample, and the sample better
trees.

  seen = Observed(network)
  seen.add(await publishers.observed())       # present counts by publisher and set of hosts
  trees = better_trees(manager.rules, seen, rng)
  if trees is not None:
      await manager.update(trees)             # make before break, while packets are in flight

Each further observation halves the weight of earlier ones, once there is enough. Trees are learned first
(`routing.virtual.choice.relearn`); if that is not worthwhile, all strategies are measured (`adapt`). Where
an operator has chosen a strategy that needs knowledge, it alone is measured. An update must save 5 % of the
labels; learned trees are measured on notifications that they were not learned
from.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from treecast.middleware.routing.network import Network, RoutingError
from treecast.middleware.routing.virtual.candidates import SAMPLE, knowledge, sample
from treecast.middleware.routing.virtual.choice import WORTH, adapt, choose, measure, relearn
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import Request
from treecast.middleware.routing.virtual.strategies import Knowledge

Counts = Mapping[tuple[str, ...], int]

FEWEST: Final = (
    300  # packets to observe before any decision: from 60, trees were learned that made others worse
)
FADING: Final = 0.5  # factor for earlier observations at each one that has enough
_FORGOTTEN: Final = 0.5
THRESHOLDS: Final = (0.3, 0.6, 0.9)  # shares of packets, of a strategy that has one


class Observed:
    """The observed notifications: weights by publisher and receivers (node numbers).

    Weights fade once they sum up to `fewest` packets; nothing is decided before that.
    """

    def __init__(self, network: Network, fewest: int = FEWEST) -> None:
        self.fewest = fewest
        self._network = network
        self._nodes = {network.names[node]: node for node in network.clients}
        self._before: dict[str, dict[tuple[str, ...], int]] = {}
        self.weights: dict[tuple[int, tuple[int, ...]], float] = {}

    @property
    def total(self) -> float:
        return sum(self.weights.values())

    def add(self, counts: Mapping[str, Counts]) -> None:
        """Adds one observation. Counts only increase, except for a publisher that was restarted."""
        if self.total >= self.fewest:
            faded = {key: weight * FADING for key, weight in self.weights.items()}
            self.weights = {key: weight for key, weight in faded.items() if weight >= _FORGOTTEN}
        for publisher, sets in counts.items():
            before = self._before.get(publisher, {})
            for hosts, count in sets.items():
                known = before.get(hosts, 0)
                self._note(publisher, hosts, count - known if count >= known else count)
            self._before[publisher] = dict(sets)

    def _note(self, publisher: str, hosts: tuple[str, ...], count: int) -> None:
        """Adds packets of a publisher. Ignores hosts outside the network, which labels cannot reach."""
        source = self._nodes.get(publisher)
        found = {self._nodes[host] for host in hosts if host in self._nodes} - {source}
        if source is not None and found and count > 0:
            key = (source, tuple(sorted(found)))
            self.weights[key] = self.weights.get(key, 0.0) + count

    def sample(self, rng: Random, count: int = SAMPLE) -> list[Request]:
        """Returns `count` notifications; each set is drawn in proportion to its weight."""
        return sample(self._network, self.weights, rng, count)

    def knowledge(self, rng: Random, threshold: float = THRESHOLDS[0]) -> Knowledge:
        """Returns, per publisher, the share of its packets that each host gets, and the regions where these
        are dense.
        """
        return knowledge(self._network, self.weights, rng, threshold)


def better_trees(
    current: RuleBase, seen: Observed, rng: Random, count: int = SAMPLE, strategy: str = ""
) -> list[int] | None:
    """Returns the trees (edges as bits) of a better rule base, or None if none is worth an update.

    Decides nothing before enough has been observed. Draws `count` notifications.
    `strategy`: the only one to be tried; empty: learning, and all.
    """
    if seen.total < seen.fewest:
        return None
    drawn = seen.sample(rng, count)
    try:
        if strategy:
            return _of_strategy(strategy, current, seen, drawn, rng)
        learned = relearn(current, drawn, rng)
        if learned is not None:
            return list(learned.rules.trees.values())
        chosen = adapt(current, seen.knowledge(rng), drawn, rng)
    except RoutingError:  # a receiver is unreachable, which its publisher's carrier has noticed too
        return None
    return None if chosen is None else list(chosen[1].rules.trees.values())


def _of_strategy(
    name: str, current: RuleBase, seen: Observed, drawn: list[Request], rng: Random
) -> list[int] | None:
    """Returns the trees of one strategy at its best threshold, or None if they are not worth an update."""
    network, now = current.network, measure(current.network, current, drawn)
    found = [
        choose(network, current.limit, seen.knowledge(rng, at), drawn, rng, [name])[0] for at in THRESHOLDS
    ]
    best = min(found, key=lambda one: (one.labels, one.rules.total))
    worthwhile = bool(drawn) and best.labels <= now * (1 - WORTH)
    return list(best.rules.trees.values()) if worthwhile else None
