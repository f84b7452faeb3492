"""Trees that span terminals with few links: three heuristics behind one call.

  steiner_tree(network, terminals, method="mehlhorn", costs=None) -> edges as bits

All stay within twice the optimum. Node and edge numbers break ties, so that the result depends on the
arguments alone. The tree's leaves are terminals.
"""

from __future__ import annotations

from collections.abc import Callable

from ..network import Network, RoutingError, Unreachable
from .heuristics import cheapest_insertion, kou, mehlhorn

Heuristic = Callable[[Network, list[int], list[int]], int]

METHODS: dict[str, Heuristic] = {"mehlhorn": mehlhorn, "kou": kou, "shortest": cheapest_insertion}

__all__ = ["METHODS", "Heuristic", "steiner_tree"]


def steiner_tree(
    network: Network, terminals: list[int], method: str = "mehlhorn", costs: list[int] | None = None
) -> int:
    """Returns the edges of a tree over all terminals, as bits; 0 for fewer than two.

    `costs` is one non-negative number per edge; by default all edges cost 1. Raises RoutingError for an
    unknown method, Unreachable if terminals cannot reach each other.
    """
    if method not in METHODS:
        raise RoutingError(f"no Steiner heuristic {method!r}; there are {', '.join(METHODS)}")
    wanted = sorted(set(terminals))
    if wanted and not 0 <= wanted[0] <= wanted[-1] < network.node_count:
        raise RoutingError(
            f"terminals {wanted[0]} to {wanted[-1]} in a network of {network.node_count} nodes"
        )
    if len(wanted) < 2:
        return 0
    _check_connected(network, wanted)
    return METHODS[method](network, wanted, costs or [1] * network.edge_count)


def _check_connected(network: Network, terminals: list[int]) -> None:
    part, first = network.part, terminals[0]
    for node in reversed(terminals):
        if part[node] != part[first]:
            raise Unreachable(f"{network.names[node]} cannot be reached from {network.names[first]}")
