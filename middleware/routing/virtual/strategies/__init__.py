"""Which virtual trees to install.

A strategy yields trees (edges as bits) in the order in which it wants them; `install` offers them to a
rule base until it has room for no more. `STRATEGIES` is all of them by name; "hops" installs nothing.

| strategy | knows | source |
| --- | --- | --- |
| broadcast, random, random-variant | nothing | 5.3.2, 6.2 |
| topological, cycles, partitions | the network | 5.3.3, 6.3 |
| clusters | where clients are dense | 6.4.1 |
| tree, shared, relation | who publishes to whom | 5.3.4, 6.4.2 |
| path, threshold, frequency-relation | and how often | 5.3.5, 5.3.6, 6.4.2 |
| hybrid | frequency-relation and clusters in turn | 6.5.3 |
| hybrid-partitions | frequency-relation and partitions in turn | 6.6.2 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...network import Network, Unreachable
from ...rng import Rng
from ..rules import RuleBase
from .basic import broadcast, random_trees, random_variant
from .clients import (
    clusters,
    frequency_relation,
    hybrid,
    hybrid_partitions,
    path,
    relation,
    shared,
    threshold,
    tree,
)
from .knowledge import Knowledge
from .topology import cycles, partitions, topological

Strategy = Callable[[Network, Knowledge, Rng], Iterator[int]]


def hops(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """No trees."""
    return iter(())


STRATEGIES: dict[str, Strategy] = {
    "hops": hops,
    "broadcast": broadcast,
    "random": random_trees,
    "random-variant": random_variant,
    "topological": topological,
    "cycles": cycles,
    "partitions": partitions,
    "clusters": clusters,
    "tree": tree,
    "shared": shared,
    "path": path,
    "threshold": threshold,
    "relation": relation,
    "frequency-relation": frequency_relation,
    "hybrid": hybrid,
    "hybrid-partitions": hybrid_partitions,
}

# Those that know of clients only what Knowledge says: without any they want few trees or none.
NEED_KNOWLEDGE = frozenset(
    {
        "clusters",
        "tree",
        "shared",
        "path",
        "threshold",
        "relation",
        "frequency-relation",
        "hybrid",
        "hybrid-partitions",
    }
)

# So many trees in a row for each client that do not fit, and a strategy without end is thought to be done.
_REFUSED = 4

_IN_PARTS = (
    "this strategy lays trees over the whole network, which is in parts: join them, leave all but one out, "
    "or choose a strategy that knows links alone (broadcast, topological, cycles)"
)


def install(network: Network, limit: int, strategy: Strategy, knowledge: Knowledge, rng: Rng) -> RuleBase:
    """Returns a rule base under a limit of rules per switch.

    Unreachable, with what can be done, where a strategy lays trees over a network in parts.
    """
    rules = RuleBase(network, limit)
    if limit:
        try:
            _fill(rules, strategy(network, knowledge, rng))
        except Unreachable as error:
            raise Unreachable(f"{error}; {_IN_PARTS}") from error
    return rules


def _fill(rules: RuleBase, trees: Iterator[int]) -> None:
    refused = 0
    for edges in trees:
        if rules.offer(edges):
            refused = 0
        elif edges:
            refused += 1
            if refused >= _REFUSED * len(rules.network.clients):
                break


__all__ = ["NEED_KNOWLEDGE", "STRATEGIES", "Knowledge", "Strategy", "install"]
